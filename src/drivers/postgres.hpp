// drivers/postgres.hpp: a thin, bounded layer over libpq.
//
// libpq and not libpqxx, because no call of libpqxx can be given a time
// limit, and a lock service that hangs is worse than one that refuses. Where
// a user's own transaction type is the point, `pqxx_loan` lends the same
// connection to libpqxx.
//
// Invariants
//   - Each call returns by its deadline. After a time-out the statement is
//     canceled and the connection closed: the server may still grant what
//     nobody waits for, so the session must not live on.
//   - An error says whether the statement may have taken effect: `in_doubt`
//     only when a writing statement was sent and its answer did not come.
//   - An answer is given only after the server is ready for the next
//     statement, which is after the commit of an autocommit statement.
//   - No setting of a session that somebody else may use is changed.
//   - A connection that came through fork() is never used nor closed in the
//     protocol's way by the child.
//
// Thread safety: a connection belongs to one thread at a time; the owner
// serialises.
#pragma once

#include <libpq-fe.h>

#include <cstdint>
#include <functional>
#include <lastdoor/clock.hpp>
#include <lastdoor/errors.hpp>
#include <lastdoor/fencing/value.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

namespace lastdoor::postgres_driver {

// A checked URL or connection string. `shown` has no password and may be
// part of a message; `url` must not.
struct endpoint {
  std::string url;
  std::string shown;
};
[[nodiscard]] result<endpoint> parse_endpoint(const std::string& url);

// What the caller does about an SQLSTATE that came with a whole answer, that
// is, when the statement has certainly had no effect.
[[nodiscard]] errc code_of(std::string_view sqlstate) noexcept;

// The error for an answer of the server. `doing` starts the text: "acquiring
// the lease".
[[nodiscard]] error translate(const PGresult* answer, std::string_view doing);

// The parameters of one statement, in order, as text. A text that holds a
// NUL byte, which Postgres cannot store, spoils the whole list.
class arguments {
 public:
  arguments() = default;
  explicit arguments(std::size_t expected) { items_.reserve(expected); }

  arguments& add(std::int64_t v);
  arguments& add(std::string_view v);
  arguments& add(const char* v) { return add(std::string_view{v}); }
  arguments& add(const value& v);
  arguments& add_null();

  [[nodiscard]] bool spoiled() const noexcept { return spoiled_; }
  [[nodiscard]] int size() const noexcept {
    return static_cast<int>(items_.size());
  }
  // For libpq; valid until the next change.
  [[nodiscard]] std::vector<const char*> pointers() const;

 private:
  std::vector<std::optional<std::string>> items_;
  bool spoiled_{false};
};

// The rows of a statement that succeeded.
class answer {
 public:
  answer() = default;
  explicit answer(PGresult* r) noexcept : result_{r} {}

  [[nodiscard]] int rows() const noexcept { return PQntuples(result_.get()); }
  [[nodiscard]] bool empty() const noexcept { return rows() == 0; }
  [[nodiscard]] int columns() const noexcept {
    return PQnfields(result_.get());
  }
  [[nodiscard]] bool is_null(int row, int column) const noexcept {
    return PQgetisnull(result_.get(), row, column) != 0;
  }
  [[nodiscard]] std::string_view text(int row, int column) const noexcept;
  // 0 when it is no integer, which no token, count or time is mistaken for.
  [[nodiscard]] std::int64_t integer(int row, int column) const noexcept;
  [[nodiscard]] bool truth(int row, int column) const noexcept {
    return text(row, column) == "t";
  }
  // What was done, in the server's word: UPDATE, COMMIT, ROLLBACK, ...
  [[nodiscard]] std::string_view command() const noexcept {
    return PQcmdStatus(result_.get());
  }
  // Rows that the statement changed.
  [[nodiscard]] std::int64_t changes() const noexcept;
  [[nodiscard]] const PGresult* raw() const noexcept { return result_.get(); }

 private:
  struct clearer {
    void operator()(PGresult* r) const noexcept { PQclear(r); }
  };
  std::unique_ptr<PGresult, clearer> result_;
};

enum class effect : std::uint8_t { reads, writes };

// What takes back the effect of a statement, if it had any.
struct remedy {
  std::string_view sql;
  arguments with;
};

// One statement to run: what, why (for messages), whether a lost answer
// leaves a doubt, and until when. With a remedy, which is run behind it when
// the answer does not come in time.
struct call {
  std::string_view sql;
  std::string_view doing;
  effect does;
  time_point deadline;
  const remedy* undo{nullptr};
};

class connection;

// One statement among several that travel together.
struct pipelined {
  std::string_view sql;
  arguments with{};
};

struct open_options {
  std::shared_ptr<clock> time = boot_clock();
  // Looks at a new connection before anybody may use it.
  std::function<result<void>(connection&, time_point deadline)> greet{};
  // name, value: set for the session, unless a pooler shares it with others.
  std::vector<std::pair<std::string, std::string>> settings{};
};

class connection {
 public:
  // Connects, finds out whether a pooler stands between, applies settings.
  // `unavailable`, `misconfigured` (rights, no such database).
  [[nodiscard]] static result<connection> open(const endpoint& where,
                                               const open_options& options,
                                               time_point deadline);
  connection(connection&&) noexcept = default;
  connection& operator=(connection&&) noexcept = default;
  ~connection() = default;

  // Runs one statement with parameters and waits for its answer. Texts that
  // come back are prepared once per connection, except behind a pooler.
  [[nodiscard]] result<answer> run(const call& what,
                                   const arguments& with = {});
  // Runs one or more statements without parameters in one round trip and
  // answers the last. Outside a transaction they are one transaction.
  [[nodiscard]] result<answer> script(const call& what);

  // Runs several statements in one round trip. The answers come in the order
  // of the statements; once one fails the rest is not executed, and its error
  // is the answer. Their texts are prepared like those of `run`.
  [[nodiscard]] result<std::vector<answer>> together(
      std::span<const pipelined> all, const call& what);

  // Waits until a notification came, `deadline` passed, or `wake` (a file
  // descriptor, or -1) is readable. The payloads of what came.
  [[nodiscard]] result<std::vector<std::string>> notifications(
      time_point deadline, int wake);

  // True when another process sits between us and the server's session.
  [[nodiscard]] bool pooled() const noexcept { return pooled_; }
  // True when it can take a statement: open, ours, in no transaction.
  // Notices a connection that the server has closed in the meantime.
  [[nodiscard]] bool usable() noexcept;
  // The same without a look at the socket.
  [[nodiscard]] bool idle() const noexcept;
  // The server's process, or 0 behind a pooler.
  [[nodiscard]] int backend_pid() const noexcept;
  [[nodiscard]] const endpoint& where() const noexcept { return *where_; }

  // Cancels what runs, and closes. The cancellation is sent by a thread of
  // its own, since libpq's may block; nothing waits for it.
  void abandon() noexcept;

  // The handle, for what this layer does not offer. Null once closed.
  [[nodiscard]] PGconn* raw() const noexcept { return conn_.get(); }
  [[nodiscard]] const std::shared_ptr<clock>& time() const noexcept {
    return time_;
  }
  // A number that the owner keeps with the session; 0 at first.
  [[nodiscard]] std::int64_t& memo() noexcept { return memo_; }

 private:
  struct closer {
    unsigned opened_after;  // so many forks
    [[nodiscard]] bool elsewhere() const noexcept;
    void operator()(PGconn* c) const noexcept;
  };
  struct text_hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const noexcept {
      return std::hash<std::string_view>{}(s);
    }
  };
  using handle = std::unique_ptr<PGconn, closer>;
  using cache =
      std::unordered_map<std::string, std::string, text_hash, std::equal_to<>>;

  connection(handle conn, const endpoint& where, const open_options& options);

  [[nodiscard]] result<void> complete_connect(time_point deadline);
  [[nodiscard]] result<void> prepare_session(const open_options& options,
                                             time_point deadline);
  [[nodiscard]] result<answer> run_once(const call& what, const arguments& with,
                                        bool& prepared);
  [[nodiscard]] result<void> ready_to_send(const call& what);
  // The name of the prepared text; empty: run it unprepared.
  [[nodiscard]] result<std::string> prepared_name(const call& what);
  [[nodiscard]] result<answer> finish(bool sent, const call& what);
  [[nodiscard]] result<answer> receive(const call& what);
  [[nodiscard]] result<std::vector<answer>> receive_together(const call& what);
  // False: the deadline passed.
  [[nodiscard]] bool wait(short events, time_point deadline, int wake = -1);
  [[nodiscard]] error timed_out(const call& what);
  [[nodiscard]] error broken(const call& what, std::string_view state);

  handle conn_;
  std::shared_ptr<const endpoint> where_;
  std::shared_ptr<clock> time_;
  cache prepared_;
  int names_given_{0};
  std::int64_t memo_{0};
  bool pooled_{false};
};

// SQL text of a quoted name: "a""b".
[[nodiscard]] std::string quoted_name(std::string_view name);

}  // namespace lastdoor::postgres_driver
