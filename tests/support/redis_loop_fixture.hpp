// redis_loop_fixture.hpp: the poll loop of the Redis driver, one private
// server, and commands to it. What is waited for, is waited for patiently.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "drivers/redis.hpp"
#include "support/temp_redis.hpp"

namespace lastdoor::redis_driver::testing {

using support::temp_redis;

inline time_point in(duration d) { return boot_clock()->now() + d; }

inline std::unique_ptr<loop> new_loop() {
  return loop::open(boot_clock()).value();
}

inline node_options to(const std::string& url) {
  node_options o;
  o.where = parse_url(url).value();
  o.connect_timeout = std::chrono::seconds{10};
  o.silence_limit = std::chrono::seconds{10};
  return o;
}

inline node::condition connect(session& here, node& n) {
  n.want(here);
  here.wait([&] { return n.now() != node::condition::connecting; },
            in(std::chrono::seconds{10}));
  return n.now();
}

inline std::string ask(session& here, node& n, const command& what) {
  const auto t = n.send(here, what);
  return here.wait_for_answer(t, in(std::chrono::seconds{10})) == fate::replied
             ? std::string{t->answer().text()}
             : "no answer";
}

inline std::string ask(loop& l, node& n, const command& what) {
  session here{l};
  return connect(here, n) == node::condition::ready ? ask(here, n, what)
                                                    : "not connected";
}

class redis_loop_test : public ::testing::Test {
 protected:
  void SetUp() override {
    LASTDOOR_NEEDS_REDIS();
    server_ = std::make_unique<temp_redis>();
  }
  temp_redis& server() { return *server_; }

 private:
  std::unique_ptr<temp_redis> server_;
};

}  // namespace lastdoor::redis_driver::testing
