// redis_backend.hpp: the lock service on one Redis server (locks/redis.hpp).
//
// Every verb follows one path: enter the loop, have a connection that is
// ready, run a script, judge the answer. What a lost answer leaves behind is
// the care of `stray` and `doubted_`.
//
// Thread safety: everything belongs to the loop's lock, which a session holds.
#pragma once

#include <array>
#include <lastdoor/locks/redis.hpp>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "drivers/redis_calls.hpp"
#include "redis_keys.hpp"
#include "redis_wakeups.hpp"

namespace lastdoor {

class redis_backend final : public lock_backend {
 public:
  redis_backend(std::unique_ptr<redis_driver::loop> where,
                const redis_driver::node_options& server, source_name source,
                const redis_locks_options& options);

  const source_name& source() const noexcept override { return source_; }
  duration max_ttl() const noexcept override;
  duration call_timeout() const noexcept override { return call_timeout_; }

  result<lease_answer> try_acquire(const lease_request& request) override;
  result<time_point> renew(const grant& held, duration ttl,
                           time_point deadline) override;
  result<void> release(const grant& held, time_point deadline) override;
  result<lease_status> inspect(const resource_name& resource) override;
  std::shared_ptr<void> watch(const resource_name& resource,
                              alarm& bell) override;
  result<void> raise_floor(mark floor) override;

 private:
  // A release that must still reach the server: the answer to the acquire or
  // to an earlier release was lost. Sent again on each new connection until
  // it is answered or the TTL has ended the lease.
  struct stray {
    std::string key;
    std::string channel;
    std::string owner;
    time_point until;
    redis_driver::ticket sent;
  };
  // One acquisition on its way.
  struct attempt {
    const lease_request& request;
    std::string key;
    time_point start;       // before the command was sent
    std::int64_t known{0};  // the highest token before it was sent
    unsigned rebased{0};
  };

  // A connection, or why there is none. Sends strays off again.
  result<void> connect(redis_driver::session& in, time_point until);
  // Runs a script that may be run twice, on as many connections as it takes.
  // `sent_before` tells whether an earlier run may have been carried out.
  result<redis_driver::reply_view> insist(redis_driver::session& in,
                                          redis_driver::script_call& call,
                                          std::string_view doing,
                                          time_point until, bool& sent_before);

  // Nothing: to be tried again.
  result<std::optional<lease_answer>> attempt_once(redis_driver::session& in,
                                                   attempt& now);
  result<std::optional<lease_answer>> judge(redis_driver::session& in,
                                            attempt& now,
                                            redis_driver::reply_view answer);
  result<std::optional<lease_answer>> granted(redis_driver::session& in,
                                              attempt& now,
                                              std::int64_t number);
  result<void> confirm_by_replicas(redis_driver::session& in,
                                   const attempt& now);
  // Before the next grant, the counter is raised above all it may have given.
  result<void> rebase(redis_driver::session& in, time_point until);

  // Makes sure that the lease of this attempt ends. True when that is done.
  bool undo(redis_driver::session& in, const attempt& now);
  void send_strays(redis_driver::session& in);
  void forget_finished_strays();
  void remember_stray(stray one);
  void remember_doubt(const std::string& owner, time_point until);

  std::unique_ptr<redis_driver::loop> loop_;
  redis_driver::node& node_;
  source_name source_;
  redis_keys keys_;
  redis_wakeups wakeups_;
  duration call_timeout_;
  duration replica_timeout_;
  int wait_replicas_;

  std::int64_t highest_{0};  // of the tokens seen here
  std::vector<stray> strays_;
  // Owners whose release was sent and not answered, and until when to
  // remember them: when it is repeated, "not there" means that it worked.
  std::unordered_map<std::string, time_point> doubted_;
  // The last owners whose release was confirmed, for those who ask twice.
  std::array<std::string, 64> released_;
  std::size_t next_released_{0};
};

}  // namespace lastdoor
