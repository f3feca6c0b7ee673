# The installed package: one targets file per component, so that asking for
# one component never looks for the driver of another.
include(CMakePackageConfigHelpers)
include(GNUInstallDirs)

set(package_dir "${CMAKE_INSTALL_LIBDIR}/cmake/lastdoor")
get_property(components GLOBAL PROPERTY LASTDOOR_COMPONENTS)
set(LASTDOOR_PACKAGE_NEEDS "")
foreach(component IN LISTS components)
  get_property(needs GLOBAL PROPERTY LASTDOOR_NEEDS_${component})
  list(JOIN needs " " needs)
  string(APPEND LASTDOOR_PACKAGE_NEEDS
         "set(_lastdoor_needs_${component} ${needs})\n"
  )
  install(
    EXPORT lastdoor-${component}-targets
    NAMESPACE lastdoor::
    DESTINATION "${package_dir}"
  )
endforeach()
list(JOIN components " " LASTDOOR_PACKAGE_COMPONENTS)

configure_package_config_file(
  "${PROJECT_SOURCE_DIR}/cmake/lastdoorConfig.cmake.in"
  "${PROJECT_BINARY_DIR}/lastdoorConfig.cmake"
  INSTALL_DESTINATION "${package_dir}"
  NO_CHECK_REQUIRED_COMPONENTS_MACRO
)
write_basic_package_version_file(
  "${PROJECT_BINARY_DIR}/lastdoorConfigVersion.cmake"
  COMPATIBILITY SameMinorVersion
)
install(
  FILES
    "${PROJECT_BINARY_DIR}/lastdoorConfig.cmake"
    "${PROJECT_BINARY_DIR}/lastdoorConfigVersion.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/Findlibpqxx.cmake"
    "${PROJECT_SOURCE_DIR}/cmake/FindHiredis.cmake"
  DESTINATION "${package_dir}"
)
