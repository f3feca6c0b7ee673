// stores/postgres.hpp: fenced writes to a Postgres database.
//
// Invariants: see stores/store.hpp. Besides
//   - The mark's row stays locked until the commit, so the check and the
//     writes are one step for any SQL on any table.
//   - A built write of one row is one statement and one round trip, ledger
//     included. A claim travels together with BEGIN.
//   - A transaction is bounded by the lease: what is left of its validity
//     limits waits for locks and pauses between statements.
//   - 40001 and 40P01 are `unavailable`, never `stale_token`, and the other
//     way round: a refusal is read from a mark, not guessed.
//   - Guarded tables (lastdoor migrate add-fence --guard strict) see the
//     claim of the same transaction; nothing of it outlives the transaction.
//
// The database must hold lastdoor's tables: run `lastdoor migrate up` or
// `migrate_up()` once, and GRANT USAGE ON SCHEMA lastdoor to the role that
// writes. Nothing is created behind your back here.
//
// Thread safety: every member may be called from any thread; each call takes
// a connection of the store's own for its time.
// Fork: a child opens connections of its own; the parent's stay the parent's.
//
// Example (any SQL, run behind the claim):
//
//   auto store = lastdoor::open_postgres_store("postgresql:///shop").value();
//   store.transaction(grant, [&](pqxx::transaction_base& tx) {
//     orders.insert(tx, order);
//   });
#pragma once

#include <cstdint>
#include <functional>
#include <lastdoor/fencing/rule.hpp>
#include <lastdoor/stores/store.hpp>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace pqxx {
class transaction_base;
}

namespace lastdoor {

enum class isolation : std::uint8_t {
  read_committed,
  repeatable_read,
  serializable,
};

struct postgres_store_options {
  /// The per-resource ledger. Off: only the fence column of each row guards;
  /// no barrier, no erase, no transaction, no guarded tables.
  bool ledger{true};
  /// Default: many_per_grant with the ledger, once_per_grant without.
  std::optional<write_rule> rule{};
  /// The fence column of every table that is written by statement.
  std::string fence_column{"fence_token"};
  /// Of transactions. Built writes need no more than read_committed.
  lastdoor::isolation isolation{lastdoor::isolation::read_committed};
  /// Connections at most; opened when needed.
  std::size_t connections{4};
  /// How long to wait for a row that another transaction has locked, within
  /// the grant's validity. Must be below `call_timeout`. Behind a pooler it
  /// holds in transactions only.
  duration lock_timeout{std::chrono::seconds{5}};
  /// How long to wait for one answer of the server.
  duration call_timeout{std::chrono::seconds{10}};
  std::shared_ptr<clock> time = boot_clock();
};

class postgres_store final : public store {
 public:
  postgres_store(postgres_store&&) noexcept;
  postgres_store& operator=(postgres_store&&) noexcept;
  ~postgres_store() override;

  [[nodiscard]] result<void> claim(const grant& g) override;
  /// A write whose answer was lost is `in_doubt`, unless it carries a
  /// `sequence` or the rule is once_per_grant: then the store asks and tells.
  [[nodiscard]] result<receipt> write(const grant& g, const statement& s,
                                      const write_options& o = {}) override;
  [[nodiscard]] result<mark> read_mark(const resource_name& r) override;
  [[nodiscard]] result<std::vector<mark_status>> list_marks(
      std::string_view after, std::size_t limit) override;
  [[nodiscard]] result<mark> highest_mark() override;
  /// Needs the rights of the ledger's owner.
  [[nodiscard]] result<std::int64_t> hand_over(const source_name& from,
                                               const source_name& to) override;

  /// Runs `f(pqxx::transaction_base&)` in a transaction that has claimed the
  /// grant, then commits. `f` may run any SQL but must not end the
  /// transaction: `commit()` on the object does nothing, `abort()` makes the
  /// call fail, and the texts COMMIT and ROLLBACK are a mistake that is
  /// noticed afterwards. Savepoints are fine; for pqxx::subtransaction cast
  /// to pqxx::dbtransaction&.
  ///
  /// `f` may return nothing, a value, or a result. An error result or an
  /// exception rolls back; libpqxx's exceptions come out as errors (see
  /// errors.hpp; the SQLSTATE is in `backend()`), others pass through. `f` is
  /// never run a second time here. Before the commit the validity is looked
  /// at once more. If the answer to the commit is lost, the transaction's
  /// fate is asked of the server on a new connection; only if that fails too
  /// is the result `in_doubt`.
  ///
  /// `f` must not call back into this store: that would be another
  /// transaction.
  template <class F>
  [[nodiscard]] auto transaction(const grant& g, F&& f,
                                 const write_options& o = {});

  /// Claims inside a transaction that the caller has begun on a connection of
  /// the caller's. A refusal does not end it: roll it back. `unavailable`
  /// (40001, 40P01): repeat the whole transaction with the same grant. Until
  /// the transaction ends, lock_timeout and
  /// idle_in_transaction_session_timeout are no longer than the validity;
  /// afterwards all settings are as they were. A pqxx::nontransaction is
  /// refused, since a claim without a transaction holds nothing.
  [[nodiscard]] static result<void> claim_in(pqxx::transaction_base& tx,
                                             const grant& g);

  class impl;  // src/stores only
  explicit postgres_store(std::unique_ptr<impl> i) noexcept;

 private:
  // One claimed transaction, erased: `body` says whether to commit.
  [[nodiscard]] result<receipt> run(
      const grant& g, const write_options& o,
      const std::function<result<void>(pqxx::transaction_base&)>& body);

  std::unique_ptr<impl> impl_;
};

/// Connects once to see that all is there. `invalid_argument` for a malformed
/// URL or options, `unavailable`, `misconfigured` (rights), `schema_mismatch`
/// when lastdoor's tables are missing.
[[nodiscard]] result<postgres_store> open_postgres_store(
    const std::string& url, postgres_store_options options = {});

template <class F>
auto postgres_store::transaction(const grant& g, F&& f,
                                 const write_options& o) {
  using raw = std::invoke_result_t<F&, pqxx::transaction_base&>;
  using answer = lift_t<raw>;
  std::optional<answer> kept;
  auto done = run(g, o, [&](pqxx::transaction_base& tx) -> result<void> {
    if constexpr (std::is_void_v<raw>) {
      f(tx);
      kept.emplace();
    } else {
      kept.emplace(f(tx));
      if (!*kept) {
        return kept->error();
      }
    }
    return {};
  });
  if (!done) {
    return answer{done.error()};
  }
  if (!kept) {  // recognised by its sequence number: f was not called again
    if constexpr (std::is_void_v<raw>) {
      return answer{};
    } else {
      return answer{fail(errc::precondition_failed,
                         "this transaction was already applied; its result "
                         "is not kept")
                        .about(g.resource().str())
                        .presented(g.token().value())};
    }
  }
  return std::move(*kept);
}

}  // namespace lastdoor
