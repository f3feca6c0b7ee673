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
  set(CMAKE_CXX_COMPILER_LAUNCHER "${LASTDOOR_CCACHE}")
endif()
