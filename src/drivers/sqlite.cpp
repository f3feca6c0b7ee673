// Placeholder until the driver wrapper arrives: proves that SQLite links.
#include <sqlite3.h>

namespace lastdoor::detail {

const char* sqlite_library_version() noexcept { return sqlite3_libversion(); }

}  // namespace lastdoor::detail
