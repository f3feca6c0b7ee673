// locks/redlock.hpp: leases on a quorum of independent Redis servers.
//
// Redlock, with a fencing token that no other Redlock has: a grant carries a
// token that is unique and above that of every grant returned before it
// began. No clock is trusted for that; models/README.md has the rule, its
// proof and the model.
//
// Invariants
//   - One round trip when the servers' counters agree, which they do unless a
//     server was away; two otherwise.
//   - A lease is held while a quorum, N/2 + 1 of N servers, holds its key. It
//     is renewed on a quorum, never created or taken over by a renewal.
//   - Every attempt that fails is undone on every server that was asked, by
//     its own owner value; answers that come late are never taken for those
//     of another command.
//   - Delayed restart, enforced: a server that may have forgotten (restart,
//     flush, restored backup, failover behind its address) grants nothing and
//     counts for nothing until one `max_ttl` has passed on this client's own
//     clock and its counter was raised above all that was granted meanwhile.
//     Each service sees to that by itself while it is in use. One that is
//     blank is admitted only by clients that name the servers word for word
//     (host, port, database) as `redlock_init` or `redlock_change` did.
//
// What it does not promise: mutual exclusion rests on timing, as with every
// lease. The store refuses the slower of two holders by the token.
//
// The servers know of each other by a marker that `redlock_init` writes once:
// who belongs together, in which order, and the longest TTL. The URL names
// all of them, in that order:
//
//   redlock://[user[:password]@]host:port,host:port,...[/db]
//
// One login for all; N is 1 to 15. Other ways to reach a server (Unix
// sockets, TLS, a login of its own) are for `open_redlock(urls)`, which takes
// one redis:// URL a server.
//
// Keep the servers independent: no replica among them, no failover behind an
// address, `maxmemory-policy noeviction`.
//
// Connections: one to each server for all threads of the service, driven by
// whoever waits for an answer. Nothing is sent before the first call.
//
// Thread safety: see lock_service; the functions may be called from any thread.
// Errors, besides those of every service: `no_quorum` when too few servers can
// grant (down, silent, quarantined), `too_slow` when nothing would be left of
// the TTL, `misconfigured` when the servers are blank, or an address leads to
// a server of another cluster, of another place in it, or of another N, and
// when the servers were changed and one that was left out answers: whoever
// names it is told so.
//
// Example:
//
//   const auto url = "redlock://127.0.0.1:7001,127.0.0.1:7002,127.0.0.1:7003";
//   lastdoor::redlock_init(url).value();     // once, when all are blank
//   auto locks = lastdoor::open_redlock(url).value();
//   auto lease = locks.acquire("payout/2026-11", {.ttl = 10s});
#pragma once

#include <functional>
#include <lastdoor/lock_service.hpp>
#include <lastdoor/redis_server.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lastdoor {

struct redlock_options {
  /// Separates token sources; the source is "redlock/<name_space>". 1 to 100
  /// printable ASCII characters, no blanks, no braces.
  std::string name_space{"default"};

  /// How long one server may take before the others go on without it. Far
  /// below any TTL; a TTL below twice this needs a quick quorum.
  duration node_timeout{std::chrono::milliseconds{50}};

  /// The limit of one call, and of making a connection.
  duration call_timeout{std::chrono::seconds{1}};

  /// A grant with less validity left than this is undone: `too_slow`.
  duration least_validity{std::chrono::milliseconds{1}};

  /// Ask one server after the other, as in the original description. Slower:
  /// N round trips; fewer split votes under contention.
  bool sequential{false};

  redis_tls_options tls{};
  lock_service_options service{};
};

/// The back end alone, for those who wrap it. See open_redlock.
[[nodiscard]] result<std::unique_ptr<lock_backend>> open_redlock_backend(
    std::span<const std::string> urls, const redlock_options& options = {});

/// `invalid_argument` for a bad URL or option, for fewer than 1 or more than
/// 15 servers, and for one named twice. Sends nothing.
[[nodiscard]] result<lock_service> open_redlock(
    std::string_view url, const redlock_options& options = {});
[[nodiscard]] result<lock_service> open_redlock(
    std::span<const std::string> urls, const redlock_options& options = {});

/// The servers of a redlock:// URL, as redis:// URLs. `invalid_argument`.
[[nodiscard]] result<std::vector<std::string>> redlock_servers(
    std::string_view url);

struct redlock_init_options {
  /// No lease is ever granted for longer, and a server that forgot waits this
  /// long. 1 ms to 1 h. Fixed once and for all clients.
  duration max_ttl{std::chrono::minutes{1}};

  /// Every token is above this: the highest mark of the stores, when the
  /// servers replace others.
  mark floor{};

  /// The servers lose nothing in a crash (appendonly yes, appendfsync always;
  /// checked), so a restarted one need not wait.
  bool durable{false};
};

/// Writes the markers. Requires that all servers answer (`unavailable`) and
/// that none was used before (`misconfigured`; also when somebody else is at
/// it). After a crash half way the servers without a marker are admitted like
/// those that forgot.
[[nodiscard]] result<void> redlock_init(std::span<const std::string> urls,
                                        const redlock_init_options& init = {},
                                        const redlock_options& options = {});
[[nodiscard]] result<void> redlock_init(std::string_view url,
                                        const redlock_init_options& init = {},
                                        const redlock_options& options = {});

/// What one server is to the service that asks.
struct redlock_node_status {
  enum class condition : std::uint8_t {
    admitted,
    quarantined,  // may have forgotten, or is blank
    unreachable,
    foreign,  // of another cluster, place or size; marker or counter damaged
    closed,   // left out by a change of the servers, or not opened yet
  };
  std::string server;  // the URL without its password
  condition now{condition::unreachable};
  std::string why;          // in words; empty when admitted
  std::int64_t counter{0};  // 0: none or not known
  duration wait_left{0};    // quarantined: until it may be admitted
};

/// Looks at all servers. Begins the wait of those in quarantine.
[[nodiscard]] result<std::vector<redlock_node_status>> redlock_status(
    std::span<const std::string> urls, const redlock_options& options = {});

/// Admits the servers in quarantine, after the wait, which it sits out. With
/// `floor`, the highest mark of the stores: admits them although too few
/// others are left to say how far the tokens have come (`no_quorum` without).
///
/// A token that was granted but never reached a store may lie above such a
/// floor and be granted again, to another owner. Ledgers compare owners too and
/// refuse whichever of the two comes second; a fence column alone cannot tell.
/// Where that matters, give a floor well above the highest mark: gaps are free.
[[nodiscard]] result<void> redlock_admit(std::span<const std::string> urls,
                                         std::optional<mark> floor = {},
                                         const redlock_options& options = {});

struct redlock_change_options {
  /// Every new token is above this: the highest mark of the stores. Needed,
  /// and trusted, when too few of the old servers remember; give it only when
  /// those that are missing are gone for good or were shut down.
  std::optional<mark> floor{};

  /// Called before each step, with what comes next in words.
  std::function<void(std::string_view)> progress{};
};

struct redlock_change_report {
  /// Every token granted before is at or below `16 * floor + 15`.
  std::int64_t floor{0};
  /// Old servers that could not be closed: they were not there. Harmless, but
  /// run the change again when they are back, for their own clients' sake.
  std::vector<std::string> left_open;
};

/// Makes the servers of `to` the cluster, in that order, instead of `from`:
/// adds, removes, replaces and reorders. Closes the old ones, waits one
/// `max_ttl`, which stays the same, and opens the new ones above all that was
/// granted. Meanwhile nothing is granted or renewed: leases end (a renewal
/// says `not_owner`), releases work. Clients that name the old servers are
/// told so (`misconfigured`) by those that were left out, should they answer;
/// those with the new names may start before.
///
/// Requires that all of `to` answer, that those of them which are new are
/// blank, and that `from` is the list as it was set up; N/2 + 1 of the old
/// servers must answer. Else nothing is changed: `unavailable`,
/// `misconfigured`, `no_quorum`.
///
/// After a crash or an error half way nothing is granted until the same
/// change is run again, by anybody; several at once do no harm. A change to
/// other servers is refused until that one is finished. Lists that are
/// changed already are no error.
///
/// A server that was left out stays closed. To use it again: empty its
/// database (FLUSHDB) and change to a list with it. Never `redlock_admit`
/// with a floor by a list that was given up.
[[nodiscard]] result<redlock_change_report> redlock_change(
    std::span<const std::string> from, std::span<const std::string> to,
    const redlock_change_options& change = {},
    const redlock_options& options = {});

}  // namespace lastdoor
