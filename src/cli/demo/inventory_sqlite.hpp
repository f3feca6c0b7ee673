// inventory_sqlite.hpp: the demo's business in an SQLite file.
#pragma once

#include <memory>
#include <string>

#include "cli/demo/inventory.hpp"

namespace lastdoor::cli {

// The file must hold lastdoor's tables.
[[nodiscard]] result<std::unique_ptr<demo_inventory>> open_sqlite_inventory(
    const std::string& path);

}  // namespace lastdoor::cli
