// locks/redis.hpp: leases on one Redis server, or one behind a failover.
//
// Invariants
//   - One script grants the lease and draws its token: one round trip. The
//     token is in the answer or there is no lease.
//   - G8: the counter carries no TTL, and a server that may have forgotten
//     (restart, flush, eviction, failover, restored backup) grants nothing
//     before its counter was raised above its own clock in microseconds. So
//     tokens start near 1.7e15 and jump ahead now and then.
//   - All keys carry the one hash tag `{name_space}` and the prefix
//     "lastdoor:". After a release nothing of the resource is left on the
//     server.
//   - Renewing never creates a lease, never takes one over, never shortens.
//
// What it does not promise: a failover may hand the lock to a second holder
// while the first still works. The second has the higher token, and the store
// refuses the first. `wait_replicas` makes that rarer. The order of tokens
// across a failover rests on the servers' wall clocks: one that is behind the
// clock of the server it replaces must not be behind by more than the time
// since the last raise. The gateway notices at the store if it was.
//
// Set `maxmemory-policy noeviction`: an evicted lock is free, though the next
// token is still higher. Redis 5.0 or newer, Valkey; no Redis Cluster other
// than by the address of the node that holds the slot of `{name_space}`. Before
// Redis 7 scripts, and so lastdoor, do not obey `min-replicas-to-write`: use
// `wait_replicas`.
//
// Connections: one for all threads of the service, driven by whoever waits
// for an answer; a second one and a thread while somebody waits for a lease.
// Nothing is sent before the first call.
//
// Thread safety: see lock_service.
// Errors, besides those of every service: `unavailable` while the server
// cannot be reached, loads its data, is a replica or refuses writes (`backend`
// has its word: READONLY, LOADING, OOM, MISCONF and others); `misconfigured`
// for a refused login, missing rights, a cluster's redirection, or a lock key
// that holds something else; `damaged` when the counter is no number;
// `token_exhausted` when it is at its end.
//
// Example:
//
//   auto locks = lastdoor::open_redis_locks("redis://127.0.0.1").value();
//   auto lease = locks.acquire("payout/2026-11", {.ttl = 10s});
#pragma once

#include <lastdoor/lock_service.hpp>
#include <lastdoor/redis_server.hpp>
#include <memory>
#include <string>
#include <string_view>

namespace lastdoor {

struct redis_locks_options {
  /// Separates token sources; the source is "redis/<name_space>". 1 to 100
  /// printable ASCII characters, no blanks, no braces.
  std::string name_space{"default"};

  /// The limit of one call, and of making a connection. A server that leaves
  /// a command unanswered for this long loses the connection.
  duration call_timeout{std::chrono::seconds{1}};

  /// How many replicas must confirm a grant; a grant that they do not confirm
  /// within `replica_timeout` is undone (`unavailable`). Calls of other
  /// threads wait as long: they share the connection.
  int wait_replicas{0};
  duration replica_timeout{std::chrono::milliseconds{200}};

  redis_tls_options tls{};
  lock_service_options service{};
};

/// The back end alone, for those who wrap it. See open_redis_locks.
[[nodiscard]] result<std::unique_ptr<lock_backend>> open_redis_backend(
    std::string_view url, const redis_locks_options& options = {});

/// For URLs see redis_server.hpp. `invalid_argument` for a bad URL or option;
/// `misconfigured` when TLS is asked for and this build has none or a file of
/// `tls` does not fit. Sends nothing: whether a server is there is for the
/// first call to find out.
[[nodiscard]] result<lock_service> open_redis_locks(
    std::string_view url, const redis_locks_options& options = {});

}  // namespace lastdoor
