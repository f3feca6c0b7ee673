// locks/postgres.hpp: leases in a Postgres database.
//
// Two services, which do not exclude each other:
//
//                    | leases (the default)      | advisory locks
//   -----------------|---------------------------|---------------------------
//   what is held     | a row, until it expires   | a session's lock
//   a holder that is | frees it when its TTL is  | frees it when its session
//   gone or cut off  | over                      | ends, at the latest with
//                    |                           | the TTL
//   connections      | a few, shared             | one for each lease held
//   behind a pooler  | works                     | refused
//   renewed by       | anyone with the grant     | the process that acquired
//
// Invariants
//   - A lease and its token are granted by one statement, whose commit is on
//     disk before the grant is returned, also where the database is set to
//     commit asynchronously.
//   - Expiry is judged by the server's clock and the TTL that the holder
//     stored. No clock, time zone or TTL of anybody else matters.
//   - G8: after a failover, a restored backup or a counter that was set back,
//     the counter is raised above everything it may have handed out before
//     anything is granted.
//   - No setting of a session that a pooler shares is changed.
//
// Limits: run `lastdoor migrate up` first (`schema_mismatch` otherwise). A
// TTL is 1 ms to 24 h. A server clock that is set forward ends leases early:
// that costs a second holder, whose token is higher, not a wrong write.
// Looking up a host name is the one thing that `call_timeout` does not bound.
//
// Thread safety: see lock_service. The functions for a transaction belong to
// the thread of that transaction.
//
// Example:
//
//   auto locks = lastdoor::open_postgres_locks(
//                    "postgresql://app@db.example/shop").value();
//   auto lease = locks.acquire("payout/2026-11", {.ttl = 10s});
#pragma once

#include <cstddef>
#include <lastdoor/lock_service.hpp>
#include <string>

namespace lastdoor {

struct postgres_locks_options {
  /// Separates token sources; the source is "postgres/<name_space>", that of
  /// advisory locks "postgres-advisory/<name_space>".
  std::string name_space{"default"};
  /// The limit of one call, connecting included.
  duration call_timeout{std::chrono::seconds{2}};
  /// Connections at most. Advisory locks need one for each lease held.
  std::size_t connections{4};
  /// Wake waiters when a lease is released; otherwise, and behind a pooler,
  /// they poll. Takes one connection more while somebody waits.
  bool notify{true};
  lock_service_options service{};
};

/// The back end alone, for those who wrap it.
[[nodiscard]] result<std::unique_ptr<lock_backend>> open_postgres_backend(
    const std::string& url, const postgres_locks_options& options = {});

/// `url` is a Postgres URL or connection string. `schema_mismatch` when the
/// migrations are missing; `misconfigured` for rights, a sequence that was
/// changed; `unavailable` when the server cannot be reached or is a standby.
[[nodiscard]] result<lock_service> open_postgres_locks(
    const std::string& url, const postgres_locks_options& options = {});

/// Advisory locks instead of leases; see the table above. `misconfigured`
/// through a pooler.
[[nodiscard]] result<std::unique_ptr<lock_backend>>
open_postgres_advisory_backend(const std::string& url,
                               const postgres_locks_options& options = {});
[[nodiscard]] result<lock_service> open_postgres_advisory_locks(
    const std::string& url, const postgres_locks_options& options = {});

}  // namespace lastdoor
