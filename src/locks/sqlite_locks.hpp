// sqlite_locks.hpp: what a test needs to set besides the public options.
#pragma once

#include <lastdoor/locks/sqlite.hpp>
#include <memory>
#include <string>

namespace lastdoor {

// The identity of the running kernel, new with each boot. `misconfigured`
// when it cannot be read.
[[nodiscard]] result<std::string> read_boot_id();

// As open_sqlite_backend, in a boot of this name.
[[nodiscard]] result<std::unique_ptr<lock_backend>> open_sqlite_backend_in_boot(
    const std::string& path, const sqlite_locks_options& options,
    std::string boot_id);

}  // namespace lastdoor
