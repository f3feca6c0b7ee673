# Compares released migrations with their pinned hashes: a migration that
# somebody may have applied is never edited again.
#   cmake -DFOLDER=<migrations folder> -P released.cmake
# FOLDER/released.sha256 has lines as sha256sum prints them, names below FOLDER.
cmake_minimum_required(VERSION 3.25)

file(STRINGS "${FOLDER}/released.sha256" lines)
set(problems "")
foreach(line IN LISTS lines)
  if(NOT line MATCHES "^([0-9a-f]+)  ([a-z]+/[0-9a-z_.]+\\.sql)$")
    string(APPEND problems "not a line of sha256sum: ${line}\n")
  elseif(NOT EXISTS "${FOLDER}/${CMAKE_MATCH_2}")
    string(APPEND problems "removed after its release: ${CMAKE_MATCH_2}\n")
  else()
    file(SHA256 "${FOLDER}/${CMAKE_MATCH_2}" present)
    if(NOT present STREQUAL CMAKE_MATCH_1)
      string(APPEND problems "changed after its release: ${CMAKE_MATCH_2}\n")
    endif()
  endif()
endforeach()
if(problems)
  message(FATAL_ERROR "${problems}")
endif()
