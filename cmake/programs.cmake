# Tests, fuzz programs, benchmark and example programs: one file, one program, named after it.
find_path(CMOCKA_INCLUDE cmocka.h)
find_library(CMOCKA_LIBRARY cmocka)
if(NOT CMOCKA_INCLUDE OR NOT CMOCKA_LIBRARY)
  message(STATUS "cmocka is not here: the C tests are not built")
  set(test_sources "")
endif()

if(NOT TARGET ucx_parts)
  list(FILTER test_sources EXCLUDE REGEX "/src/net/ucx/")
endif()
if(NOT TARGET s3_parts)
  list(FILTER test_sources EXCLUDE REGEX "/src/backend/s3/|/tests/engines/s3_")
  list(FILTER fuzz_sources EXCLUDE REGEX "/src/backend/s3/")
endif()
if(NOT TARGET rados_parts)
  list(FILTER test_sources EXCLUDE REGEX "/src/backend/rados/|/tests/engines/rados_")
endif()
find_library(UCP_LIBRARY ucp)
find_library(UCS_LIBRARY ucs)
if(NOT TARGET ucx_parts OR NOT UCP_LIBRARY OR NOT UCS_LIBRARY)
  list(FILTER bench_sources EXCLUDE REGEX "/ucx_bare\\.c$")
endif()

# The program without its main, for what lies in tests/cli/.
set(cli_parts ${cli_sources})
list(FILTER cli_parts EXCLUDE REGEX "/ligament\\.c$")
if(cli_parts)
  add_library(cli_parts OBJECT ${cli_parts})
  target_link_libraries(cli_parts PRIVATE ligament_flags)
  target_include_directories(cli_parts PUBLIC include cli)
  target_compile_definitions(cli_parts PRIVATE _GNU_SOURCE)
endif()

# Internal symbols are hidden in the shared library; these programs take the static one.
function(add_inner_program source folder)
  get_filename_component(name "${source}" NAME_WE)
  add_executable(${name} "${source}" ${ARGN})
  # tests/compat/ loads shared objects that stand on the shared library: one process, one library.
  if(source MATCHES "/tests/compat/")
    target_link_libraries(${name} PRIVATE shared ligament_flags ${CMAKE_DL_LIBS})
    add_dependencies(${name} evostore)
  else()
    target_link_libraries(${name} PRIVATE static ligament_flags)
  endif()
  target_include_directories(${name} PRIVATE src tests)
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE LIGI_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/${folder}"
    BUILD_RPATH "${stage}/lib") # where plugins are
  if(source MATCHES "/tests/cli/" AND TARGET cli_parts)
    target_link_libraries(${name} PRIVATE cli_parts)
  endif()
  if(source MATCHES "/src/net/ucx/")
    target_link_libraries(${name} PRIVATE ucx_parts)
    target_include_directories(${name} SYSTEM PRIVATE "${UCX_INCLUDE}")
  endif()
  if(source MATCHES "/src/backend/s3/|/tests/engines/s3_")
    target_link_libraries(${name} PRIVATE s3_parts)
    target_include_directories(${name} SYSTEM PRIVATE "${CURL_INCLUDE}")
  endif()
  if(source MATCHES "/src/backend/rados/|/tests/engines/rados_")
    target_link_libraries(${name} PRIVATE rados_parts)
    target_include_directories(${name} SYSTEM PRIVATE "${RADOS_INCLUDE}")
  endif()
endfunction()

# A CUDA driver over host memory: it has the driver's name, so a program that is linked with it has loaded "the
# driver" already.
if(test_sources)
  add_library(fake_cuda SHARED tests/cuda/fake_cuda.c tests/cuda/fake_memory.c tests/cuda/fake_streams.c)
  target_compile_definitions(fake_cuda PRIVATE _GNU_SOURCE)
  target_include_directories(fake_cuda SYSTEM PRIVATE "${XXHASH_INCLUDE}")
  target_compile_options(fake_cuda PRIVATE -Wno-missing-prototypes)
  target_link_libraries(fake_cuda PRIVATE ligament_flags Threads::Threads)
  set_target_properties(fake_cuda PROPERTIES OUTPUT_NAME cuda VERSION 1 SOVERSION 1 C_VISIBILITY_PRESET hidden
    LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests/cuda")
endif()

foreach(source IN LISTS test_sources)
  add_inner_program("${source}" tests)
  get_filename_component(name "${source}" NAME_WE)
  target_link_libraries(${name} PRIVATE "${CMOCKA_LIBRARY}")
  if(source MATCHES "/tests/cuda/|/staging_test")
    target_link_libraries(${name} PRIVATE fake_cuda)
  endif()
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300)
  if(source MATCHES "/tests/engines/") # they need a cluster: make test-engines
    set_tests_properties(${name} PROPERTIES LABELS engines)
  endif()
  # The long ones begin first, so that none is left alone at the end; faults take longest to be noticed.
  if(name MATCHES "_(kill|fault|death|hostile|loss)_test$")
    set_tests_properties(${name} PROPERTIES COST 20)
  elseif(source MATCHES "/tests/")
    set_tests_properties(${name} PROPERTIES COST 5)
  endif()
  # Their dlopen does not know where the program looks. Under TSan UCX is not to be found: it has races.
  if(LIG_SANITIZE STREQUAL "address" OR (LIG_SANITIZE AND source MATCHES "/tests/compat/"))
    set_tests_properties(${name} PROPERTIES
      ENVIRONMENT_MODIFICATION "LD_LIBRARY_PATH=path_list_prepend:${stage}/lib")
  endif()
endforeach()

# Suites of the store again, over a place of another kind.
function(add_store_suite prefix suite definition)
  get_filename_component(name "${suite}" NAME)
  set(name "${prefix}_${name}")
  add_executable(${name} "src/store/${suite}.c")
  target_link_libraries(${name} PRIVATE static ligament_flags "${CMOCKA_LIBRARY}")
  target_include_directories(${name} PRIVATE src tests)
  target_compile_definitions(${name} PRIVATE _GNU_SOURCE ${definition}
    LIGI_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}")
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/tests")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES TIMEOUT 300)
endfunction()

# Each over one transport, with servers in the same process; and on a storage service in memory.
set(served_tcp store_test save/dedup_test save/save_part_test load/watch_test find/find_test)
set(served_shm store_random_test save/save_async_test load/resolved_model_test)
foreach(transport tcp shm)
  foreach(suite IN LISTS served_${transport})
    add_store_suite(served "${suite}" SCENE_SERVED="${transport}")
  endforeach()
endforeach()
foreach(suite store_test store_random_test save/dedup_test save/save_part_test save/save_async_test
    load/watch_test find/find_test)
  add_store_suite(remote "${suite}" SCENE_REMOTE="0")
endforeach()
add_store_suite(remote load/resolved_model_test SCENE_REMOTE="60") # who cannot pin relies on the grace

# libFuzzer where the compiler has it, else a plain driver with the same arguments for our purposes.
foreach(source IN LISTS fuzz_sources)
  get_filename_component(name "${source}" NAME_WE)
  if(CMAKE_C_COMPILER_ID MATCHES "Clang")
    add_inner_program("${source}" fuzz)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    add_inner_program("${source}" fuzz "${CMAKE_CURRENT_SOURCE_DIR}/tests/fuzz/driver.c")
  endif()
  add_test(NAME ${name} COMMAND ${name} -runs=2000 -seed=1)
  set_tests_properties(${name} PROPERTIES TIMEOUT 300)
endforeach()

foreach(source IN LISTS bench_sources)
  add_inner_program("${source}" bench)
endforeach()
if(TARGET ucx_bare) # against UCX itself
  target_include_directories(ucx_bare SYSTEM PRIVATE "${UCX_INCLUDE}")
  target_link_libraries(ucx_bare PRIVATE "${UCP_LIBRARY}" "${UCS_LIBRARY}")
endif()

foreach(source IN LISTS example_sources)
  get_filename_component(name "${source}" NAME_WE)
  add_executable(example_${name} "${source}")
  target_link_libraries(example_${name} PRIVATE shared ligament_flags m)
  set_target_properties(example_${name} PROPERTIES OUTPUT_NAME ${name}
    RUNTIME_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}/examples")
endforeach()
