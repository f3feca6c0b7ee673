# Settings for a build of this repository itself.

if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()

set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_CXX_EXTENSIONS OFF)

# ccache is a convenience: used when it is there, never asked for.
find_program(LASTDOOR_CCACHE ccache)
mark_as_advanced(LASTDOOR_CCACHE)
if(LASTDOOR_CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # The sloppiness is what ccache asks for to work with precompiled headers.
  set(CMAKE_CXX_COMPILER_LAUNCHER
      "${CMAKE_COMMAND}" -E env "CCACHE_SLOPPINESS=pch_defines,time_macros"
      "${LASTDOOR_CCACHE}"
  )
endif()

# Backtraces with lines, without the description of every template's types:
# it doubles the time that the tests take to build.
set(CMAKE_CXX_FLAGS_DEBUG "-g1")

# lastdoor_precompile(<target> <header>...): headers of other libraries that
# most sources of the target use and that are slow to read. GCC wants the
# option for ccache's sake.
function(lastdoor_precompile target)
  target_precompile_headers(${target} PRIVATE ${ARGN})
  target_compile_options(
    ${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
  )
endfunction()
