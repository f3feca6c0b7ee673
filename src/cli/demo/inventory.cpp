#include "cli/demo/inventory.hpp"

#include <fmt/format.h>

#include "cli/backends.hpp"
#include "cli/demo/inventory_sqlite.hpp"

namespace lastdoor::cli {

std::string demo_resource(int sku) {
  return fmt::format("lastdoor-demo/sku-{}", sku);
}

result<std::unique_ptr<demo_inventory>> open_demo_inventory(
    std::string_view store_url) {
  auto url = parse_url("--store", store_url);
  if (!url) {
    return url.error();
  }
#if LASTDOOR_CLI_SQLITE
  return open_sqlite_inventory(url->path);
#else
  return fail(errc::invalid_argument, "the demo needs SQLite, not built in");
#endif
}

}  // namespace lastdoor::cli
