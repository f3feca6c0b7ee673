// stores/sqlite.hpp: fenced writes to an SQLite file.
//
// Invariants: see stores/store.hpp. Besides
//   - Fenced writes use BEGIN IMMEDIATE: a write that waits for another
//     writer waits, it does not fail half way.
//   - A busy file is `unavailable` for the whole transaction, never stale.
//   - Guarded tables (lastdoor migrate add-fence --guard strict) see the
//     token in `lastdoor_presented`, written and removed in the transaction.
//
// The file must hold lastdoor's tables: run `lastdoor migrate up` or
// `migrate_up()` once. They are never created behind your back here.
//
// Thread safety: every member may be called from any thread; the writers of
// one store queue for its one connection, as SQLite has one writer anyway.
// Fork: the parent's store is refused in the child. A new one can be opened
// there after exec(), or when the parent did not have the file open at the
// fork; else `misconfigured`, as SQLite itself would take no locks.
//
// Example (any SQL, run behind the claim):
//
//   auto store = lastdoor::open_sqlite_store("shop.db").value();
//   auto done = store.transaction(
//       grant, [&](sqlite3* db) { orders.insert(db, order); });
#pragma once

#include <functional>
#include <lastdoor/fencing/rule.hpp>
#include <lastdoor/stores/store.hpp>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

struct sqlite3;

namespace lastdoor {

struct sqlite_store_options {
  /// The per-resource ledger. Off: only the fence column of each row guards;
  /// no barrier, no erase, no transaction.
  bool ledger{true};
  /// Default: many_per_grant with the ledger, once_per_grant without.
  std::optional<write_rule> rule{};
  /// The fence column of every table that is written by statement.
  std::string fence_column{"fence_token"};
  /// How long to wait for another writer, within the grant's validity.
  duration busy_timeout{std::chrono::seconds{5}};
  std::shared_ptr<clock> time = boot_clock();
  /// Called once with the store's connection: the place for PRAGMAs that last
  /// (foreign_keys, synchronous, ...), functions and collations. Default: as
  /// SQLite opens it. Not for callbacks that the store needs itself: the
  /// authorizer, the commit hook, the busy handler.
  std::function<result<void>(sqlite3*)> on_open{};
};

class sqlite_store final : public store {
 public:
  sqlite_store(sqlite_store&&) noexcept;
  sqlite_store& operator=(sqlite_store&&) noexcept;
  ~sqlite_store() override;

  [[nodiscard]] result<void> claim(const grant& g) override;
  [[nodiscard]] result<receipt> write(const grant& g, const statement& s,
                                      const write_options& o = {}) override;
  [[nodiscard]] result<mark> read_mark(const resource_name& r) override;
  [[nodiscard]] result<std::vector<mark_status>> list_marks(
      std::string_view after, std::size_t limit) override;
  [[nodiscard]] result<mark> highest_mark() override;
  [[nodiscard]] result<std::int64_t> hand_over(const source_name& from,
                                               const source_name& to) override;

  /// Runs `f(sqlite3*)` in a transaction that has claimed the grant, then
  /// commits. `f` may run any SQL; COMMIT, ROLLBACK and BEGIN are refused to
  /// it (savepoints are fine). It may return nothing, a value, or a result;
  /// an error result or an exception rolls back, the exception passes
  /// through. Before the commit the validity is looked at once more. `f` must
  /// not call back into this store.
  template <class F>
  [[nodiscard]] auto transaction(const grant& g, F&& f,
                                 const write_options& o = {});

  /// Claims inside a transaction that the caller has begun on a connection of
  /// the caller's (best: BEGIN IMMEDIATE). Call `finish` before COMMIT; with
  /// guarded tables the token stays presented until then. A deferred
  /// transaction that has read before may have to be repeated from the start:
  /// `unavailable` says so.
  [[nodiscard]] static result<void> claim_in(sqlite3* db, const grant& g);
  [[nodiscard]] static result<void> finish_in(sqlite3* db, const grant& g);

  class impl;  // src/stores only
  explicit sqlite_store(std::unique_ptr<impl> i) noexcept;

 private:
  // One claimed transaction, erased: `body` says whether to commit.
  [[nodiscard]] result<receipt> run(
      const grant& g, const write_options& o,
      const std::function<result<void>(sqlite3*)>& body);

  std::unique_ptr<impl> impl_;
};

/// Opens an existing file. `misconfigured` when it is absent, no database or
/// read-only, or lies on a network file system; `schema_mismatch` when
/// lastdoor's tables are missing or too new; `damaged` when it is corrupt.
[[nodiscard]] result<sqlite_store> open_sqlite_store(
    const std::string& path, sqlite_store_options options = {});

template <class F>
auto sqlite_store::transaction(const grant& g, F&& f, const write_options& o) {
  using raw = std::invoke_result_t<F&, sqlite3*>;
  using answer = lift_t<raw>;
  std::optional<answer> kept;
  auto done = run(g, o, [&](sqlite3* db) -> result<void> {
    if constexpr (std::is_void_v<raw>) {
      f(db);
      kept.emplace();
    } else {
      kept.emplace(f(db));
      if (!*kept)
        return kept->error();
    }
    return {};
  });
  if (!done)
    return answer{done.error()};
  if (!kept) {  // recognised by its sequence number: f was not called again
    if constexpr (std::is_void_v<raw>)
      return answer{};
    return answer{fail(errc::precondition_failed,
                       "this transaction was already applied; its result is "
                       "not kept")
                      .about(g.resource().str())
                      .presented(g.token().value())};
  }
  return std::move(*kept);
}

}  // namespace lastdoor
