# embed(file symbol): sets `embedded` to a C source that holds the file's bytes and a NUL as `const char symbol[]`.
function(embed file symbol)
  get_filename_component(name "${file}" NAME)
  string(MAKE_C_IDENTIFIER "${name}" name)
  set(source "${CMAKE_BINARY_DIR}/${name}.c")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}")
  file(READ "${file}" bytes HEX)
  string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
  file(CONFIGURE OUTPUT "${source}" CONTENT
    "extern const char ${symbol}[];\nconst char ${symbol}[] = {${bytes}0};\n" @ONLY)
  set(embedded "${source}" PARENT_SCOPE)
endfunction()
