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

# lastdoor_precompiled(<target> <set>): reads the headers that
# lastdoor_precompile(<set> LIBS <target>... HEADERS <header>...) compiled
# beforehand. Both targets must come to the same flags.
#
# A set is a target of its own, and without ccache: where an older precompiled
# header lies beside the new one, ccache 4.7 takes the old one for an input and
# answers with what it was. GCC wants its option for the sake of those that do
# use ccache.
function(lastdoor_precompile set)
  cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "LIBS;HEADERS")
  set(empty "${CMAKE_CURRENT_BINARY_DIR}/${set}.cpp")
  file(CONFIGURE OUTPUT "${empty}" CONTENT "")
  add_library(${set} OBJECT "${empty}")
  target_compile_features(${set} PRIVATE cxx_std_20)
  set_target_properties(${set} PROPERTIES CXX_COMPILER_LAUNCHER "")
  target_link_libraries(${set} PRIVATE ${arg_LIBS})
  lastdoor_warnings(${set})
  target_precompile_headers(${set} PRIVATE ${arg_HEADERS})
endfunction()

function(lastdoor_precompiled target set)
  target_precompile_headers(${target} REUSE_FROM ${set})
  target_compile_options(
    ${target} PRIVATE $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>
  )
endfunction()

# For the libraries: headers of others that most sources use. They save a third
# of the time. The release preset does without: there a source that forgets to
# include one of them shows, and with them GCC 12 takes inlined code of the
# standard library for overflows.
if(NOT BUILD_SHARED_LIBS)
  lastdoor_precompile(
    lastdoor_common_headers
    LIBS
      fmt::fmt
      tl::expected
    HEADERS
      <algorithm>
      <fmt/format.h>
      <functional>
      <map>
      <memory>
      <mutex>
      <optional>
      <string>
      <thread>
      <tl/expected.hpp>
      <unordered_map>
      <vector>
  )
endif()
