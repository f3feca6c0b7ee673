#include "cli/demo/inventory.hpp"

#include <fmt/format.h>

#include "cli/backends.hpp"
#include "cli/demo/inventory_postgres.hpp"
#if LASTDOOR_CLI_REDIS
#include "cli/demo/inventory_redis.hpp"
#endif
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
  if (url->scheme == "sqlite") {
    return open_sqlite_inventory(url->path);
  }
#endif
#if LASTDOOR_CLI_POSTGRES
  if (url->scheme.starts_with("postgres")) {
    return open_postgres_inventory(url->path);
  }
#endif
#if LASTDOOR_CLI_REDIS
  if (url->scheme.starts_with("redis")) {
    return open_redis_inventory(*url);
  }
#endif
  return fail(errc::invalid_argument,
              fmt::format("the demo has no business in {}:", url->scheme));
}

}  // namespace lastdoor::cli
