// inventory_redis.hpp: the demo's business on a Redis server.
#pragma once

#include <memory>
#include <string>

#include "cli/backends.hpp"
#include "cli/demo/inventory.hpp"

namespace lastdoor::cli {

// The server must hold lastdoor's ledger.
[[nodiscard]] result<std::unique_ptr<demo_inventory>> open_redis_inventory(
    const backend_url& u);

}  // namespace lastdoor::cli
