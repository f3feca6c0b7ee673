// drivers/sqlite.hpp: a thin, safe layer over SQLite's C interface.
//
// Everything that depends on the SQLite at hand lives here; locks and stores
// speak to it only through these types. Nothing here knows about fences.
//
// Thread safety: a connection and its statements belong to one thread at a
// time; the owner serialises.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <functional>
#include <lastdoor/clock.hpp>
#include <lastdoor/errors.hpp>
#include <lastdoor/fencing/value.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>

namespace lastdoor::sqlite_driver {

// The error for what SQLite said of `db` just now. `doing` starts the text:
// "acquiring the lease". Busy, locked, full and out of memory are
// `unavailable`; rights and wrong files `misconfigured`; corruption
// `damaged`; a missing table or column `schema_mismatch`.
[[nodiscard]] error translate(sqlite3* db, int rc, std::string_view doing);

// What is said of a file for which `connection::moved` is true.
inline constexpr const char* moved_text =
    "the file was deleted, renamed or replaced while it was open; others may "
    "be using another one";

// One prepared statement. Binding is checked by `step`, so calls can be
// chained: s.bind(1, name).bind(2, 7).
class statement {
 public:
  statement() = default;
  explicit statement(sqlite3_stmt* s) noexcept : stmt_{s} {}

  statement& bind(int at, std::int64_t v) noexcept;
  statement& bind(int at, std::string_view text) noexcept;
  statement& bind(int at, const value& v) noexcept;
  // Without a copy: what is bound must stay where it is until `reset`.
  statement& bind_static(int at, std::string_view text) noexcept;
  statement& bind_static_value(int at, const value& v) noexcept;

  // What went wrong in binding since the last reset; SQLITE_OK if nothing.
  [[nodiscard]] int bind_error() const noexcept { return bind_rc_; }

  // True: a row is there. False: done.
  [[nodiscard]] result<bool> step(std::string_view doing);
  // Runs to the end; rows are dropped. Resets.
  [[nodiscard]] result<void> run(std::string_view doing);

  [[nodiscard]] std::int64_t integer(int column) const noexcept;
  [[nodiscard]] bool is_null(int column) const noexcept;
  [[nodiscard]] bool is_integer(int column) const noexcept;
  [[nodiscard]] std::string text(int column) const;
  // The text where SQLite keeps it, until the next step or reset.
  [[nodiscard]] std::string_view view(int column) const noexcept;
  [[nodiscard]] value any(int column) const;
  [[nodiscard]] int columns() const noexcept;
  // Rows changed by this statement itself (triggers not counted).
  [[nodiscard]] std::int64_t changes() const noexcept;

  // Ends the cursor and forgets the bindings. Never fails.
  void reset() noexcept;
  [[nodiscard]] sqlite3_stmt* raw() const noexcept { return stmt_.get(); }
  [[nodiscard]] explicit operator bool() const noexcept {
    return stmt_ != nullptr;
  }

 private:
  struct finalizer {
    void operator()(sqlite3_stmt* s) const noexcept { sqlite3_finalize(s); }
  };
  std::unique_ptr<sqlite3_stmt, finalizer> stmt_;
  int bind_rc_{SQLITE_OK};
};

// Resets the statement when the scope ends, so that no cursor stays open and
// holds a read transaction.
class scoped_reset {
 public:
  explicit scoped_reset(statement& s) noexcept : s_{s} {}
  ~scoped_reset() { s_.reset(); }
  scoped_reset(const scoped_reset&) = delete;
  scoped_reset& operator=(const scoped_reset&) = delete;

 private:
  statement& s_;
};

enum class open_mode : std::uint8_t { existing, create };

class open_file;

class connection {
 public:
  // Opens what check_database_path lets pass, turns extended result codes on,
  // sets WAL for a file that lastdoor creates and leaves others as they are.
  // `misconfigured` in a process that was forked while the file was open
  // here: see open_files.hpp.
  [[nodiscard]] static result<connection> open(const std::string& path,
                                               open_mode mode);
  // A database of nobody else's, gone when it is closed.
  [[nodiscard]] static result<connection> in_memory();
  // A view of a handle that somebody else owns and closes.
  [[nodiscard]] static connection borrow(sqlite3* db) noexcept;

  connection(connection&& other) noexcept;
  connection& operator=(connection&& other) noexcept;
  // Closes what `open` opened, except in a forked child: there it leaks.
  ~connection();

  [[nodiscard]] sqlite3* raw() const noexcept { return db_.get(); }

  // A statement that is kept and found again by its text.
  [[nodiscard]] result<statement*> cached(std::string_view sql,
                                          std::string_view doing);
  // A statement of its own.
  [[nodiscard]] result<statement> prepare(std::string_view sql,
                                          std::string_view doing);
  // One or more statements without parameters, rows dropped.
  [[nodiscard]] result<void> exec(const std::string& sql,
                                  std::string_view doing);

  // The same, and `after` runs after each statement. For a test that dies
  // there; a text of one statement costs nothing more than exec.
  [[nodiscard]] result<void> exec_each(std::string_view sql,
                                       std::string_view doing,
                                       const std::function<void()>& after);

  // How long SQLite waits for another writer. Looks again after short random
  // pauses, so that nobody starves and no turn is lost to a long nap.
  void busy_timeout(duration d) noexcept;
  [[nodiscard]] bool in_transaction() const noexcept;

  // True when the path no longer leads to the file that is open: somebody
  // deleted, renamed or replaced it, or pointed a link elsewhere, and others
  // use another one.
  [[nodiscard]] bool moved() const noexcept;

  // Gives the handle up without closing it: the only safe thing to do with a
  // connection that came through fork().
  void leak() noexcept;

 private:
  struct closer {
    bool owned;
    void operator()(sqlite3* db) const noexcept {
      if (owned)
        sqlite3_close_v2(db);
    }
  };
  struct text_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const noexcept {
      return std::hash<std::string_view>{}(s);
    }
  };
  struct patience {
    duration limit;
    std::chrono::steady_clock::time_point since;
  };
  using handle = std::unique_ptr<sqlite3, closer>;
  explicit connection(handle db) noexcept;
  static int wait_for_others(void* patience_of_ours, int count) noexcept;

  // In this order: statements go first, then the handle, then what it uses
  // and the note that the file is open.
  std::unique_ptr<open_file> file_;
  std::unique_ptr<patience> patience_;  // null: the handle is borrowed
  handle db_;
  std::unordered_map<std::string, statement, text_hash, std::equal_to<>> cache_;
};

// BEGIN IMMEDIATE ... COMMIT. Rolls back in the destructor unless committed.
class transaction {
 public:
  [[nodiscard]] static result<transaction> begin_immediate(
      connection& db, std::string_view doing);
  transaction(transaction&& other) noexcept
      : db_{std::exchange(other.db_, nullptr)} {}
  transaction& operator=(transaction&&) = delete;
  ~transaction() { rollback(); }

  // On failure nothing is committed (`unavailable` ...), or, when the disk
  // failed under the commit, it is not known: `in_doubt`.
  [[nodiscard]] result<void> commit(std::string_view doing);
  void rollback() noexcept;

 private:
  explicit transaction(connection& db) noexcept : db_{&db} {}
  connection* db_;
};

// SQL text of a quoted name: "a""b".
[[nodiscard]] std::string quoted_name(std::string_view name);

}  // namespace lastdoor::sqlite_driver
