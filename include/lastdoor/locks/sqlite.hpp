// locks/sqlite.hpp: leases in an SQLite file, for the processes of one host.
//
// Invariants
//   - The token is drawn in the transaction that grants the lease.
//   - The counter survives everything short of losing the file. Tokens are
//     reserved in blocks: a block is synced to disk before its first token is
//     issued, and another boot starts at the end of the block. So a grant
//     need not wait for the disk, and a power cut still repeats no token.
//   - Expiry is CLOCK_BOOTTIME of this boot; a lease of another boot is over.
//
// Limits: one host, one kernel, one time namespace; the file must lie on a
// local file system (`misconfigured` otherwise). A file that is put back
// from a copy forgets; the gateway notices at the store's mark and raises it.
//
// lastdoor's lock tables are created on first use: the file is lastdoor's
// own. It may also be the application's database.
//
// Thread safety: see lock_service.
#pragma once

#include <lastdoor/lock_service.hpp>
#include <string>

namespace lastdoor {

struct sqlite_locks_options {
  /// Separates token sources; the source is "sqlite/<name_space>".
  std::string name_space{"default"};
  /// How long one call waits for other writers of the file.
  duration call_timeout{std::chrono::seconds{2}};
  lock_service_options service{};
};

/// The back end alone, for those who wrap it.
[[nodiscard]] result<std::unique_ptr<lock_backend>>
open_sqlite_backend(const std::string &path,
                    const sqlite_locks_options &options = {});

/// Opens or creates the file. `misconfigured` when it is read-only, no
/// database, or on a network file system; `damaged` when it is corrupt.
[[nodiscard]] result<lock_service>
open_sqlite_locks(const std::string &path,
                  const sqlite_locks_options &options = {});

} // namespace lastdoor
