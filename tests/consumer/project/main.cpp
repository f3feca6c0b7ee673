// What a user's program does with lastdoor, in the fewest lines that need the
// headers and the libraries of each component.
#include <lastdoor/version.hpp>

// find_package and add_subdirectory must both have brought what was asked for.
#if !defined(CONSUMER_HAS_CORE) || !defined(CONSUMER_HAS_SQLITE) || \
    !defined(CONSUMER_HAS_TESTING)
#error "a component is missing"
#endif

int main() { return lastdoor::version() == LASTDOOR_VERSION ? 0 : 1; }
