# Finds what the chosen options need. A missing package stops the configure
# step and says what to install or which option to switch off; nothing is
# dropped in silence.

# lastdoor_require(<package> DEBIAN <name> [OPTION <option>] [VERSION <least>])
macro(lastdoor_require package)
  cmake_parse_arguments(_require "" "DEBIAN;OPTION;VERSION" "" ${ARGN})
  find_package(${package} ${_require_VERSION} QUIET)
  if(NOT ${package}_FOUND)
    set(_require_text "lastdoor needs ${package} ${_require_VERSION}")
    string(APPEND _require_text "; on Debian: apt-get install ")
    string(APPEND _require_text "${_require_DEBIAN}, or run scripts/setup")
    if(_require_OPTION)
      string(APPEND _require_text "; to build without it, configure with ")
      string(APPEND _require_text "-D${_require_OPTION}=OFF")
    endif()
    message(FATAL_ERROR "${_require_text}.")
  endif()
endmacro()

lastdoor_require(Threads DEBIAN g++)
lastdoor_require(fmt DEBIAN libfmt-dev VERSION 9)
lastdoor_require(tl-expected DEBIAN libexpected-dev)

if(LASTDOOR_WITH_SQLITE)
  lastdoor_require(
    SQLite3 VERSION 3.35 DEBIAN libsqlite3-dev OPTION LASTDOOR_WITH_SQLITE
  )
endif()

if(LASTDOOR_WITH_POSTGRES)
  lastdoor_require(
    PostgreSQL VERSION 14 DEBIAN libpq-dev OPTION LASTDOOR_WITH_POSTGRES
  )
  lastdoor_require(
    libpqxx VERSION 6.4 DEBIAN libpqxx-dev OPTION LASTDOOR_WITH_POSTGRES
  )
endif()

if(LASTDOOR_WITH_REDIS)
  lastdoor_require(
    Hiredis VERSION 0.14 DEBIAN libhiredis-dev OPTION LASTDOOR_WITH_REDIS
  )
endif()

if(LASTDOOR_BUILD_TESTS AND NOT LASTDOOR_WITH_TESTING)
  message(FATAL_ERROR "LASTDOOR_BUILD_TESTS needs LASTDOOR_WITH_TESTING=ON.")
endif()
if(LASTDOOR_WITH_TESTING)
  lastdoor_require(
    GTest DEBIAN "libgtest-dev libgmock-dev" OPTION LASTDOOR_WITH_TESTING
  )
endif()

if(LASTDOOR_BUILD_CLI)
  lastdoor_require(CLI11 DEBIAN libcli11-dev OPTION LASTDOOR_BUILD_CLI)
  lastdoor_require(
    nlohmann_json DEBIAN nlohmann-json3-dev OPTION LASTDOOR_BUILD_CLI
  )
endif()

if(LASTDOOR_BUILD_BENCHMARKS)
  lastdoor_require(
    benchmark DEBIAN libbenchmark-dev OPTION LASTDOOR_BUILD_BENCHMARKS
  )
endif()
