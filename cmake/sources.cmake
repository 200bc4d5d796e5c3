# A file's folder and name decide what it is compiled into.
set(top "${CMAKE_CURRENT_SOURCE_DIR}")

file(GLOB_RECURSE library_sources CONFIGURE_DEPENDS "${top}/src/*.c")
# Plugins with an outside library, and the originals' C functions, are separate shared objects.
list(FILTER library_sources EXCLUDE REGEX "_(test|fuzz)\\.c$|/src/(compat|net/ucx|backend/rados|backend/s3)/")
file(GLOB_RECURSE cli_sources CONFIGURE_DEPENDS "${top}/cli/*.c")
file(GLOB_RECURSE core_sources CONFIGURE_DEPENDS "${top}/python/core/*.c")
file(GLOB_RECURSE test_sources CONFIGURE_DEPENDS "${top}/src/*_test.c" "${top}/tests/*_test.c")
file(GLOB_RECURSE fuzz_sources CONFIGURE_DEPENDS "${top}/src/*_fuzz.c" "${top}/tests/*_fuzz.c")
file(GLOB bench_sources CONFIGURE_DEPENDS "${top}/bench/*.c" "${top}/bench/peers/*.c")
file(GLOB example_sources CONFIGURE_DEPENDS "${top}/examples/c/*.c")

# Which of these is called is decided at run time by the processor's features.
function(compile_for source)
  if(EXISTS "${top}/src/${source}")
    set_source_files_properties("${top}/src/${source}" PROPERTIES COMPILE_OPTIONS "${ARGN}")
  endif()
endfunction()
# Rows: loops in vectors, and the same bits from every one of them.
set(row_options -O3 -fno-math-errno -ffp-contract=off)
compile_for(params/rows/row_plain.c ${row_options})
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  compile_for(base/xxh3/hash_avx2.c -mavx2)
  compile_for(base/xxh3/hash_avx512.c -mavx512f)
  compile_for(params/rows/row_avx2.c ${row_options} -mavx2)
  compile_for(params/rows/row_avx512.c ${row_options} -mavx512f -mprefer-vector-width=512)
endif()
