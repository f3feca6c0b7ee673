// inventory_postgres.hpp: the demo's business in a Postgres database.
#pragma once

#include <memory>
#include <string>

#include "cli/demo/inventory.hpp"

namespace lastdoor::cli {

// The database must hold lastdoor's tables.
[[nodiscard]] result<std::unique_ptr<demo_inventory>> open_postgres_inventory(
    const std::string& url);

}  // namespace lastdoor::cli
