# LMDB, xxHash and OpenSSL's headers are required, liburing is not. Libraries are linked statically, so that the result depends
# only on libc. ligament_dependencies has what the shared library and the archive both need; lmdb_shared and
# lmdb_static are their variants of LMDB.
find_package(Threads REQUIRED)
add_library(ligament_dependencies INTERFACE)
target_link_libraries(ligament_dependencies INTERFACE Threads::Threads ${CMAKE_DL_LIBS} m)

find_path(XXHASH_INCLUDE xxhash.h)
find_path(OPENSSL_INCLUDE openssl/ssl.h)
find_path(OPENSSL_CONFIG_INCLUDE openssl/opensslconf.h)
find_path(LMDB_INCLUDE lmdb.h)
find_library(LMDB_STATIC liblmdb.a)
find_library(LMDB_SHARED lmdb)
find_path(URING_INCLUDE liburing.h)
find_library(URING_STATIC liburing.a)
if(NOT XXHASH_INCLUDE)
  message(FATAL_ERROR "xxhash.h was not found (Debian: libxxhash-dev)")
endif()
if(NOT LMDB_INCLUDE OR NOT (LMDB_STATIC OR LMDB_SHARED))
  message(FATAL_ERROR "LMDB was not found (Debian: liblmdb-dev)")
endif()
# Headers only: the library is loaded at run time, when a secret is first used.
if(NOT OPENSSL_INCLUDE OR NOT OPENSSL_CONFIG_INCLUDE)
  message(FATAL_ERROR "openssl/ssl.h was not found (Debian: libssl-dev)")
endif()
target_include_directories(ligament_dependencies SYSTEM INTERFACE "${XXHASH_INCLUDE}" "${LMDB_INCLUDE}"
  "${OPENSSL_INCLUDE}" "${OPENSSL_CONFIG_INCLUDE}")

# Sets `result` to whether the whole archive can be part of a shared object.
function(fits_shared_object result archive)
  set(probe "${CMAKE_BINARY_DIR}/probe.c")
  file(WRITE "${probe}" "#pragma GCC visibility push(hidden)\nvoid *const ligi_lmdb_stderr = 0;
    int ligi_lmdb_fprintf(void) { return 0; }\nint ligi_lmdb_fprintf_chk(void) { return 0; }\n")
  try_compile(${result} "${CMAKE_BINARY_DIR}/probe" SOURCES "${probe}" COMPILE_DEFINITIONS -fPIC
    LINK_OPTIONS -shared
    LINK_LIBRARIES -Wl,--whole-archive "${archive}" -Wl,--no-whole-archive Threads::Threads)
  set(${result} ${${result}} PARENT_SCOPE)
endfunction()

# Distributions compile liblmdb.a for programs: its one reference to stderr cannot be linked into a shared object. In
# our copy, that reference and the printing are replaced by ours (src/backend/file/catalog/lmdb_stderr.c).
function(choose_lmdb result)
  if(LMDB_STATIC)
    fits_shared_object(LMDB_FITS "${LMDB_STATIC}")
    if(LMDB_FITS)
      set(${result} "${LMDB_STATIC}" PARENT_SCOPE)
      return()
    endif()
    set(copy "${CMAKE_BINARY_DIR}/liblmdb_pic.a")
    set(failed 0)
    if("${LMDB_STATIC}" IS_NEWER_THAN "${copy}")
      execute_process(COMMAND "${CMAKE_OBJCOPY}" --redefine-sym stderr=ligi_lmdb_stderr
        --redefine-sym fprintf=ligi_lmdb_fprintf --redefine-sym __fprintf_chk=ligi_lmdb_fprintf_chk
        "${LMDB_STATIC}" "${copy}" RESULT_VARIABLE failed ERROR_QUIET)
    endif()
    if(NOT failed)
      fits_shared_object(LMDB_COPY_FITS "${copy}")
      if(LMDB_COPY_FITS)
        set(${result} "${copy}" PARENT_SCOPE)
        return()
      endif()
    endif()
  endif()
  message(STATUS "LMDB: no archive that can be linked into a shared object; using the shared library")
  set(${result} "${LMDB_SHARED}" PARENT_SCOPE)
endfunction()

choose_lmdb(lmdb_shared)
if(NOT lmdb_shared)
  message(FATAL_ERROR "liblmdb.a cannot be linked into a shared object, and liblmdb.so was not found")
endif()
if(LMDB_STATIC)
  set(lmdb_static "${LMDB_STATIC}")
else()
  set(lmdb_static "${LMDB_SHARED}")
endif()

if(URING_INCLUDE AND URING_STATIC)
  target_compile_definitions(ligament_dependencies INTERFACE LIGI_HAVE_URING=1)
  target_include_directories(ligament_dependencies SYSTEM INTERFACE "${URING_INCLUDE}")
  target_link_libraries(ligament_dependencies INTERFACE "${URING_STATIC}")
else()
  message(STATUS "liburing was not found: files are written and read without io_uring")
endif()
