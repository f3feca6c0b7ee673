// redlock_backend.hpp: the lock service on a quorum (locks/redlock.hpp).
//
// Every verb is one round of a script on all servers, decided as soon as the
// answers in hand suffice or a quorum has become impossible.
//
// Thread safety: everything belongs to the loop's lock, which a session holds;
// `max_ttl_` is read without it.
#pragma once

#include <array>
#include <atomic>
#include <lastdoor/locks/redlock.hpp>
#include <memory>
#include <string>
#include <vector>

#include "redis_wakeups.hpp"
#include "redlock_servers.hpp"

namespace lastdoor {

class redlock_backend final : public lock_backend {
 public:
  redlock_backend(std::unique_ptr<redlock::servers> all, source_name source,
                  std::vector<std::unique_ptr<redis_wakeups>> wakeups);

  const source_name& source() const noexcept override { return source_; }
  duration max_ttl() const noexcept override;
  duration call_timeout() const noexcept override;

  result<lease_answer> try_acquire(const lease_request& request) override;
  result<time_point> renew(const grant& held, duration ttl,
                           time_point deadline) override;
  result<void> release(const grant& held, time_point deadline) override;
  result<void> let_go(const grant& held, time_point deadline) override;
  result<lease_status> inspect(const resource_name& resource) override;
  std::shared_ptr<void> watch(const resource_name& resource,
                              alarm& bell) override;
  result<void> raise_floor(mark floor) override;

  // How often a grant needed the second round trip; for tests.
  [[nodiscard]] std::uint64_t second_rounds() const noexcept {
    return second_rounds_;
  }

 private:
  result<void> ready_for(redis_driver::session& in, duration ttl,
                         time_point until);
  result<lease_answer> elect(redis_driver::session& in,
                             const lease_request& request);
  void undo(redis_driver::session& in, const redlock::round& votes,
            const lease_request& request);
  void remember_released(const std::string& owner);
  [[nodiscard]] bool was_released(const std::string& owner) const noexcept;

  std::unique_ptr<redlock::servers> servers_;
  source_name source_;
  std::vector<std::unique_ptr<redis_wakeups>> wakeups_;
  std::atomic<std::int64_t> max_ttl_ms_;
  std::atomic<std::uint64_t> second_rounds_{0};
  // The last owners whose release worked or may have, for those who ask twice.
  std::array<std::string, 256> released_;
  std::size_t next_released_{0};
};

}  // namespace lastdoor
