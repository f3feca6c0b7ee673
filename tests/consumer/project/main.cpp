// What a user's program does with lastdoor, in the fewest lines that need the
// headers and the libraries of each component.
#include <lastdoor/version.hpp>

// find_package and add_subdirectory must both have brought what was asked for.
#if !defined(CONSUMER_HAS_CORE) || !defined(CONSUMER_HAS_SQLITE) || \
    !defined(CONSUMER_HAS_TESTING)
#error "a component is missing"
#endif

#ifdef CONSUMER_HAS_POSTGRES
#include <lastdoor/stores/postgres.hpp>
// Refused before anything is sent, so no server is needed.
const bool refused = !lastdoor::open_postgres_store("no URL").has_value();
#endif

#ifdef CONSUMER_HAS_REDIS
#include <lastdoor/locks/redis.hpp>
// Opening sends nothing, so no server is needed.
const bool opened =
    lastdoor::open_redis_backend("redis://127.0.0.1:1").has_value();
#endif

int main() { return lastdoor::version() == LASTDOOR_VERSION ? 0 : 1; }
