# ligament._core for the limited API: one file serves every CPython from 3.11 on.
find_package(Python 3.11 REQUIRED COMPONENTS Interpreter Development.Module)
add_library(core MODULE ${core_sources})
# Some distributions install pyconfig.h in a folder that only their own compiler searches.
target_include_directories(core SYSTEM PRIVATE ${Python_INCLUDE_DIRS} ${LIG_PYTHON_CONFIG_INCLUDE})
target_include_directories(core PRIVATE "${top}/python/core")
target_link_libraries(core PRIVATE shared ligament_flags)
# PyInit__core has no prototype in Python.h.
set_source_files_properties(${core_sources} PROPERTIES COMPILE_OPTIONS -Wno-missing-prototypes)
target_compile_definitions(core PRIVATE Py_LIMITED_API=0x030B0000)
set_target_properties(core PROPERTIES OUTPUT_NAME _core PREFIX "" SUFFIX .abi3.so C_VISIBILITY_PRESET hidden
  LIBRARY_OUTPUT_DIRECTORY "${stage}" BUILD_WITH_INSTALL_RPATH ON INSTALL_RPATH "$ORIGIN/lib")
