// Several statements in one round trip.
#include <fmt/format.h>
#include <poll.h>

#include "drivers/postgres.hpp"

namespace lastdoor::postgres_driver {

namespace {

// Leaves the pipeline again, if the connection is in order.
class pipeline_mode {
 public:
  explicit pipeline_mode(PGconn* conn) noexcept
      : conn_{PQenterPipelineMode(conn) == 1 ? conn : nullptr} {}
  ~pipeline_mode() {
    if (conn_ != nullptr) {
      PQexitPipelineMode(conn_);
    }
  }
  pipeline_mode(const pipeline_mode&) = delete;
  pipeline_mode& operator=(const pipeline_mode&) = delete;
  // The connection was closed meanwhile.
  void forget() noexcept { conn_ = nullptr; }
  [[nodiscard]] bool entered() const noexcept { return conn_ != nullptr; }

 private:
  PGconn* conn_;
};

bool is_failure(ExecStatusType status) noexcept {
  return status == PGRES_FATAL_ERROR || status == PGRES_BAD_RESPONSE ||
         status == PGRES_COPY_IN || status == PGRES_COPY_OUT ||
         status == PGRES_COPY_BOTH;
}

}  // namespace

result<std::vector<answer>> connection::together(std::span<const pipelined> all,
                                                 const call& what) {
  if (auto ok = ready_to_send(what); !ok) {
    return ok.error();
  }
  std::vector<std::string> names;
  for (const auto& one : all) {
    auto name = prepared_name({one.sql, what.doing, what.does, what.deadline});
    if (!name) {
      return name.error();
    }
    names.push_back(std::move(*name));
  }
  pipeline_mode mode{raw()};
  bool sent = mode.entered();
  for (std::size_t i = 0; sent && i < all.size(); ++i) {
    const auto values = all[i].with.pointers();
    const int n = all[i].with.size();
    sent = (names[i].empty()
                ? PQsendQueryParams(raw(), std::string{all[i].sql}.c_str(), n,
                                    nullptr, values.data(), nullptr, nullptr, 0)
                : PQsendQueryPrepared(raw(), names[i].c_str(), n, values.data(),
                                      nullptr, nullptr, 0)) == 1;
  }
  if (!sent || PQpipelineSync(raw()) != 1) {
    // What was queued may be half gone: this connection is no longer clear.
    mode.forget();
    abandon();
    return fail(errc::unavailable,
                fmt::format("{}: the connection is broken", what.doing));
  }
  auto got = receive_together(what);
  if (raw() == nullptr) {
    mode.forget();
  }
  return got;
}

// The answers up to the end of the pipeline. Once one has failed, the server
// skips the rest.
result<std::vector<answer>> connection::receive_together(const call& what) {
  std::vector<answer> answers;
  std::optional<error> failed;
  for (bool at_end = false; !at_end;) {
    int unsent = PQflush(raw());
    while (PQisBusy(raw()) != 0) {
      const short events =
          static_cast<short>(unsent > 0 ? POLLIN | POLLOUT : POLLIN);
      if (!wait(events, what.deadline)) {
        return timed_out(what);
      }
      PQconsumeInput(raw());
      unsent = PQflush(raw());
    }
    answer next{PQgetResult(raw())};
    if (next.raw() == nullptr) {
      if (PQstatus(raw()) == CONNECTION_BAD) {
        break;
      }
      continue;  // the end of one statement's answer
    }
    const auto status = PQresultStatus(next.raw());
    at_end = status == PGRES_PIPELINE_SYNC;
    if (is_failure(status) && !failed) {
      failed = translate(next.raw(), what.doing);
    } else if (!at_end && status != PGRES_PIPELINE_ABORTED && !failed) {
      answers.push_back(std::move(next));
    }
  }
  if (PQstatus(raw()) == CONNECTION_BAD) {
    return broken(what, failed ? failed->backend() : std::string_view{});
  }
  if (failed) {
    const auto& state = failed->backend();
    if (state == "26000" || state == "42P05" || state == "0A000") {
      // The session is not the one that prepared the texts, or a table has
      // changed since. Nothing of this was executed in full.
      prepared_.clear();
      return fail(errc::unavailable, failed->text()).backend(state);
    }
    return *std::move(failed);
  }
  return answers;
}

}  // namespace lastdoor::postgres_driver
