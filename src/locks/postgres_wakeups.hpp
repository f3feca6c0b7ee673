// postgres_wakeups.hpp: rings waiters when a lease is released.
//
// One connection and one thread listen for all waiters of a service, and only
// while there are any. A waiter is announced by a shared advisory lock on the
// name of what it waits for, so that a release which nobody waits for sends
// nothing. Losing the connection loses nothing but hints.
//
// Thread safety: all members may be called from any thread. The answer of
// `watch` must be gone before the object is.
#pragma once

#include <map>
#include <set>
#include <string>
#include <thread>

#include "drivers/event_bell.hpp"
#include "drivers/postgres.hpp"
#include "locks/mutex.hpp"

namespace lastdoor {

class postgres_wakeups {
 public:
  postgres_wakeups(postgres_driver::endpoint where,
                   postgres_driver::open_options options,
                   std::string name_space, duration call_timeout);
  ~postgres_wakeups();
  postgres_wakeups(const postgres_wakeups&) = delete;
  postgres_wakeups& operator=(const postgres_wakeups&) = delete;

  // Rings `bell` when `resource` may be free, and once when listening has begun
  // (at once if it had), until the answer is destroyed.
  // Null where notifications do not work: behind a pooler, or without the
  // means for a thread.
  [[nodiscard]] std::shared_ptr<void> watch(const std::string& resource,
                                            alarm& bell);

 private:
  using connection = postgres_driver::connection;
  using names = std::set<std::string, std::less<>>;

  [[nodiscard]] bool start() LASTDOOR_REQUIRES(mutex_);
  void forget(const std::string& resource, alarm& bell) noexcept;

  void run() noexcept;
  // Null: look again later, or never.
  [[nodiscard]] std::optional<connection> connect();
  [[nodiscard]] result<void> announce(connection& db);
  [[nodiscard]] result<bool> listen(connection& db);
  [[nodiscard]] names wanted();
  [[nodiscard]] names announced();
  void forget_announced();
  void ring(std::string_view resource) LASTDOOR_REQUIRES(mutex_);
  void rest(duration at_most) const;
  [[nodiscard]] bool stopping();

  const postgres_driver::endpoint where_;
  const postgres_driver::open_options options_;
  const std::string name_space_;
  const duration call_timeout_;
  const pid_t process_;
  const event_bell wake_;

  detail::mutex mutex_;
  std::multimap<std::string, alarm*, std::less<>> bells_
      LASTDOOR_GUARDED_BY(mutex_);
  names announced_ LASTDOOR_GUARDED_BY(mutex_);  // heard of by the server
  bool stopping_ LASTDOOR_GUARDED_BY(mutex_){false};
  bool useless_ LASTDOOR_GUARDED_BY(mutex_){false};
  std::thread thread_ LASTDOOR_GUARDED_BY(mutex_);
};

}  // namespace lastdoor
