// postgres_store_impl.hpp: the Postgres store behind its pimpl.
//
// How a built write runs
//   fast: one autocommit statement that locks the ledger's row, carries the
//     fence as a condition and leaves evidence for guards. One row changed:
//     applied, nothing else to do. If none was, one look at the ledger and
//     the row says why.
//   slow: BEGIN with the claim in one message, the statement, COMMIT. For the
//     first write of a grant without a barrier, for several rows, and for
//     numbered writes.
//
// Invariants
//   - A statement that is not applied has changed nothing, and neither has a
//     stale one raised the mark.
//   - Nothing whose commit may have happened is run again.
//   - 40001 and 40P01 rolled everything back: a built write tries again a few
//     times, a caller's function never runs twice.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <lastdoor/stores/postgres.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "drivers/postgres.hpp"
#include "drivers/postgres_pool.hpp"
#include "fencing/render.hpp"
#include "stores/postgres_ledger.hpp"

namespace lastdoor {

namespace postgres {

// The text of a statement with the places of its values.
struct text_and_slots {
  std::string sql;
  std::vector<fencing::slot> slots;
};

// All that depends on a statement's names and not on its values. Shared by
// threads; never changed once it is made.
struct write_shape {
  explicit write_shape(statement s) : like{std::move(s)} {}
  statement like;
  std::string schema;
  // The database keeps the key unique, so one row is all it can mean.
  bool one_row{false};
  std::size_t list{0};                // which of the matches has several values
  bool list_is_unique{false};         // and then each names one row at most
  bool evidence{false};               // `alone` leaves what guards ask for
  std::vector<std::string> identity;  // columns that name a row in a message
  text_and_slots alone;               // carries the ledger condition
  text_and_slots inside;              // for a transaction that has claimed
  text_and_slots probe;               // the rows as they are; identity added
  text_and_slots locking_probe;       // the same, locked until the end
  text_and_slots verdict;  // ledger's row and first row, in one answer
};
using shape_ptr = std::shared_ptr<const write_shape>;

}  // namespace postgres

class postgres_store::impl {
 public:
  static result<std::unique_ptr<impl>> open(const std::string& url,
                                            postgres_store_options options);

  result<void> claim(const grant& g);
  result<receipt> write(const grant& g, const statement& s,
                        const write_options& o);
  result<receipt> run(
      const grant& g, const write_options& o,
      const std::function<result<void>(pqxx::transaction_base&)>& body);
  result<mark> read_mark(const resource_name& r);
  result<std::vector<mark_status>> list_marks(std::string_view after,
                                              std::size_t limit);
  result<mark> highest_mark();
  result<std::int64_t> hand_over(const source_name& from,
                                 const source_name& to);

 private:
  using connection = postgres_driver::connection;
  using answer = postgres_driver::answer;
  // A built write. Nothing: not settled this way, do it the slow way.
  struct attempt {
    std::optional<result<receipt>> settled;
  };
  struct survey;  // what a look at all rows of a statement found
  class unit;     // one claimed transaction on a connection of the pool

  impl(postgres_driver::endpoint where, postgres_store_options options);

  // postgres_store.cpp
  [[nodiscard]] result<void> check_ledger();
  [[nodiscard]] result<void> need_ledger(std::string_view verb) const;
  [[nodiscard]] result<void> still_valid(const grant& g) const;
  [[nodiscard]] time_point deadline() const;
  [[nodiscard]] result<answer> ask(std::string_view sql, std::string_view doing,
                                   const postgres_driver::arguments& with = {});

  // postgres_commit.cpp
  // False: the transaction has to say its limits itself.
  [[nodiscard]] result<bool> bound_session(connection& db,
                                           std::optional<std::int64_t> left_ms);
  [[nodiscard]] error told_by_guard(error e);
  enum class fate : std::uint8_t { applied, not_applied, unknown };
  [[nodiscard]] fate ask_fate(const postgres::claimed& c);
  [[nodiscard]] fate ask_ledger(const grant& g, std::int64_t sequence);
  [[nodiscard]] result<receipt> settle(error why, const grant& g,
                                       const postgres::claimed& c,
                                       std::optional<std::int64_t> sequence,
                                       receipt r);
  [[nodiscard]] result<void> call(
      unit& tx, const grant& g,
      const std::function<result<void>(pqxx::transaction_base&)>& body);

  // postgres_shapes.cpp
  [[nodiscard]] result<postgres::shape_ptr> shape_for(const statement& s);
  [[nodiscard]] result<postgres::shape_ptr> make_shape(const statement& s);
  void forget_shape(const statement& s);
  [[nodiscard]] fencing::render_options rendering(bool with_ledger) const;
  [[nodiscard]] bool again_with_evidence(const statement& s, const error& e);

  // postgres_write.cpp
  [[nodiscard]] attempt write_fast(const grant& g, const statement& s,
                                   const postgres::write_shape& shape);
  [[nodiscard]] attempt why_not(connection& db, const grant& g,
                                const statement& s,
                                const postgres::write_shape& shape,
                                const std::optional<error>& failed);
  [[nodiscard]] attempt after_lost_answer(const grant& g, const statement& s,
                                          const postgres::write_shape& shape,
                                          error why);
  [[nodiscard]] result<receipt> write_once(const grant& g, const statement& s,
                                           const write_options& o,
                                           const postgres::shape_ptr& shape);

  // postgres_slow_write.cpp
  [[nodiscard]] result<receipt> write_slow(const grant& g, const statement& s,
                                           const write_options& o,
                                           const postgres::write_shape& shape);
  [[nodiscard]] result<receipt> execute_one(unit& tx, const grant& g,
                                            const statement& s,
                                            const postgres::write_shape& shape);
  [[nodiscard]] result<receipt> execute_many(
      unit& tx, const grant& g, const statement& s,
      const postgres::write_shape& shape);
  [[nodiscard]] result<receipt> classify(unit& tx, const grant& g,
                                         const statement& s,
                                         const postgres::write_shape& shape);
  [[nodiscard]] result<survey> look_at_all(unit& tx, const grant& g,
                                           const statement& s,
                                           const postgres::write_shape& shape);
  [[nodiscard]] result<void> find_every_value(
      unit& tx, const grant& g, const statement& s,
      const postgres::write_shape& shape);
  [[nodiscard]] result<receipt> explain(const grant& g, const statement& s,
                                        const postgres::write_shape& shape,
                                        bool raised, error why);

  const postgres_store_options options_;
  const write_rule rule_;
  postgres_driver::pool pool_;
  // Some table of the database has a guard. It may be reached by a cascade or
  // a trigger from any other, so every write leaves evidence then.
  std::atomic<bool> guards_{false};

  std::mutex mutex_;
  std::unordered_map<std::size_t, postgres::shape_ptr> shapes_;
};

// A claimed transaction: rolled back at the end of its scope unless it was
// committed.
class postgres_store::impl::unit {
 public:
  // BEGIN and, with the ledger, the claim in one message. On refusal nothing
  // is left open.
  [[nodiscard]] static result<unit> begin(impl& of, const grant& g,
                                          const write_options& o,
                                          isolation level);
  unit(unit&& other) noexcept
      : of_{other.of_},
        loan_{std::exchange(other.loan_, std::nullopt)},
        claim_{std::move(other.claim_)},
        open_{std::exchange(other.open_, false)} {}
  unit& operator=(unit&&) = delete;
  ~unit();

  [[nodiscard]] const postgres::claimed& claim() const noexcept {
    return claim_;
  }
  [[nodiscard]] connection& db() noexcept { return **loan_; }
  [[nodiscard]] result<answer> query(const postgres::text_and_slots& what,
                                     std::string_view doing, const grant& g,
                                     const statement& s);
  // Looks at the validity once more, then commits. After `in_doubt` the
  // connection is closed.
  [[nodiscard]] result<void> commit(const grant& g);
  void roll_back() noexcept;

 private:
  unit(impl& of, postgres_driver::pool::loan loan) noexcept
      : of_{&of}, loan_{std::move(loan)} {}
  [[nodiscard]] result<bool> hold(const grant& g, isolation level);
  [[nodiscard]] result<void> claim_in_full(const grant& g,
                                           const write_options& o,
                                           isolation level);

  impl* of_;
  std::optional<postgres_driver::pool::loan> loan_;
  postgres::claimed claim_;
  bool open_{false};
};

namespace postgres {

// The values of a statement in the order of its text's placeholders.
[[nodiscard]] postgres_driver::arguments bind(const text_and_slots& text,
                                              const grant& g,
                                              const statement& s);
// One value of an answer, by the type that the server names.
[[nodiscard]] value value_at(const postgres_driver::answer& rows, int row,
                             int column);
[[nodiscard]] std::vector<row> returned_rows(
    const postgres_driver::answer& rows);

}  // namespace postgres
}  // namespace lastdoor
