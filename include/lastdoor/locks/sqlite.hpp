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
// Limits
//   - One host, one kernel, one time namespace, and one clock: a service with
//     a clock of its own shares it with all processes that use the file.
//   - The file lies on a local file system, is a regular file, has one name
//     (no hard links), and nobody replaces it while it is open: each of these
//     is `misconfigured` otherwise. Two bind mounts of the single file cannot
//     be told apart from one; with containers share the folder, not the file.
//   - The path is a path: "file:..." is a file of that name, no URI.
//   - A file that is put back from a copy forgets; the gateway notices at the
//     store's mark and raises it.
//   - Other programs that write to the file with synchronous=OFF take the
//     promise about power cuts away.
//
// lastdoor's lock tables are created on first use. The file may be lastdoor's
// own, or the application's database: then its journal mode is kept, and
// without WAL each grant waits for the disk.
//
// Thread safety: see lock_service.
// Fork: a child that needs the file opens it after exec(), or is forked while
// the parent does not have it open; else `misconfigured`. SQLite itself would
// take no locks in such a child.
#pragma once

#include <lastdoor/lock_service.hpp>
#include <string>

namespace lastdoor {

struct sqlite_locks_options {
  /// Separates token sources; the source is "sqlite/<name_space>".
  std::string name_space{"default"};
  /// How long one call waits for other writers of the file; at most 24 h.
  duration call_timeout{std::chrono::seconds{2}};
  lock_service_options service{};
};

/// The back end alone, for those who wrap it. Errors as below.
[[nodiscard]] result<std::unique_ptr<lock_backend>> open_sqlite_backend(
    const std::string& path, const sqlite_locks_options& options = {});

/// Opens or creates the file. `misconfigured` when it is read-only, no
/// database, no regular file, has hard links, or is on a network file system;
/// `invalid_argument` for "" and ":memory:"; `damaged` when it is corrupt;
/// `schema_mismatch` when a newer release has changed it; `unavailable` when
/// it stays locked; `invalid_argument` for a name space that makes no source
/// name, or a call timeout out of range.
[[nodiscard]] result<lock_service> open_sqlite_locks(
    const std::string& path, const sqlite_locks_options& options = {});

}  // namespace lastdoor
