# embed_text(
#   TARGET <target>     gets the generated source
#   NAME <name>         a namespace; the header is "embedded_<name>.hpp"
#   FILES <path>...     below the project folder
# )
#
# Puts text files into the program text, byte for byte. The file
# src/locks/redis_acquire.lua of NAME redis_scripts becomes
# lastdoor::detail::redis_scripts::redis_acquire, an embedded_text with the
# text and its SHA-1, as sha1sum prints it and as Redis names a script.
function(embed_text)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "TARGET;NAME" "FILES")
  set(folder "${PROJECT_BINARY_DIR}/embedded")
  set(header "embedded_${arg_NAME}.hpp")
  set(declarations "")
  set(definitions "")
  foreach(file IN LISTS arg_FILES)
    get_filename_component(symbol "${file}" NAME_WE)
    embed_text_literal("${PROJECT_SOURCE_DIR}/${file}" text)
    file(SHA1 "${PROJECT_SOURCE_DIR}/${file}" checksum)
    string(APPEND declarations "extern const embedded_text ${symbol};\n")
    string(APPEND definitions "const embedded_text ${symbol}{\n")
    string(APPEND definitions "${text},\n    \"${checksum}\"};\n")
  endforeach()

  set(opening "namespace lastdoor::detail::${arg_NAME} {\n\n")
  set(closing "\n}  // namespace lastdoor::detail::${arg_NAME}\n")
  embed_sql_write("${folder}/${header}" "#pragma once

#include \"drivers/embedded_text.hpp\"

${opening}${declarations}${closing}")
  embed_sql_write("${folder}/embedded_${arg_NAME}.cpp" "#include \"${header}\"

${opening}${definitions}${closing}")

  target_sources(
    ${arg_TARGET} PRIVATE "${folder}/embedded_${arg_NAME}.cpp"
  )
  target_include_directories(
    ${arg_TARGET} PRIVATE "${folder}" "${PROJECT_SOURCE_DIR}/src"
  )
endfunction()

# The text of a file as a raw string literal.
function(embed_text_literal file result)
  if(NOT EXISTS "${file}")
    message(FATAL_ERROR "embed_text: ${file} is missing")
  endif()
  set_property(
    DIRECTORY "${PROJECT_SOURCE_DIR}"
    APPEND
    PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}"
  )
  file(READ "${file}" text)
  string(FIND "${text}" ")embedded\"" terminator)
  string(FIND "${text}" "\r" carriage_return)
  if(NOT terminator EQUAL -1 OR NOT carriage_return EQUAL -1)
    message(FATAL_ERROR
      "embed_text: ${file} holds a carriage return or )embedded\", which a "
      "raw string literal cannot carry unchanged"
    )
  endif()
  set(${result} "    R\"embedded(${text})embedded\"" PARENT_SCOPE)
endfunction()
