# embed_sql(
#   TARGET <target>            gets the generated source
#   NAME <database>            for example: sqlite
#   FILES <path>.up.sql...     below the project folder, in order of version
# )
#
# Puts migrations into the program text. Each NNNN_name.up.sql needs its
# NNNN_name.down.sql beside it, and the numbers run 1, 2, 3 and so on.
# A source of the target includes "embedded_<database>_migrations.hpp" and
# calls lastdoor::detail::embedded_migrations(). The checksum is the SHA-256 of
# the up file, byte for byte, as sha256sum prints it.
function(embed_sql)
  cmake_parse_arguments(PARSE_ARGV 0 arg "" "TARGET;NAME" "FILES")
  set(folder "${PROJECT_BINARY_DIR}/embedded")
  set(header "embedded_${arg_NAME}_migrations.hpp")
  set(entries "")
  set(count 0)
  foreach(file IN LISTS arg_FILES)
    math(EXPR count "${count} + 1")
    embed_sql_entry("${PROJECT_SOURCE_DIR}/${file}" ${count} entry)
    string(APPEND entries "${entry}")
  endforeach()

  # The inline namespace keeps the symbols of two databases apart when one
  # program links both; each source includes the header of its own database.
  set(opening "namespace lastdoor::detail::inline ${arg_NAME}_sql {\n\n")
  set(closing "\n}  // namespace lastdoor::detail::inline ${arg_NAME}_sql\n")
  set(signature "std::span<const embedded_migration> embedded_migrations()")
  embed_sql_write("${folder}/${header}" "#pragma once

#include <span>

#include \"stores/embedded_migrations.hpp\"

${opening}${signature} noexcept;
${closing}")

  if(count EQUAL 0)
    set(body "  return {};\n")
  else()
    set(body "  static constexpr embedded_migration all[] = {\n")
    string(APPEND body "${entries}  };\n  return all;\n")
  endif()
  embed_sql_write("${folder}/embedded_${arg_NAME}_migrations.cpp"
    "#include \"${header}\"

${opening}${signature} noexcept {
${body}}
${closing}")

  target_sources(
    ${arg_TARGET} PRIVATE "${folder}/embedded_${arg_NAME}_migrations.cpp"
  )
  target_include_directories(
    ${arg_TARGET} PRIVATE "${folder}" "${PROJECT_SOURCE_DIR}/src"
  )
endfunction()

# One element of the generated array, or a configure error that says what is
# wrong with the file.
function(embed_sql_entry up_file version result)
  get_filename_component(file_name "${up_file}" NAME)
  if(NOT file_name MATCHES "^([0-9][0-9][0-9][0-9])_([a-z0-9_]+)\\.up\\.sql$")
    message(FATAL_ERROR "embed_sql: ${file_name} is not NNNN_name.up.sql")
  endif()
  set(name "${CMAKE_MATCH_2}")
  # CMAKE_MATCH_1 may start with zeros, which math() would read as decimal.
  math(EXPR number "${CMAKE_MATCH_1}")
  if(NOT number EQUAL version)
    message(FATAL_ERROR "embed_sql: ${file_name} stands at place ${version}")
  endif()
  string(REGEX REPLACE "\\.up\\.sql$" ".down.sql" down_file "${up_file}")
  embed_sql_literal("${up_file}" up)
  embed_sql_literal("${down_file}" down)
  file(SHA256 "${up_file}" checksum)
  set(entry "    {${version}, \"${name}\",\n${up},\n${down},\n")
  string(APPEND entry "     \"${checksum}\"},\n")
  set(${result} "${entry}" PARENT_SCOPE)
endfunction()

# The text of a file as a raw string literal.
function(embed_sql_literal file result)
  if(NOT EXISTS "${file}")
    message(FATAL_ERROR "embed_sql: ${file} is missing")
  endif()
  set_property(
    DIRECTORY "${PROJECT_SOURCE_DIR}"
    APPEND
    PROPERTY CMAKE_CONFIGURE_DEPENDS "${file}"
  )
  file(READ "${file}" text)
  string(FIND "${text}" ")migration\"" terminator)
  string(FIND "${text}" "\r" carriage_return)
  if(NOT terminator EQUAL -1 OR NOT carriage_return EQUAL -1)
    message(FATAL_ERROR
      "embed_sql: ${file} holds a carriage return or )migration\", which a "
      "raw string literal cannot carry unchanged"
    )
  endif()
  set(${result} "R\"migration(${text})migration\"" PARENT_SCOPE)
endfunction()

# Writes only what changed, so that a configure run rebuilds nothing.
function(embed_sql_write file text)
  if(EXISTS "${file}")
    file(READ "${file}" present)
    if(present STREQUAL text)
      return()
    endif()
  endif()
  file(WRITE "${file}" "${text}")
endfunction()
