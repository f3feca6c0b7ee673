// redlock_cluster.hpp: N private Redis servers, set up as one cluster.
#pragma once

#include <lastdoor/locks/redlock.hpp>
#include <memory>
#include <string>
#include <vector>

#include "support/temp_redis.hpp"

namespace lastdoor::support {

// One attempt, of an owner of its own.
[[nodiscard]] inline result<grant> attempt(lock_backend& locks,
                                           std::string_view name,
                                           duration ttl) {
  const auto resource = resource_name::parse(name).value();
  const auto owner = owner_id::generate().value();
  auto got =
      locks.try_acquire({resource, owner, ttl, "test",
                         boot_clock()->now() + std::chrono::seconds{10}});
  if (!got) {
    return got.error();
  }
  return grant{resource, owner, got->token, locks.source(), got->valid_until};
}

class redlock_cluster {
 public:
  // Throws when a server does not start. `max_ttl` 0: leaves them blank.
  explicit redlock_cluster(unsigned n, duration max_ttl = std::chrono::hours{1},
                           redis_options settings = {}) {
    for (unsigned k = 0; k < n; ++k) {
      servers_.push_back(std::make_unique<temp_redis>(settings));
      urls_.push_back(servers_.back()->url());
    }
    if (max_ttl > duration{0}) {
      redlock_init(urls_, {.max_ttl = max_ttl}, patience()).value();
    }
  }

  [[nodiscard]] const std::vector<std::string>& urls() const noexcept {
    return urls_;
  }
  temp_redis& operator[](std::size_t k) { return *servers_[k]; }
  [[nodiscard]] std::size_t size() const noexcept { return servers_.size(); }

  // For a busy machine: a slow answer is none.
  static redlock_options patience() {
    redlock_options o;
    o.node_timeout = std::chrono::seconds{10};
    o.call_timeout = std::chrono::seconds{20};
    return o;
  }
  [[nodiscard]] std::unique_ptr<lock_backend> patient() const {
    return open_redlock_backend(urls_, patience()).value();
  }

 private:
  std::vector<std::unique_ptr<temp_redis>> servers_;
  std::vector<std::string> urls_;
};

}  // namespace lastdoor::support
