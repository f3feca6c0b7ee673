# One step of one consumer test; CMakeLists.txt beside this file says which.
cmake_minimum_required(VERSION 3.25)

set(place "${WORK}/${LINKAGE}")
set(installed "${place}/moved")
if(LINKAGE STREQUAL "shared")
  set(shared ON)
else()
  set(shared OFF)
endif()

function(run)
  execute_process(COMMAND ${ARGV} RESULT_VARIABLE status)
  if(NOT status EQUAL 0)
    list(JOIN ARGV " " line)
    message(FATAL_ERROR "ended with ${status}: ${line}")
  endif()
endfunction()

# The command line that configures <source> in <build>, then more options.
function(configure_line source build result)
  set(${result}
      ${CMAKE_COMMAND} -S ${source} -B ${build} -G ${GENERATOR}
      -DCMAKE_BUILD_TYPE=Debug -DCMAKE_CXX_COMPILER=${COMPILER}
      -DCMAKE_CXX_COMPILER_LAUNCHER=${LAUNCHER} -DBUILD_SHARED_LIBS=${shared}
      ${ARGN}
      PARENT_SCOPE
  )
endfunction()

function(configure_build_and_run build)
  configure_line(${SOURCE}/tests/consumer/project ${build} line ${ARGN})
  run(${line})
  run(${CMAKE_COMMAND} --build ${build})
  run(${build}/consumer)
endfunction()

# Configures the consumer for some components and compares the answer.
# expect_configure(<ok|refused> <text that must appear> <option>...)
function(expect_configure outcome text)
  file(REMOVE_RECURSE ${place}/components)
  configure_line(
    ${SOURCE}/tests/consumer/project ${place}/components line
    -DCMAKE_PREFIX_PATH=${installed} ${ARGN}
  )
  execute_process(
    COMMAND ${line}
    RESULT_VARIABLE status
    OUTPUT_VARIABLE output
    ERROR_VARIABLE output
  )
  # CMake wraps its messages, so spaces and line ends count alike.
  string(REGEX REPLACE "[ \n]+" " " output "${output}")
  string(FIND "${output}" "${text}" found)
  if((outcome STREQUAL "ok" AND NOT status EQUAL 0)
     OR (outcome STREQUAL "refused" AND status EQUAL 0)
     OR found EQUAL -1
  )
    message(FATAL_ERROR "${ARGN}: not ${outcome} with '${text}':\n${output}")
  endif()
endfunction()

if(STEP STREQUAL "install")
  file(REMOVE_RECURSE ${place}/installed ${installed})
  run(${CMAKE_COMMAND} --install ${BUILT} --prefix ${place}/installed)
  file(RENAME ${place}/installed ${installed})

  file(GLOB_RECURSE package_files ${installed}/*.cmake)
  foreach(file IN LISTS package_files)
    file(STRINGS ${file} leaks REGEX "${SOURCE}|${place}|${BUILT}")
    if(leaks)
      message(FATAL_ERROR "${file} names the build machine: ${leaks}")
    endif()
  endforeach()

elseif(STEP STREQUAL "find_package")
  file(GLOB_RECURSE libraries ${installed}/*lastdoor_core.so)
  if((shared AND NOT libraries) OR (NOT shared AND libraries))
    message(FATAL_ERROR "not a ${LINKAGE} installation: ${libraries}")
  endif()
  configure_build_and_run(
    ${place}/find_package -DCMAKE_PREFIX_PATH=${installed}
    -DCONSUMER_COMPONENTS=core,sqlite,postgres,redis,testing
  )

elseif(STEP STREQUAL "add_subdirectory")
  file(REMOVE_RECURSE ${place}/add_subdirectory)
  configure_build_and_run(
    ${place}/add_subdirectory -DCONSUMER_LASTDOOR_SOURCE=${SOURCE}
    -DLASTDOOR_WITH_TESTING=ON -DLASTDOOR_INSTALL=ON
    -DCONSUMER_COMPONENTS=core,sqlite,postgres,redis,testing
  )

elseif(STEP STREQUAL "components")
  set(no_driver -DCMAKE_DISABLE_FIND_PACKAGE_SQLite3=ON)
  set(all "core, sqlite, postgres, redis")
  set(installation "is not part of this installation, which has: ${all}")
  expect_configure(ok "has: core" -DCONSUMER_COMPONENTS=core)
  # One component never looks for the driver of another.
  expect_configure(ok "has: core" -DCONSUMER_COMPONENTS=core ${no_driver})
  expect_configure(ok "has: core" -DCONSUMER_COMPONENTS=)
  expect_configure(
    refused
    "component \"sqlite\" needs the package SQLite3, which was not found"
    -DCONSUMER_COMPONENTS=sqlite ${no_driver}
  )
  expect_configure(
    ok "lacks: sqlite"
    -DCONSUMER_COMPONENTS=core -DCONSUMER_OPTIONAL=sqlite ${no_driver}
  )
  expect_configure(
    refused
    "component \"postgres\" needs the package libpqxx, which was not found"
    -DCONSUMER_COMPONENTS=postgres -DCMAKE_DISABLE_FIND_PACKAGE_libpqxx=ON
  )
  expect_configure(
    refused
    "component \"redis\" needs the package Hiredis, which was not found"
    -DCONSUMER_COMPONENTS=redis -DCMAKE_DISABLE_FIND_PACKAGE_Hiredis=ON
  )
  expect_configure(
    refused "component \"nonsense\" ${installation}"
    -DCONSUMER_COMPONENTS=core,nonsense
  )
  expect_configure(
    ok "lacks: nonsense" -DCONSUMER_COMPONENTS=core -DCONSUMER_OPTIONAL=nonsense
  )

else()
  message(FATAL_ERROR "no such step: ${STEP}")
endif()
