# Compiles one case twice; see CMakeLists.txt beside this file.
cmake_minimum_required(VERSION 3.25)

file(STRINGS ${CASE} expected REGEX "^// expect: ")
list(LENGTH expected lines)
if(NOT lines EQUAL 1)
  message(FATAL_ERROR "${CASE}: wants one line '// expect: <regex>'")
endif()
string(REPLACE "// expect: " "" expected "${expected}")

function(compile result output)
  execute_process(
    COMMAND ${COMPILER} @${FLAGS} -fsyntax-only ${ARGN} ${CASE}
    RESULT_VARIABLE status
    OUTPUT_VARIABLE text
    ERROR_VARIABLE text
  )
  set(${result} "${status}" PARENT_SCOPE)
  set(${output} "${text}" PARENT_SCOPE)
endfunction()

compile(status output)
if(NOT status EQUAL 0)
  message(FATAL_ERROR "${CASE} does not compile as it stands:\n${output}")
endif()
compile(status output -DLASTDOOR_WRONG)
if(status EQUAL 0)
  message(FATAL_ERROR "${CASE}: the wrong use compiles")
endif()
if(NOT output MATCHES "${expected}")
  message(FATAL_ERROR
    "${CASE}: refused, but not for the reason '${expected}':\n${output}"
  )
endif()
