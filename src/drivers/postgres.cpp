#include "drivers/postgres.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>

#include "drivers/background_thread.hpp"
#include "drivers/forks.hpp"
#include "drivers/postgres_undertaker.hpp"

namespace lastdoor::postgres_driver {

namespace {

using namespace std::chrono_literals;

// Texts prepared per connection; further ones run unprepared. Bounds the
// memory of a program that builds ever new statements.
constexpr std::size_t prepared_max = 256;

// Cancellations under way. More are not started: the server ends the
// statement by its own time limit then.
constexpr int cancels_max = 4;

void cancel_in_background(PGconn* conn) noexcept {
  static std::atomic<int> under_way{0};
  PGcancel* request = PQgetCancel(conn);
  if (request == nullptr) {
    return;
  }
  const auto send = [request]() noexcept {
    std::array<char, 256> ignored{};
    PQcancel(request, ignored.data(), static_cast<int>(ignored.size()));
    PQfreeCancel(request);
    --under_way;
  };
  if (++under_way <= cancels_max) {
    try {
      background_thread(send).detach();
      return;
    } catch (const std::system_error&) {
      // No thread to be had: go without.
    }
  }
  PQfreeCancel(request);
  --under_way;
}

// libpq's message on one line.
std::string last_words(PGconn* conn) {
  std::string text;
  for (const char* c = PQerrorMessage(conn); *c != '\0'; ++c) {
    const bool blank = *c == '\n' || *c == '\t' || *c == ' ';
    if (!blank) {
      text += *c;
    } else if (!text.empty() && text.back() != ' ') {
      text += ' ';
    }
  }
  if (!text.empty() && text.back() == ' ') {
    text.pop_back();
  }
  return text;
}

// libpq keeps no SQLSTATE of a refused connection. Where the words are not
// known, in another language say, the caller may try again for nothing.
bool refused_for_good(PGconn* conn, std::string_view text) noexcept {
  constexpr std::array known{
      std::string_view{"authentication failed"},
      std::string_view{"does not exist"},
      std::string_view{"no pg_hba.conf entry"},
      std::string_view{"permission denied for database"},
  };
  return PQconnectionNeedsPassword(conn) != 0 ||
         std::any_of(known.begin(), known.end(), [&](std::string_view words) {
           return text.find(words) != std::string_view::npos;
         });
}

// The session ended while it was idle, so before our statement.
bool ended_while_idle(std::string_view sqlstate) noexcept {
  return sqlstate == "25P03" || sqlstate == "57P05";
}

}  // namespace

bool connection::closer::elsewhere() const noexcept {
  return forks() != opened_after;
}

void connection::closer::operator()(PGconn* c) const noexcept {
  if (elsewhere()) {
    // In a child: anything that libpq sends would end the parent's session,
    // so our copy of the socket is closed and the rest is left.
    ::close(PQsocket(c));
    return;
  }
  PQfinish(c);
}

connection::connection(handle conn, const endpoint& where,
                       const open_options& options)
    : conn_{std::move(conn)},
      where_{std::make_shared<const endpoint>(where)},
      time_{options.time} {}

result<connection> connection::open(const endpoint& where,
                                    const open_options& options,
                                    time_point deadline) {
  // What stands before the URL is a default, what stands after it is not
  // for the URL to change. The time-out on unanswered data also bounds the
  // connection to a host that is gone.
  const auto limit = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - options.time->now());
  const auto user_timeout = std::to_string(std::max(limit, 1000ms).count());
  const std::array keywords{
      "fallback_application_name", "keepalives_idle",
      "keepalives_interval",       "keepalives_count",
      "tcp_user_timeout",          "dbname",
      "client_encoding",           static_cast<const char*>(nullptr)};
  const std::array values{"lastdoor",
                          "5",
                          "2",
                          "3",
                          user_timeout.c_str(),
                          where.url.c_str(),
                          "UTF8",
                          static_cast<const char*>(nullptr)};
  handle raw{PQconnectStartParams(keywords.data(), values.data(), 1),
             closer{forks()}};
  if (raw == nullptr) {
    return fail(errc::unavailable, "out of memory for a connection");
  }
  PQsetNoticeProcessor(
      raw.get(), [](void*, const char*) {}, nullptr);
  connection fresh{std::move(raw), where, options};
  if (auto ok = fresh.complete_connect(deadline); !ok) {
    return ok.error();
  }
  if (auto ok = fresh.prepare_session(options, deadline); !ok) {
    return ok.error();
  }
  if (options.greet) {
    if (auto ok = options.greet(fresh, deadline); !ok) {
      return ok.error();
    }
  }
  return fresh;
}

result<void> connection::complete_connect(time_point deadline) {
  PGconn* const conn = conn_.get();
  auto next = PQstatus(conn) == CONNECTION_BAD ? PGRES_POLLING_FAILED
                                               : PGRES_POLLING_WRITING;
  while (next != PGRES_POLLING_OK) {
    if (next == PGRES_POLLING_FAILED) {
      const auto text = last_words(conn);  // names no password
      const auto code = refused_for_good(conn, text) ? errc::misconfigured
                                                     : errc::unavailable;
      return fail(code,
                  fmt::format("connecting to {}: {}", where_->shown, text));
    }
    const short events = next == PGRES_POLLING_READING ? POLLIN : POLLOUT;
    if (!wait(events, deadline)) {
      return fail(
          errc::unavailable,
          fmt::format("connecting to {}: no answer in time", where_->shown));
    }
    next = PQconnectPoll(conn);
  }
  PQsetnonblocking(conn, 1);
  return {};
}

result<void> connection::prepare_session(const open_options& options,
                                         time_point deadline) {
  // A pooler shows its clients a process number of its own. One round trip
  // finds out and, on a session that is ours alone, applies the settings.
  pooled_ = true;  // until known: prepare nothing
  arguments with;
  with.add(std::int64_t{PQbackendPID(conn_.get())});
  std::string sql = "SELECT pg_backend_pid() = $1::bigint";
  int at = 1;
  for (const auto& [name, setting] : options.settings) {
    sql += fmt::format(
        ", CASE WHEN pg_backend_pid() = $1::bigint "
        "THEN set_config(${}::text, ${}::text, false) END",
        at + 1, at + 2);
    at += 2;
    with.add(std::string_view{name}).add(std::string_view{setting});
  }
  const auto told =
      run({sql, "opening a session", effect::reads, deadline}, with);
  if (!told) {
    return told.error();
  }
  pooled_ = told->rows() != 1 || !told->truth(0, 0);
  return {};
}

result<answer> connection::run(const call& what, const arguments& with) {
  if (with.spoiled()) {
    return fail(errc::invalid_argument,
                fmt::format("{}: a text holds a NUL byte, which Postgres "
                            "cannot store",
                            what.doing));
  }
  bool prepared = false;
  auto first = run_once(what, with, prepared);
  if (first || !prepared || PQtransactionStatus(raw()) != PQTRANS_IDLE) {
    return first;
  }
  // The session is not the one that prepared the text (a pooler that hides
  // well, DISCARD ALL), or a table has changed since. Nothing was executed.
  const auto& state = first.error().backend();
  if (state == "26000" || state == "42P05") {
    pooled_ = true;
  } else if (state != "0A000") {
    return first;
  }
  prepared_.erase(std::string{what.sql});
  return run_once(what, with, prepared);
}

result<answer> connection::run_once(const call& what, const arguments& with,
                                    bool& prepared) {
  if (auto ok = ready_to_send(what); !ok) {
    return ok.error();
  }
  auto name = prepared_name(what);
  prepared = !name || !name->empty();
  if (!name) {
    return name.error();
  }
  const auto values = with.pointers();
  if (!name->empty()) {
    const int sent = PQsendQueryPrepared(raw(), name->c_str(), with.size(),
                                         values.data(), nullptr, nullptr, 0);
    return finish(sent == 1, what);
  }
  const int sent =
      PQsendQueryParams(raw(), std::string{what.sql}.c_str(), with.size(),
                        nullptr, values.data(), nullptr, nullptr, 0);
  return finish(sent == 1, what);
}

result<answer> connection::script(const call& what) {
  if (auto ok = ready_to_send(what); !ok) {
    return ok.error();
  }
  const int sent = PQsendQuery(raw(), std::string{what.sql}.c_str());
  return finish(sent == 1, what);
}

result<void> connection::ready_to_send(const call& what) {
  if (conn_ == nullptr || conn_.get_deleter().elsewhere()) {
    return fail(errc::unavailable,
                fmt::format("{}: the connection is closed", what.doing));
  }
  if (time_->now() >= what.deadline) {
    return fail(errc::unavailable,
                fmt::format("{}: no time left, nothing sent", what.doing));
  }
  if (PQstatus(raw()) != CONNECTION_OK) {
    return fail(errc::unavailable,
                fmt::format("{}: the connection is broken", what.doing));
  }
  return {};
}

result<std::string> connection::prepared_name(const call& what) {
  if (pooled_) {
    return std::string{};
  }
  if (const auto it = prepared_.find(what.sql); it != prepared_.end()) {
    return it->second;
  }
  if (prepared_.size() >= prepared_max) {
    return std::string{};
  }
  const std::string name = fmt::format("lastdoor_{}", ++names_given_);
  const std::string sql{what.sql};
  const int sent = PQsendPrepare(raw(), name.c_str(), sql.c_str(), 0, nullptr);
  // Preparing changes nothing, so a lost answer leaves no doubt.
  auto done =
      finish(sent == 1, {what.sql, what.doing, effect::reads, what.deadline});
  if (!done) {
    return done.error();
  }
  prepared_.emplace(sql, name);
  return name;
}

result<answer> connection::finish(bool sent, const call& what) {
  if (!sent) {
    // libpq refused to queue it: the connection is gone or in use.
    return fail(errc::unavailable,
                fmt::format("{}: {}", what.doing, last_words(raw())));
  }
  return receive(what);
}

result<answer> connection::receive(const call& what) {
  PGconn* const conn = raw();
  answer last;
  std::optional<error> failed;
  for (;;) {
    int unsent = PQflush(conn);
    while (PQisBusy(conn) != 0) {
      const short events =
          static_cast<short>(unsent > 0 ? POLLIN | POLLOUT : POLLIN);
      if (!wait(events, what.deadline)) {
        return timed_out(what);
      }
      // Failure shows up as a result and as a bad status below.
      PQconsumeInput(conn);
      unsent = PQflush(conn);
    }
    answer next{PQgetResult(conn)};
    if (next.raw() == nullptr) {
      break;
    }
    const auto status = PQresultStatus(next.raw());
    if (status == PGRES_FATAL_ERROR || status == PGRES_BAD_RESPONSE) {
      // A fatal error comes in two: the server's words, then the end.
      if (!failed) {
        failed = translate(next.raw(), what.doing);
      }
    } else if (status == PGRES_COPY_IN || status == PGRES_COPY_OUT ||
               status == PGRES_COPY_BOTH) {
      abandon();
      return fail(errc::invalid_argument,
                  fmt::format("{}: COPY is not possible here", what.doing));
    }
    last = std::move(next);
  }
  if (PQstatus(conn) == CONNECTION_BAD) {
    return broken(what, failed ? failed->backend() : "");
  }
  if (failed) {
    return *std::move(failed);
  }
  return last;
}

bool connection::wait(short events, time_point deadline, int wake) {
  for (;;) {
    const auto left = deadline - time_->now();
    // Rounded up, so that the last wait does not spin.
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
    std::array<pollfd, 2> fds{pollfd{PQsocket(raw()), events, 0},
                              pollfd{wake, POLLIN, 0}};
    const int n = ::poll(fds.data(), wake < 0 ? 1 : 2,
                         static_cast<int>(std::clamp<std::int64_t>(
                             ms, 0, std::int64_t{60} * 1000)));
    if (n > 0 || (n < 0 && errno != EINTR)) {
      return true;
    }
    if (time_->now() >= deadline) {
      return false;
    }
  }
}

error connection::timed_out(const call& what) {
  if (what.undo != nullptr) {
    struct will final : last_will {
      explicit will(handle h) noexcept : conn{std::move(h)} {}
      [[nodiscard]] PGconn* raw() const noexcept override { return conn.get(); }
      handle conn;
    };
    cancel_in_background(raw());
    undo_in_background(std::make_unique<will>(std::move(conn_)),
                       std::string{what.undo->sql}, what.undo->with);
  }
  abandon();
  const auto code =
      what.does == effect::writes ? errc::in_doubt : errc::unavailable;
  return fail(code, fmt::format("{}: {} did not answer in time", what.doing,
                                where_->shown));
}

error connection::broken(const call& what, std::string_view state) {
  const bool harmless = what.does == effect::reads || ended_while_idle(state);
  auto e = fail(harmless ? errc::unavailable : errc::in_doubt,
                fmt::format("{}: lost the connection to {}: {}", what.doing,
                            where_->shown, last_words(raw())))
               .backend(state);
  conn_.reset();
  return e;
}

result<std::vector<std::string>> connection::notifications(time_point deadline,
                                                           int wake) {
  std::vector<std::string> payloads;
  const call what{"", "listening", effect::reads, deadline};
  if (conn_ == nullptr || PQstatus(raw()) != CONNECTION_OK) {
    return fail(errc::unavailable, "listening: the connection is closed");
  }
  const auto collect = [&] {
    while (PGnotify* note = PQnotifies(raw())) {
      payloads.emplace_back(note->extra);
      PQfreemem(note);
    }
  };
  // Some may have come along with the answer to an earlier statement.
  collect();
  if (!payloads.empty()) {
    return payloads;
  }
  (void)wait(POLLIN, deadline, wake);
  if (PQconsumeInput(raw()) != 1) {
    return broken(what, "");
  }
  collect();
  return payloads;
}

bool connection::idle() const noexcept {
  return conn_ != nullptr && !conn_.get_deleter().elsewhere() &&
         PQtransactionStatus(raw()) == PQTRANS_IDLE &&
         PQstatus(raw()) == CONNECTION_OK;
}

bool connection::usable() noexcept {
  // A server that went away has left word in the socket. Two looks: its last
  // message, then the end of the stream.
  for (int look = 0; look < 2 && idle(); ++look) {
    pollfd fd{PQsocket(raw()), POLLIN, 0};
    if (::poll(&fd, 1, 0) <= 0) {
      return true;
    }
    if (PQconsumeInput(raw()) != 1) {
      return false;
    }
  }
  return idle();
}

int connection::backend_pid() const noexcept {
  return pooled_ || conn_ == nullptr ? 0 : PQbackendPID(raw());
}

void connection::abandon() noexcept {
  if (conn_ != nullptr && !conn_.get_deleter().elsewhere()) {
    cancel_in_background(raw());
  }
  conn_.reset();
}

}  // namespace lastdoor::postgres_driver
