# Plugins that need an external library are separate shared objects, loaded on first use. They are compiled
# with the library's headers and are not linked with it.
find_path(UCX_INCLUDE ucp/api/ucp.h)
if(UCX_INCLUDE)
  file(GLOB ucx_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/net/ucx/*.c")
  list(FILTER ucx_sources EXCLUDE REGEX "_(test|fuzz)\\.c$")
  add_library(ucx_parts OBJECT ${ucx_sources} src/base/clock.c src/base/loaded_library.c)
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
  message(STATUS "UCX was not found (Debian: libucx-dev): the ucx transport is not built")
endif()

# add_engine(name folders... SOURCES files...): the engine of a storage service from src/backend/<name>, built with the
# headers in these folders; its library is loaded at run time.
function(add_engine name)
  cmake_parse_arguments(PARSE_ARGV 1 engine "" "" "SOURCES")
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/backend/${name}/*.c")
  list(FILTER sources EXCLUDE REGEX "_(test|fuzz)\\.c$")
  add_library(${name}_parts OBJECT ${sources})
  set_target_properties(${name}_parts PROPERTIES POSITION_INDEPENDENT_CODE ON C_VISIBILITY_PRESET hidden)
  target_include_directories(${name}_parts PRIVATE include src)
  target_include_directories(${name}_parts SYSTEM PRIVATE ${engine_UNPARSED_ARGUMENTS})
  target_compile_definitions(${name}_parts PRIVATE _GNU_SOURCE)
  target_link_libraries(${name}_parts PRIVATE ligament_flags)
  add_library(${name} MODULE src/base/clock.c src/base/loaded_library.c ${engine_SOURCES})
  target_include_directories(${name} PRIVATE include src)
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE)
  target_link_libraries(${name} PRIVATE ${name}_parts ligament_flags Threads::Threads ${CMAKE_DL_LIBS})
  target_link_options(${name} PRIVATE LINKER:-z,nodelete $<$<STREQUAL:${LIG_SANITIZE},>:LINKER:-z,defs>)
  set_target_properties(${name} PROPERTIES OUTPUT_NAME ligament_${name} LINKER_LANGUAGE C C_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY "${stage}/lib")
endfunction()

find_path(CURL_INCLUDE curl/curl.h)
if(CURL_INCLUDE)
  add_engine(s3 "${CURL_INCLUDE}" "${OPENSSL_INCLUDE}" "${OPENSSL_CONFIG_INCLUDE}"
    SOURCES src/backend/remote/format/numbered_commit.c)
else()
  message(STATUS "libcurl was not found (Debian: libcurl4-openssl-dev): stores on S3 are not built")
endif()

find_path(RADOS_INCLUDE rados/librados.h)
if(RADOS_INCLUDE)
  add_engine(rados "${RADOS_INCLUDE}")
else()
  message(STATUS "librados was not found (Debian: librados-dev): rados:// is not built")
endif()

# EvoStore's C functions. Programs load it and never link it: one function has the name of a system call.
file(GLOB evostore_sources CONFIGURE_DEPENDS "${CMAKE_CURRENT_SOURCE_DIR}/src/compat/evostore/*.c")
list(FILTER evostore_sources EXCLUDE REGEX "_(test|fuzz)\\.c$")
set(evostore_map "${CMAKE_CURRENT_SOURCE_DIR}/src/compat/evostore/evostore.map")
add_library(evostore MODULE ${evostore_sources} src/base/clock.c src/store/stamps_ring.c)
target_include_directories(evostore PRIVATE src)
target_compile_definitions(evostore PRIVATE _GNU_SOURCE)
target_link_libraries(evostore PRIVATE shared ligament_flags m)
target_link_options(evostore PRIVATE "LINKER:--version-script=${evostore_map}" LINKER:-z,nodelete
  LINKER:-Bsymbolic $<$<STREQUAL:${LIG_SANITIZE},>:LINKER:-z,defs>)
set_target_properties(evostore PROPERTIES OUTPUT_NAME ligament_evostore C_VISIBILITY_PRESET hidden
  LINK_DEPENDS "${evostore_map}" LIBRARY_OUTPUT_DIRECTORY "${stage}/lib"
  BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN")
