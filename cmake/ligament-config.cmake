# find_package(ligament): targets ligament::ligament, and ligament::static where the archive was installed.
# Paths are relative to this file, so that the folder can be moved.
get_filename_component(ligament_root "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)

if(NOT TARGET ligament::ligament)
  add_library(ligament::ligament SHARED IMPORTED)
  set_target_properties(ligament::ligament PROPERTIES
    IMPORTED_LOCATION "${ligament_root}/lib/libligament.so.0" IMPORTED_SONAME libligament.so.0
    INTERFACE_INCLUDE_DIRECTORIES "${ligament_root}/include")
endif()

# A plugin needs the headers and nothing to link.
if(NOT TARGET ligament::headers)
  add_library(ligament::headers INTERFACE IMPORTED)
  set_target_properties(ligament::headers PROPERTIES INTERFACE_INCLUDE_DIRECTORIES "${ligament_root}/include")
endif()

if(NOT TARGET ligament::static AND EXISTS "${ligament_root}/lib/libligament.a")
  include(CMakeFindDependencyMacro)
  find_dependency(Threads)
  add_library(ligament::static STATIC IMPORTED)
  set(ligament_private Threads::Threads ${CMAKE_DL_LIBS} m)
  foreach(ligament_name lmdb uring)
    find_library(LIGAMENT_${ligament_name} ${ligament_name})
    if(LIGAMENT_${ligament_name})
      list(APPEND ligament_private "${LIGAMENT_${ligament_name}}")
    endif()
  endforeach()
  set_target_properties(ligament::static PROPERTIES IMPORTED_LOCATION "${ligament_root}/lib/libligament.a"
    INTERFACE_INCLUDE_DIRECTORIES "${ligament_root}/include" INTERFACE_LINK_LIBRARIES "${ligament_private}")
endif()
