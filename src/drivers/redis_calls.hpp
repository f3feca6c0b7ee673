// redis_calls.hpp: what every user of one Redis server does with it: connect,
// run a script, judge a refusal.
//
// Thread safety: a session holds the loop's lock.
#pragma once

#include <functional>
#include <lastdoor/redis_server.hpp>
#include <string_view>

#include "redis.hpp"
#include "redis_script.hpp"

namespace lastdoor::redis_driver {

// The node of a URL. `invalid_argument` for a bad one, `misconfigured` for TLS
// that cannot be had. Sends nothing.
[[nodiscard]] result<node_options> server_options(std::string_view url,
                                                  duration call_timeout,
                                                  const redis_tls_options& tls);

// A name space stands in the hash tag of every key.
[[nodiscard]] result<void> check_name_space(std::string_view name);
// 1 ms to 1 h.
[[nodiscard]] result<void> check_timeout(duration limit);

// A connection that is ready, or why there is none.
[[nodiscard]] result<void> connect(session& in, node& to, time_point until);

// The error of an answer that is one. Drops the connection when the address
// must be looked up again.
[[nodiscard]] error refused(session& in, node& at, reply_view answer,
                            std::string_view doing);

// Provably not done, and perhaps done.
[[nodiscard]] error overdue(std::string_view doing);
[[nodiscard]] error unanswered(std::string_view doing);

// Runs a script, on as many connections as it takes until `until`.
class insistence {
 public:
  insistence(session& in, node& to, std::string_view doing, time_point until)
      : in_{in}, to_{to}, doing_{doing}, until_{until} {}

  // Set when the script must not be sent again once it may have been done.
  insistence& only_once() noexcept {
    once_ = true;
    return *this;
  }
  // Called with each connection, before the script is sent.
  insistence& first(std::function<void()> prepare) {
    prepare_ = std::move(prepare);
    return *this;
  }

  // The answer belongs to `call`. `in_doubt` when it may have been done and
  // nobody knows; every other error says that it was not.
  [[nodiscard]] result<reply_view> run(script_call& call);

  // Whether an earlier sending may have been carried out.
  [[nodiscard]] bool sent_before() const noexcept { return sent_before_; }

 private:
  session& in_;
  node& to_;
  std::string_view doing_;
  time_point until_;
  std::function<void()> prepare_;
  bool once_{false};
  bool sent_before_{false};
};

}  // namespace lastdoor::redis_driver
