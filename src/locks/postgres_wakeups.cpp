#include "locks/postgres_wakeups.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>
#include <vector>

#include "drivers/background_thread.hpp"
#include "locks/postgres_lease_table.hpp"

namespace lastdoor {

namespace {

using namespace std::chrono_literals;
using postgres_driver::arguments;
using postgres_driver::effect;

constexpr std::string_view listening = "listening";

// Without waiters the connection is kept for a while: they come in bursts.
constexpr duration linger = 10s;
// Between two tries to connect. Waiters poll meanwhile, as they always do.
constexpr duration pause = 1s;

}  // namespace

postgres_wakeups::postgres_wakeups(postgres_driver::endpoint where,
                                   postgres_driver::open_options options,
                                   std::string name_space,
                                   duration call_timeout)
    : where_{std::move(where)},
      options_{std::move(options)},
      name_space_{std::move(name_space)},
      call_timeout_{call_timeout},
      process_{::getpid()} {}

postgres_wakeups::~postgres_wakeups() {
  std::thread thread;
  if (::getpid() == process_) {
    const detail::locked lock{mutex_};
    stopping_ = true;
    thread = std::move(thread_);
  }
  if (thread.joinable()) {
    wake_.ring();
    thread.join();
  }
}

std::shared_ptr<void> postgres_wakeups::watch(const std::string& resource,
                                              alarm& bell) {
  {
    const detail::locked lock{mutex_};
    if (useless_ || stopping_ || !wake_.works() || !start()) {
      return nullptr;
    }
    bells_.emplace(resource, &bell);
    if (announced_.contains(resource)) {
      bell.ring();
    }
  }
  wake_.ring();
  return {this, [resource, &bell](postgres_wakeups* self) {
            self->forget(resource, bell);
          }};
}

bool postgres_wakeups::start() {
  if (thread_.joinable()) {
    return true;
  }
  try {
    thread_ = background_thread([this] { run(); });
    return true;
  } catch (const std::system_error&) {
    return false;
  }
}

// Afterwards nobody rings `bell`: rings are made with the mutex held.
void postgres_wakeups::forget(const std::string& resource,
                              alarm& bell) noexcept {
  {
    const detail::locked lock{mutex_};
    const auto [first, last] = bells_.equal_range(resource);
    const auto it = std::find_if(
        first, last, [&](const auto& entry) { return entry.second == &bell; });
    if (it != last) {
      bells_.erase(it);
    }
  }
  wake_.ring();
}

void postgres_wakeups::run() noexcept {
  try {
    std::optional<connection> db;
    while (!stopping()) {
      if (!db && wanted().empty()) {
        rest(1h);
      } else if (!db && !(db = connect())) {
        rest(pause);
      } else if (auto ok = listen(*db); !ok || !*ok) {
        db.reset();
        forget_announced();
      }
    }
  } catch (const std::exception&) {
    // Out of memory. Waiters poll, as they do without notifications.
    const detail::locked lock{mutex_};
    useless_ = true;
  }
}

std::optional<postgres_wakeups::connection> postgres_wakeups::connect() {
  auto opened =
      connection::open(where_, options_, options_.time->now() + call_timeout_);
  if (!opened) {
    return std::nullopt;
  }
  if (opened->pooled()) {
    // LISTEN would listen for whoever has the session next.
    const detail::locked lock{mutex_};
    useless_ = true;
    return std::nullopt;
  }
  const auto sql = fmt::format(
      "LISTEN {}", postgres_driver::quoted_name(postgres_leases::channel));
  if (!opened->script({sql, listening, effect::reads,
                       options_.time->now() + call_timeout_})) {
    return std::nullopt;
  }
  return *std::move(opened);
}

// Brings the announcements up to date with who waits.
result<void> postgres_wakeups::announce(connection& db) {
  const auto change = [&](const std::string& resource,
                          std::string_view function) -> result<void> {
    arguments with;
    with.add(std::string_view{name_space_}).add(std::string_view{resource});
    const auto sql = fmt::format("SELECT pg_catalog.{}({})", function,
                                 postgres_leases::waiting_key);
    auto done = db.run(
        {sql, listening, effect::reads, options_.time->now() + call_timeout_},
        with);
    if (!done) {
      return done.error();
    }
    return {};
  };
  const names now = wanted();
  const names before = announced();
  for (const auto& resource : now) {
    if (before.contains(resource)) {
      continue;
    }
    if (auto ok = change(resource, "pg_advisory_lock_shared"); !ok) {
      return ok;
    }
    const detail::locked lock{mutex_};
    announced_.insert(resource);
    // It may have been released before we were heard of.
    ring(resource);
  }
  for (const auto& resource : before) {
    if (now.contains(resource)) {
      continue;
    }
    if (auto ok = change(resource, "pg_advisory_unlock_shared"); !ok) {
      return ok;
    }
    const detail::locked lock{mutex_};
    announced_.erase(resource);
  }
  return {};
}

// False: nobody has waited for long enough.
result<bool> postgres_wakeups::listen(connection& db) {
  if (auto ok = announce(db); !ok) {
    return ok.error();
  }
  const bool idle = announced().empty();
  auto heard = db.notifications(
      options_.time->now() + (idle ? linger : duration{1h}), wake_.fd());
  if (!heard) {
    return heard.error();
  }
  const bool woken = wake_.silence();
  for (const auto& payload : *heard) {
    const auto prefix = name_space_ + '/';
    if (payload.starts_with(prefix)) {
      const detail::locked lock{mutex_};
      ring(std::string_view{payload}.substr(prefix.size()));
    }
  }
  return !idle || woken || !heard->empty();
}

postgres_wakeups::names postgres_wakeups::wanted() {
  const detail::locked lock{mutex_};
  names all;
  for (const auto& entry : bells_) {
    all.insert(entry.first);
  }
  return all;
}

postgres_wakeups::names postgres_wakeups::announced() {
  const detail::locked lock{mutex_};
  return announced_;
}

void postgres_wakeups::ring(std::string_view resource) {
  const auto [first, last] = bells_.equal_range(resource);
  for (auto it = first; it != last; ++it) {
    it->second->ring();
  }
}

void postgres_wakeups::forget_announced() {
  const detail::locked lock{mutex_};
  announced_.clear();
  // A hint may have been lost with the connection.
  for (const auto& entry : bells_) {
    entry.second->ring();
  }
}

void postgres_wakeups::rest(duration at_most) const {
  pollfd fd{wake_.fd(), POLLIN, 0};
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(at_most);
  if (::poll(&fd, 1, static_cast<int>(ms.count())) > 0) {
    wake_.silence();
  }
}

bool postgres_wakeups::stopping() {
  const detail::locked lock{mutex_};
  return stopping_ || useless_;
}

}  // namespace lastdoor
