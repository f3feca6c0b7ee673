// sqlite_store_impl.hpp: the SQLite store behind its pimpl.
//
// Invariants
//   - One connection, one call at a time; a call from inside a caller's own
//     function is refused instead of waiting for itself.
//   - What may be prepared and committed depends on who is speaking: the
//     store, or the caller's function. See sqlite_authorize.cpp.
//   - A statement that is not applied has changed nothing, and neither has a
//     stale one raised the mark.
//
// How a built write runs
//   fast: one autocommit statement that carries the fence and the ledger's
//     row as conditions. One row changed: applied, nothing else to do.
//   slow: BEGIN IMMEDIATE, claim, statement, and if it changed nothing, a
//     look at the row to say why. For whatever the fast way did not settle,
//     for several rows, numbered writes, and tables with triggers.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <lastdoor/stores/sqlite.hpp>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "drivers/sqlite.hpp"
#include "fencing/render.hpp"
#include "stores/sqlite_ledger.hpp"

namespace lastdoor {

namespace sqlite {

// Where a test may lose the answer to a commit: before it took effect, or
// after. The hook says whether to.
enum class fault_point : std::uint8_t { before_commit, after_commit };
using fault_hook = std::function<bool(fault_point)>;

// A statement of the store with the places of its values.
struct prepared_write {
  sqlite_driver::statement stmt;
  std::vector<fencing::slot> slots;
  // The grant whose words are bound, kept alive so that they can stay bound:
  // most writes come under the grant of the write before.
  std::optional<grant> bound;
};

// Binds for the time of one step. Nothing is copied: the values must outlive
// this object, and none of them stays bound after it.
class bound_values {
 public:
  bound_values(prepared_write& w, const grant& g, const lastdoor::statement& s);
  ~bound_values();
  bound_values(const bound_values&) = delete;
  bound_values& operator=(const bound_values&) = delete;

 private:
  prepared_write& w_;
  const lastdoor::statement& s_;
};

// All that depends on a statement's names and not on its values.
struct write_shape {
  explicit write_shape(lastdoor::statement s) : like{std::move(s)} {}
  lastdoor::statement like;
  // The database keeps the key unique, so one row is all it can mean.
  bool one_row{false};
  // One row, no triggers: one statement can settle it.
  bool fast{false};
  // One list of values, and each value can name one row at most.
  bool list_is_unique{false};
  std::size_t list{0};
  std::vector<std::string> identity;  // columns that name a row in a message
  prepared_write alone;               // carries the ledger condition
  prepared_write inside;              // for a transaction that has claimed
  prepared_write probe;
};

}  // namespace sqlite

class sqlite_store::impl {
 public:
  static result<std::unique_ptr<impl>> open(const std::string& path,
                                            sqlite_store_options options);
  ~impl();
  impl(const impl&) = delete;
  impl& operator=(const impl&) = delete;

  result<void> claim(const grant& g);
  result<receipt> write(const grant& g, const statement& s,
                        const write_options& o);
  result<receipt> run(const grant& g, const write_options& o,
                      const std::function<result<void>(sqlite3*)>& body);
  result<mark> read_mark(const resource_name& r);
  result<std::vector<mark_status>> list_marks(std::string_view after,
                                              std::size_t limit);
  result<mark> highest_mark();
  result<std::int64_t> hand_over(const source_name& from,
                                 const source_name& to);

  sqlite::fault_hook faults;  // for tests

 private:
  using transaction = sqlite_driver::transaction;
  enum class speaker : std::uint8_t {
    nobody,  // between calls
    store,
    fast,  // the store, in a statement that must not be prepared anew
    caller,
  };
  class turn;          // one call's hold on the store
  class caller_scope;  // while the caller's function runs
  struct attempt;      // how the statement of a slow write went
  struct survey;

  impl(std::string path, sqlite_store_options options,
       sqlite_driver::connection db);

  // sqlite_store.cpp
  [[nodiscard]] result<void> prepare_connection();
  [[nodiscard]] result<void> need_ledger(std::string_view verb) const;
  [[nodiscard]] result<void> ready_for(const grant& g);
  [[nodiscard]] result<void> still_valid(const grant& g) const;
  void wait_at_most(duration d) noexcept;

  // sqlite_commit.cpp
  [[nodiscard]] result<void> commit(transaction& tx, const grant& g);
  enum class fate : std::uint8_t { applied, not_applied, unknown };
  [[nodiscard]] result<fate> ask_fate(const grant& g, std::int64_t sequence);
  [[nodiscard]] result<receipt> settle(error why, const grant& g,
                                       std::optional<std::int64_t> sequence,
                                       receipt r);
  [[nodiscard]] result<receipt> finish(transaction& tx, const grant& g,
                                       const write_options& o, bool presented,
                                       receipt r);
  [[nodiscard]] result<void> call(
      const std::function<result<void>(sqlite3*)>& body, const grant& g);
  void close_cursors() noexcept;
  [[nodiscard]] bool take_back_leftovers() noexcept;
  [[nodiscard]] bool file_is_gone() noexcept;

  // sqlite_authorize.cpp
  void install_hooks() noexcept;
  static int authorize(void* self, int action, const char* a, const char* b,
                       const char* schema, const char* trigger) noexcept;
  static int may_commit(void* self) noexcept;
  static void note_rollback(void* self) noexcept;

  // sqlite_write.cpp
  [[nodiscard]] result<sqlite::write_shape*> shape_for(const statement& s);
  [[nodiscard]] result<std::unique_ptr<sqlite::write_shape>> make_shape(
      const statement& s);
  void forget_shapes() noexcept;
  [[nodiscard]] fencing::render_options rendering(bool with_ledger) const;
  [[nodiscard]] result<void> prepare(sqlite::prepared_write& into,
                                     fencing::rendered text);
  [[nodiscard]] std::optional<result<receipt>> write_fast(
      const grant& g, const statement& s, sqlite::write_shape& shape);

  // sqlite_slow_write.cpp
  [[nodiscard]] result<receipt> write_slow(const grant& g, const statement& s,
                                           const write_options& o);
  [[nodiscard]] attempt execute_one(const grant& g, const statement& s,
                                    sqlite::write_shape& shape);
  [[nodiscard]] attempt execute_many(const grant& g, const statement& s,
                                     sqlite::write_shape& shape);
  [[nodiscard]] result<receipt> step_inside(const grant& g, const statement& s,
                                            sqlite::write_shape& shape);
  [[nodiscard]] result<receipt> classify(const grant& g, const statement& s,
                                         sqlite::write_shape& shape);
  [[nodiscard]] result<void> find_every_value(const grant& g,
                                              const statement& s);
  [[nodiscard]] result<receipt> explain(const grant& g, const statement& s,
                                        sqlite::write_shape& shape, error why);
  [[nodiscard]] result<survey> look_at_all(const grant& g, const statement& s,
                                           sqlite::write_shape& shape);

  // Statements refer to the connection, so it is destroyed after them.
  std::string path_;
  sqlite_store_options options_;
  write_rule rule_;
  sqlite_driver::connection db_;
  sqlite::ledger ledger_;
  std::unordered_map<std::size_t, std::unique_ptr<sqlite::write_shape>> shapes_;
  sqlite::write_shape* last_shape_{nullptr};

  std::mutex mutex_;
  std::atomic<std::thread::id> inside_{};
  unsigned forks_;
  speaker speaker_{speaker::nobody};
  bool saw_trigger_{false};
  bool rolled_back_{false};  // since the caller's function began
  // What the shapes say may be out of date; they go after this call.
  bool schema_moved_{false};
  duration waits_{-1};
  // How often a busy store looks whether its name still leads to its file.
  static constexpr duration look_pause = std::chrono::milliseconds{10};
  time_point look_again_at_{};
};

// Holds the store for one call, or says why it cannot.
class sqlite_store::impl::turn {
 public:
  explicit turn(impl& of);
  ~turn();
  turn(const turn&) = delete;
  turn& operator=(const turn&) = delete;
  [[nodiscard]] const std::optional<error>& refused() const noexcept {
    return refused_;
  }

 private:
  impl& of_;
  bool holds_{false};
  std::optional<error> refused_;
};

}  // namespace lastdoor
