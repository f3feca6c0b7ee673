# Finds libpqxx through pkg-config, which is all that Debian ships for it.
# Defines the target libpqxx::pqxx. Installed with the package, so that a user
# of lastdoor::postgres finds the library in the same way.
find_package(PkgConfig QUIET)
if(PkgConfig_FOUND)
  pkg_check_modules(libpqxx QUIET IMPORTED_TARGET libpqxx)
endif()

include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(
  libpqxx
  REQUIRED_VARS libpqxx_LINK_LIBRARIES
  VERSION_VAR libpqxx_VERSION
)
if(libpqxx_FOUND AND NOT TARGET libpqxx::pqxx)
  add_library(libpqxx::pqxx INTERFACE IMPORTED)
  target_link_libraries(libpqxx::pqxx INTERFACE PkgConfig::libpqxx)
endif()
