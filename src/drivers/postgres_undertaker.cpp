#include "drivers/postgres_undertaker.hpp"

#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <list>
#include <mutex>
#include <system_error>
#include <thread>

#include "drivers/background_thread.hpp"
#include "drivers/event_bell.hpp"

namespace lastdoor::postgres_driver {

namespace {

constexpr std::size_t at_once_max = 4;
constexpr int patience_s = 30;

// Reads all answers that are due. False: cut off, out of patience, or told to
// stop; `ok` says whether the last answer was a success.
bool drain(PGconn* conn, int stop, bool& ok) {
  int left = patience_s;
  for (;;) {
    int unsent = PQflush(conn);
    while (PQisBusy(conn) != 0) {
      const short events =
          static_cast<short>(unsent > 0 ? POLLIN | POLLOUT : POLLIN);
      std::array<pollfd, 2> fds{pollfd{PQsocket(conn), events, 0},
                                pollfd{stop, POLLIN, 0}};
      const int n = ::poll(fds.data(), fds.size(), 1000);
      if (fds[1].revents != 0 || (n == 0 && --left == 0) ||
          (n > 0 && PQconsumeInput(conn) != 1)) {
        return false;
      }
      unsent = PQflush(conn);
    }
    const answer next{PQgetResult(conn)};
    if (next.raw() == nullptr) {
      return PQstatus(conn) == CONNECTION_OK;
    }
    const auto status = PQresultStatus(next.raw());
    ok = status == PGRES_TUPLES_OK || status == PGRES_COMMAND_OK;
  }
}

void undo(PGconn* conn, const std::string& sql, const arguments& with,
          int stop) {
  bool ok = false;
  if (!drain(conn, stop, ok)) {
    return;
  }
  // Twice: the cancellation of the first statement may come late and hit this
  // one.
  for (int tries = 0; tries < 2; ++tries) {
    const auto values = with.pointers();
    if (PQsendQueryParams(conn, sql.c_str(), with.size(), nullptr,
                          values.data(), nullptr, nullptr, 0) != 1 ||
        !drain(conn, stop, ok) || ok) {
      return;
    }
  }
}

// The threads at work. Made after the first connection was, so destroyed
// before the libraries that connections use.
class crew {
 public:
  static crew& instance() {
    static crew all;
    return all;
  }
  crew(const crew&) = delete;
  crew& operator=(const crew&) = delete;
  ~crew() {
    stop_.ring();
    for (auto& m : members_) {
      // A forked child has no threads to wait for.
      ::getpid() == process_ ? m.thread.join() : m.thread.detach();
    }
  }

  void take(std::unique_ptr<last_will> connection, std::string sql,
            arguments with) {
    const std::lock_guard lock{mutex_};
    members_.remove_if([](member& m) {
      if (!m.done) {
        return false;
      }
      m.thread.join();
      return true;
    });
    if (members_.size() >= at_once_max || ::getpid() != process_) {
      return;
    }
    auto& mine = members_.emplace_back();
    try {
      mine.thread =
          background_thread([&mine, stop = stop_.fd(), sql = std::move(sql),
                             with = std::move(with),
                             connection = std::move(connection)]() mutable {
            undo(connection->raw(), sql, with, stop);
            connection.reset();
            mine.done = true;
          });
    } catch (const std::system_error&) {
      members_.pop_back();
    }
  }

 private:
  struct member {
    std::thread thread;
    std::atomic<bool> done{false};
  };
  crew() : process_{::getpid()} {}

  const event_bell stop_;
  const pid_t process_;
  std::mutex mutex_;
  std::list<member> members_;
};

}  // namespace

void undo_in_background(std::unique_ptr<last_will> connection, std::string sql,
                        arguments with) noexcept {
  try {
    crew::instance().take(std::move(connection), std::move(sql),
                          std::move(with));
  } catch (const std::exception&) {
    // Out of memory: the connection is closed, the TTL does the rest.
  }
}

}  // namespace lastdoor::postgres_driver
