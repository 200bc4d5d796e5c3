# Plugins with an outside library: shared objects of their own, loaded when they are first asked for. They are built
# against the library's headers and link nothing of it.
find_path(UCX_INCLUDE ucp/api/ucp.h)
if(UCX_INCLUDE)
  file(GLOB ucx_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/net/ucx/*.c")
  list(FILTER ucx_sources EXCLUDE REGEX "_(test|fuzz)\\.c$")
  add_library(ucx_parts OBJECT ${ucx_sources} src/base/clock.c)
  set_target_properties(ucx_parts PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
  target_include_directories(ucx_parts PRIVATE include src)
  target_include_directories(ucx_parts SYSTEM PRIVATE "${UCX_INCLUDE}")
  target_compile_definitions(ucx_parts PRIVATE _GNU_SOURCE)
  target_link_libraries(ucx_parts PRIVATE ligament_flags)
  add_library(ucx MODULE)
  target_link_libraries(ucx PRIVATE ucx_parts ligament_flags ${CMAKE_DL_LIBS})
  target_link_options(ucx PRIVATE LINKER:-z,nodelete $<$<STREQUAL:${LIG_SANITIZE},>:LINKER:-z,defs>)
  set_target_properties(ucx PROPERTIES OUTPUT_NAME ligament_ucx LINKER_LANGUAGE C
    LIBRARY_OUTPUT_DIRECTORY "${stage}/lib")
else()
  message(STATUS "UCX is not here (Debian: libucx-dev): the ucx transport is not built")
endif()

# Stores on S3. libcurl and libcrypto are loaded at run time; their headers are needed here.
find_path(CURL_INCLUDE curl/curl.h)
if(CURL_INCLUDE)
  file(GLOB_RECURSE s3_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/backend/s3/*.c")
  list(FILTER s3_sources EXCLUDE REGEX "_(test|fuzz)\\.c$")
  add_library(s3_parts OBJECT ${s3_sources})
  set_target_properties(s3_parts PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
  target_include_directories(s3_parts PRIVATE include src)
  target_include_directories(s3_parts SYSTEM PRIVATE "${CURL_INCLUDE}" "${OPENSSL_INCLUDE}" "${OPENSSL_CONFIG_INCLUDE}")
  target_compile_definitions(s3_parts PRIVATE _GNU_SOURCE)
  target_link_libraries(s3_parts PRIVATE ligament_flags)
  add_library(s3 MODULE src/base/clock.c src/backend/remote/format/numbered_commit.c)
  target_include_directories(s3 PRIVATE include src)
  target_compile_definitions(s3 PRIVATE _GNU_SOURCE)
  target_link_libraries(s3 PRIVATE s3_parts ligament_flags Threads::Threads ${CMAKE_DL_LIBS})
  target_link_options(s3 PRIVATE LINKER:-z,nodelete $<$<STREQUAL:${LIG_SANITIZE},>:LINKER:-z,defs>)
  set_target_properties(s3 PROPERTIES OUTPUT_NAME ligament_s3 LINKER_LANGUAGE C C_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY "${stage}/lib")
else()
  message(STATUS "libcurl is not here (Debian: libcurl4-openssl-dev): stores on S3 are not built")
endif()

# EvoStore's C functions. It is loaded and never linked with: one of them has the name of a system call.
file(GLOB evostore_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/compat/evostore/*.c")
list(FILTER evostore_sources EXCLUDE REGEX "_(test|fuzz)\\.c$")
set(evostore_map "${CMAKE_CURRENT_SOURCE_DIR}/src/compat/evostore/evostore.map")
add_library(evostore MODULE ${evostore_sources})
target_compile_definitions(evostore PRIVATE _GNU_SOURCE)
target_link_libraries(evostore PRIVATE shared ligament_flags m)
target_link_options(evostore PRIVATE "LINKER:--version-script=${evostore_map}" LINKER:-z,nodelete
  LINKER:-Bsymbolic $<$<STREQUAL:${LIG_SANITIZE},>:LINKER:-z,defs>)
set_target_properties(evostore PROPERTIES OUTPUT_NAME ligament_evostore C_VISIBILITY_PRESET hidden
  LINK_DEPENDS "${evostore_map}" LIBRARY_OUTPUT_DIRECTORY "${stage}/lib"
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
