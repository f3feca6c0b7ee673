// stores/redis.hpp: fenced writes to one Redis server.
//
// Invariants: see stores/store.hpp. Besides
//   - A write is one script and one round trip: it compares the mark, checks
//     everything that could fail (types, numbers, sizes, rights), runs the
//     commands and raises the mark. A write that is refused changes no data;
//     as `missing`, or where a condition did not hold, it has still claimed.
//   - Two of these checks need Redis 7: rights, and the length of an APPEND
//     where `proto-max-bulk-len` is not 512 MiB. Before, a list of commands
//     that the server refuses in the middle for that stays half done:
//     `damaged`.
//   - The marks live in one hash, `lastdoor:{name_space}:ledger`, without a
//     TTL. They are there together or not at all.
//   - F17: a server without the ledger is refused (`schema_mismatch`): it was
//     never set up, or it lost its data. So is the first write of a resource
//     to a key that exists already while the resource has no mark (`damaged`).
//
// There are two ways to write. `redis_commands` is a list of commands on keys
// of your own. A built `statement` (fencing/statement.hpp) writes rows that
// are hashes: update("stock").key("sku", 7) is about `{name_space}:stock:7`,
// fields are columns, and the field `fence_token` fences each row also against
// grants of other resources. Of several key columns the values follow in order
// of the columns' names. Every value is stored as text; what `returning` asks
// for comes back as an integer where the text is one.
//
// What it does not promise: a mark is as durable as the data. With
// `appendfsync everysec` a crash takes the last second of both; a failover
// takes what the replica had not got; a backup put back takes everything
// since. A paused holder from before then finds a mark that is too low until
// the next grant claims. Use `appendfsync always` where that matters, and
// `maxmemory-policy noeviction`. A TTL on a key is for the data alone.
//
// Connections: one for all threads. Nothing is sent before the first call.
// Thread safety: every member may be called from any thread.
// Fork: the parent's store is refused in the child (`misconfigured`); open a
// new one there.
// Errors, besides those of every store: `schema_mismatch` for a key of another
// type, `precondition_failed` for a sum beyond 2^53-1 in size, `misconfigured`
// for missing rights, `unavailable` while the server refuses writes (`backend`
// has its word). An unnumbered write whose answer is lost is `in_doubt`; a
// numbered one is sent again within the call.
//
// Example:
//
//   auto store = lastdoor::open_redis_store("redis://127.0.0.1").value();
//   lastdoor::gateway door{locks, store};
//   auto session = door.acquire("cart/7").value();
//   session.write(lastdoor::redis_commands{}
//                     .require("cart:7:state", lastdoor::equals("open"))
//                     .hash_set("cart:7", "sku-1001", 3)
//                     .add("cart:7:changes", 1));
//
// Keys that grants of several resources write, such as a total, are named by
// `shared`.
#pragma once

#include <lastdoor/redis_server.hpp>
#include <lastdoor/stores/store.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace lastdoor {

namespace detail {
struct redis_step {
  std::string verb;
  std::string key;
  std::vector<std::string> words;
};
}  // namespace detail

/// Commands that take effect together or not at all, in their order. All
/// conditions are looked at before the first command runs.
///
/// Keys are bytes, 1 to 1,024 of them, and do not begin with "lastdoor:"; the
/// field `fence_token` is lastdoor's own as well. On a cluster they must share
/// the slot of `{name_space}`. A list that makes no sense is refused with
/// `invalid_argument` by the store.
class redis_commands {
 public:
  /// The key must be absent or hold a string.
  redis_commands& set(std::string key, const value& v);
  /// The key must be absent or hold a hash; so for `hash_add`.
  redis_commands& hash_set(std::string key, std::string field, const value& v);
  /// Adds to a counter; one that is absent counts from 0. The answer is its
  /// new value. What is there must be a whole number, and neither it nor the
  /// sum may go beyond 2^53-1 either way. A list names a counter once.
  redis_commands& add(std::string key, std::int64_t n);
  redis_commands& hash_add(std::string key, std::string field, std::int64_t n);
  /// A key of any type. The answer is 1, or 0 when it was absent.
  redis_commands& erase(std::string key);

  /// One command by its words, e.g. {"RPUSH", "jobs", "7"}. It is one of
  ///   SET APPEND INCR DECR INCRBY DECRBY DEL, HSET HDEL HINCRBY,
  ///   LPUSH RPUSH LPOP RPOP, SADD SREM, ZADD ZREM, PEXPIRE PERSIST
  /// with one key, no options and at most 1,000 words. Others could fail half
  /// way, and Redis takes nothing back.
  redis_commands& command(std::vector<std::string> words);

  /// Says that grants of other resources write this key as well, so that it
  /// may be there before this resource has a mark.
  redis_commands& shared(std::string key);

  /// `precondition_failed` unless it holds before the write. `is_null` and
  /// `not_null` ask whether the key is there, the others compare its string:
  /// `equals` and `differs` as text, the rest as numbers.
  redis_commands& require(std::string key, const condition& c);
  /// The same for a field of a hash.
  redis_commands& require_field(std::string key, std::string field,
                                const condition& c);

  [[nodiscard]] const std::vector<detail::redis_step>& steps() const noexcept {
    return steps_;
  }
  /// Why this list makes no sense; empty when it does.
  [[nodiscard]] const std::string& fault() const noexcept { return fault_; }

 private:
  redis_commands& step(std::string verb, std::string key,
                       std::vector<std::string> words);
  redis_commands& refuse(std::string why);

  std::vector<detail::redis_step> steps_;
  std::string fault_;
};

struct redis_store_options {
  /// Separates ledgers and rows. 1 to 100 printable ASCII characters, no
  /// blanks, no braces.
  std::string name_space{"default"};
  /// Lets a resource without a mark write to keys that exist already: for
  /// data from before lastdoor. Not for every day, as a lost mark looks the
  /// same.
  bool adopt_existing{false};
  /// The limit of one call, and of making a connection.
  duration call_timeout{std::chrono::seconds{1}};
  redis_tls_options tls{};
  std::shared_ptr<clock> time = boot_clock();
};

class redis_store final : public store {
 public:
  redis_store(redis_store&&) noexcept;
  redis_store& operator=(redis_store&&) noexcept;
  ~redis_store() override;

  [[nodiscard]] result<void> claim(const grant& g) override;

  /// Rows by key only: `every_row()` is `invalid_argument`, so are sums of
  /// numbers that are not whole and comparisons of texts by order. `set` to
  /// NULL removes the field.
  [[nodiscard]] result<receipt> write(const grant& g, const statement& s,
                                      const write_options& o = {}) override;

  /// The receipt counts the commands and has one row of one value, the
  /// server's answer, for each.
  [[nodiscard]] result<receipt> write(const grant& g, const redis_commands& c,
                                      const write_options& o = {});

  [[nodiscard]] result<mark> read_mark(const resource_name& r) override;
  /// Walks the whole ledger for each page.
  [[nodiscard]] result<std::vector<mark_status>> list_marks(
      std::string_view after, std::size_t limit) override;
  [[nodiscard]] result<mark> highest_mark() override;
  [[nodiscard]] result<std::int64_t> hand_over(const source_name& from,
                                               const source_name& to) override;

  /// Runs `f(redis_commands&)`, which fills the list, then writes it. `f` may
  /// return nothing, a value, or a result; after an error result or an
  /// exception nothing is sent. Answers of commands are for `write`.
  template <class F>
  [[nodiscard]] auto transaction(const grant& g, F&& f,
                                 const write_options& o = {});

  class impl;  // src/stores only
  explicit redis_store(std::unique_ptr<impl> i) noexcept;

 private:
  std::unique_ptr<impl> impl_;
};

/// For URLs see redis_server.hpp. `invalid_argument` for a bad URL or option,
/// `misconfigured` for TLS that cannot be had. Sends nothing: what the server
/// is like is for the first call to find out.
[[nodiscard]] result<redis_store> open_redis_store(
    std::string_view url, redis_store_options options = {});

/// Sets a server up: makes the ledger. Once for each name space, by hand and
/// not at every start: a server that lost its data would be taken for a new
/// one. True when it was made, false when it was there.
[[nodiscard]] result<bool> create_redis_ledger(
    std::string_view url, const redis_store_options& options = {});

template <class F>
auto redis_store::transaction(const grant& g, F&& f, const write_options& o) {
  using raw = std::invoke_result_t<F&, redis_commands&>;
  using answer = lift_t<raw>;
  redis_commands commands;
  std::optional<answer> kept;
  if constexpr (std::is_void_v<raw>) {
    f(commands);
    kept.emplace();
  } else {
    kept.emplace(f(commands));
    if (!*kept)
      return std::move(*kept);
  }
  if (auto done = write(g, commands, o); !done)
    return answer{done.error()};
  return std::move(*kept);
}

}  // namespace lastdoor
