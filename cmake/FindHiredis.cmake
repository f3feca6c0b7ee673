# FindHiredis: the C client library of Redis, 0.14 or newer.
#
#   Hiredis::Hiredis  the library
#   Hiredis::SSL      its TLS part with OpenSSL; only where both are there
#
# Written by hand because hiredis' own package files differ: before 1.0 there
# are none, and what Debian adds defines no target. Installed next to
# lastdoorConfig.cmake, which needs it for static builds.
find_path(Hiredis_INCLUDE_DIR hiredis/hiredis.h)
find_library(Hiredis_LIBRARY hiredis)
find_library(Hiredis_SSL_LIBRARY hiredis_ssl)
mark_as_advanced(Hiredis_INCLUDE_DIR Hiredis_LIBRARY Hiredis_SSL_LIBRARY)

if(Hiredis_INCLUDE_DIR)
  file(
    STRINGS "${Hiredis_INCLUDE_DIR}/hiredis/hiredis.h" _hiredis_lines
    REGEX "^#define HIREDIS_(MAJOR|MINOR|PATCH) +[0-9]+"
  )
  list(TRANSFORM _hiredis_lines REPLACE "[^0-9]*([0-9]+).*" "\\1")
  list(JOIN _hiredis_lines "." Hiredis_VERSION)
  unset(_hiredis_lines)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  Hiredis
  REQUIRED_VARS Hiredis_LIBRARY Hiredis_INCLUDE_DIR
  VERSION_VAR Hiredis_VERSION
)

if(Hiredis_FOUND AND NOT TARGET Hiredis::Hiredis)
  add_library(Hiredis::Hiredis UNKNOWN IMPORTED)
  set_target_properties(
    Hiredis::Hiredis
    PROPERTIES
      IMPORTED_LOCATION "${Hiredis_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${Hiredis_INCLUDE_DIR}"
  )
  if(Hiredis_SSL_LIBRARY)
    find_package(OpenSSL QUIET)
  endif()
  if(Hiredis_SSL_LIBRARY AND OpenSSL_FOUND)
    add_library(Hiredis::SSL UNKNOWN IMPORTED)
    set_target_properties(
      Hiredis::SSL
      PROPERTIES
        IMPORTED_LOCATION "${Hiredis_SSL_LIBRARY}"
        INTERFACE_LINK_LIBRARIES "Hiredis::Hiredis;OpenSSL::SSL"
    )
  endif()
endif()
