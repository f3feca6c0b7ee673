# lastdoor_library(<component>
#   HEADERS <file>...          public headers, below include/lastdoor/
#   GENERATED_HEADERS <file>...  public headers that the build writes
#   SOURCES <file>...          below src/; none makes a header-only library
#   PUBLIC <target>...         libraries that our public headers show
#   PRIVATE <target>...        libraries that only our sources use
#   NEEDS <package>...         packages that a user of the component must have
# )
#
# Makes the target lastdoor_<component>, its alias lastdoor::<component> and
# its install rules. One component per driver: linking one never pulls in the
# driver of another.
#
# Symbols keep the default visibility, so a shared build needs no export
# macros in the headers. The price, a longer symbol table, is one that a
# library of this size can pay.
function(lastdoor_library component)
  cmake_parse_arguments(
    PARSE_ARGV 1 arg "" ""
    "HEADERS;GENERATED_HEADERS;SOURCES;PUBLIC;PRIVATE;NEEDS"
  )
  if(arg_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "lastdoor_library: ${arg_UNPARSED_ARGUMENTS}?")
  endif()
  set(target lastdoor_${component})
  set(headers "${PROJECT_SOURCE_DIR}/include")
  set(generated_headers "${PROJECT_BINARY_DIR}/include")
  list(TRANSFORM arg_HEADERS PREPEND "${headers}/lastdoor/")
  list(TRANSFORM arg_GENERATED_HEADERS PREPEND "${generated_headers}/lastdoor/")

  if(arg_SOURCES)
    add_library(${target} ${arg_SOURCES})
    set(scope PUBLIC)
    target_link_libraries(${target} PRIVATE ${arg_PRIVATE})
    target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}/src")
    lastdoor_warnings(${target})
    if(TARGET lastdoor_common_headers)
      lastdoor_precompiled(${target} lastdoor_common_headers)
    endif()
    # Before 1.0 a minor release may break the binary interface.
    set_target_properties(
      ${target}
      PROPERTIES
        VERSION ${PROJECT_VERSION}
        SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
        CXX_EXTENSIONS OFF
    )
  else()
    add_library(${target} INTERFACE)
    set(scope INTERFACE)
  endif()
  add_library(lastdoor::${component} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${component})
  target_compile_features(${target} ${scope} cxx_std_20)
  target_link_libraries(${target} ${scope} ${arg_PUBLIC})
  target_sources(
    ${target}
    ${scope}
    FILE_SET HEADERS
    BASE_DIRS "${headers}" "${generated_headers}"
    FILES ${arg_HEADERS} ${arg_GENERATED_HEADERS}
  )

  set_property(GLOBAL APPEND PROPERTY LASTDOOR_COMPONENTS ${component})
  set_property(GLOBAL PROPERTY LASTDOOR_NEEDS_${component} ${arg_NEEDS})
  if(LASTDOOR_INSTALL)
    include(GNUInstallDirs)
    install(
      TARGETS ${target}
      EXPORT lastdoor-${component}-targets
      FILE_SET HEADERS
    )
  endif()
endfunction()
