// redis_wakeups.hpp: rings a waiter's bell when a server tells of a release.
//
// One connection that only listens and one thread, both there only while
// somebody waits and a moment longer. Everything about them may fail; a waiter
// who hears nothing polls all the same.
//
// Thread safety: all members may be called from any thread.
#pragma once

#include <lastdoor/clock.hpp>
#include <memory>
#include <string>

#include "drivers/redis.hpp"

namespace lastdoor {

class redis_wakeups {
 public:
  // `base` says where the server is and how to log in.
  redis_wakeups(std::shared_ptr<clock> time,
                redis_driver::node_options base) noexcept;
  redis_wakeups(const redis_wakeups&) = delete;
  redis_wakeups& operator=(const redis_wakeups&) = delete;
  ~redis_wakeups();

  // Rings `bell` for each message on `channel`, and once when listening has
  // begun (at once if it had), until the answer is destroyed. Null when there
  // is no way to listen.
  std::shared_ptr<void> watch(const std::string& channel, alarm& bell);

 private:
  class listener;
  std::shared_ptr<clock> time_;
  redis_driver::node_options base_;
  std::mutex mutex_;  // for the pointer only
  std::shared_ptr<listener> listener_;
};

}  // namespace lastdoor
