# lastdoor_warnings(<target>): our warnings, on our targets only. PRIVATE, so
# a user's code is never judged by them.
#
# Left out: -Wnull-dereference, and -Wrestrict of GCC 12. Once the optimiser
# has inlined the standard library, they report its code and not ours.
function(lastdoor_warnings target)
  set(unreliable "")
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU"
     AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13
  )
    set(unreliable -Wno-restrict)
  endif()
  target_compile_options(
    ${target}
    PRIVATE
      -Wall
      -Wextra
      -Wpedantic
      -Wcast-align
      -Wconversion
      -Wdouble-promotion
      -Wextra-semi
      -Wformat=2
      -Wimplicit-fallthrough
      -Wnon-virtual-dtor
      -Wold-style-cast
      -Woverloaded-virtual
      -Wshadow
      -Wsign-conversion
      -Wundef
      -Wunused
      $<$<CXX_COMPILER_ID:GNU>:-Wduplicated-cond>
      $<$<CXX_COMPILER_ID:GNU>:-Wlogical-op>
      $<$<CXX_COMPILER_ID:GNU>:-Wredundant-tags>
      $<$<CXX_COMPILER_ID:Clang,AppleClang>:-Wthread-safety>
      ${unreliable}
      $<$<BOOL:${LASTDOOR_WARNINGS_AS_ERRORS}>:-Werror>
  )
endfunction()
