# lastdoor_warnings(<target>): our warnings, on our targets only. PRIVATE, so
# a user's code is never judged by them.
function(lastdoor_warnings target)
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
      -Wnull-dereference
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
      $<$<BOOL:${LASTDOOR_WARNINGS_AS_ERRORS}>:-Werror>
  )
endfunction()
