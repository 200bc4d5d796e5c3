# Compiler flags shared by everything that is built here.
set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
# Without NDEBUG, which CMake would define: asserts are on in developer builds, tests and sanitizer builds.
# Release, of wheels and `make install`, keeps -DNDEBUG.
set(CMAKE_C_FLAGS_RELWITHDEBINFO "-O2 -g")

# gcc does not know that lig_fail never returns LIG_OK, and warns of uninitialised outputs after LIG_TRY.
add_library(ligament_flags INTERFACE)
target_compile_options(ligament_flags INTERFACE
  -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wpointer-arith -Wvla
  $<$<C_COMPILER_ID:GNU>:-Wno-maybe-uninitialized>
  -fno-strict-aliasing -fno-omit-frame-pointer)
if(LIG_WERROR)
  target_compile_options(ligament_flags INTERFACE -Werror)
endif()

# By default UBSan continues after a finding, and the test would pass.
if(LIG_SANITIZE STREQUAL "address")
  set(sanitizers -fsanitize=address,undefined -fno-sanitize-recover=all)
elseif(LIG_SANITIZE STREQUAL "thread")
  set(sanitizers -fsanitize=thread)
elseif(LIG_SANITIZE)
  message(FATAL_ERROR "LIG_SANITIZE is '${LIG_SANITIZE}'; known: address, thread")
endif()
target_compile_options(ligament_flags INTERFACE ${sanitizers})
target_link_options(ligament_flags INTERFACE ${sanitizers})
