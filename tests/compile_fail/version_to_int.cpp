// The sample of the harness: a version is text, not a number.
// expect: (cannot convert|no viable conversion)
#include "lastdoor/version.hpp"

void use() {
  [[maybe_unused]] const auto text = lastdoor::version();
#ifdef LASTDOOR_WRONG
  [[maybe_unused]] const int number = lastdoor::version();
#endif
}
