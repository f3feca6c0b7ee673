// Redlock: who waits for what, and who need not.
#include <gtest/gtest.h>

#include <atomic>
#include <lastdoor/observer.hpp>
#include <lastdoor/testing/fake_clock.hpp>
#include <optional>

#include "support/redlock_cluster.hpp"
#include "support/tcp_proxy.hpp"

namespace {

using namespace lastdoor;
using namespace lastdoor::support;
using namespace std::chrono_literals;
using lastdoor::testing::fake_clock;

constexpr const char* counter = "lastdoor:{default}:redlock:counter";
constexpr const char* marker = "lastdoor:{default}:redlock:marker";

std::string lock_key(const std::string& name) {
  return "lastdoor:{default}:redlock:lock:" + name;
}

// What nobody waits for is not sent by a hash that may be unknown.
TEST(RedlockWaits, R12_ALeaseIsLetGoWhereTheScriptIsForgotten) {
  LASTDOOR_NEEDS_REDIS();
  redlock_cluster all{3};
  auto locks = open_redlock(all.urls(), redlock_cluster::patience()).value();
  {
    const auto held = locks.acquire("r", {.ttl = 1h}).value();
    for (std::size_t k = 0; k < all.size(); ++k) {
      all[k].say({"SCRIPT", "FLUSH"});
    }
  }
  for (std::size_t k = 0; k < all.size(); ++k) {
    EXPECT_TRUE(eventually([&] {
      return all[k].say({"EXISTS", lock_key("r")}) == "0";
    }));
  }
}

// One that may not be released here keeps none of the others back.
TEST(RedlockWaits, R09_AForbiddenReleaseHoldsUpNoOther) {
  LASTDOOR_NEEDS_REDIS();
  temp_redis server;
  tcp_proxy between{server.port()};
  argument_list half{"ACL",     "SETUSER",      "half",       "on",
                     ">p",      "+@all",        "~*:counter", "~*:marker",
                     "~*:note", "~*:lock:mine*"};
  if (redis_major() >= 7) {
    half.emplace_back("&*");
  }
  ASSERT_EQ(server.say(half), "OK");
  const std::vector<std::string> urls{"redis://half:p@127.0.0.1:" +
                                      std::to_string(between.port())};
  redlock_init(urls, {.max_ttl = 1h}, redlock_cluster::patience()).value();
  auto options = redlock_cluster::patience();
  options.node_timeout = 100ms;
  options.call_timeout = 300ms;
  const auto locks = open_redlock_backend(urls, options).value();
  std::optional<grant> held;
  ASSERT_TRUE(eventually([&] {
    if (auto got = attempt(*locks, "mine", 1h)) {
      held = *got;
    }
    return held.has_value();
  }));
  between.hold_requests(true);
  EXPECT_FALSE(attempt(*locks, "theirs", 1h));
  locks->let_go(*held, boot_clock()->now() + 200ms).ignore();
  between.cut();
  between.hold_requests(false);
  EXPECT_TRUE(eventually([&] {
    attempt(*locks, "mine-too", 10ms).ignore();
    return server.say({"EXISTS", lock_key("mine")}) == "0";
  }));
}

// A lease that is held is busy, whoever else is out; which answers come first
// makes no difference.
TEST(RedlockWaits, R17_HeldIsBusyThoughAServerIsDown) {
  LASTDOOR_NEEDS_REDIS();
  redlock_cluster all{3};
  const auto locks = all.patient();
  const auto held = attempt(*locks, "r", 1h).value();
  all[1].kill_hard();
  const auto others = all.patient();
  for (int i = 0; i < 50; ++i) {
    const auto got = attempt(*others, "r", 1h);
    ASSERT_FALSE(got);
    EXPECT_EQ(got.error().code(), errc::busy) << got.error().message();
  }
  all[2].pause();
  const auto got =
      attempt(*open_redlock_backend(all.urls(), {}).value(), "r", 1h);
  EXPECT_EQ(got.error().code(), errc::no_quorum) << got.error().message();
  all[2].resume();
}

// Neither the readmission nor the look at the servers waits for one that is
// silent, nor counts others as such for its sake.
TEST(RedlockWaits, R15_ASilentServerHoldsUpNoReadmission) {
  LASTDOOR_NEEDS_REDIS();
  redlock_cluster all{5, 1s};
  all[3].pause();
  auto options = redlock_cluster::patience();
  options.node_timeout = 2s;
  // Longer than any attempt here.
  options.call_timeout = 60s;
  const auto locks = open_redlock_backend(all.urls(), options).value();
  ASSERT_TRUE(attempt(*locks, "before", 900ms));
  all[4].say({"FLUSHALL"});
  int n = 0;
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(attempt(*locks, "r" + std::to_string(++n), 900ms));
    return all[4].say({"EXISTS", marker}) == "1";
  }));
  options.call_timeout = 4s;
  using condition = redlock_node_status::condition;
  std::vector<condition> seen;
  for (const auto& s : redlock_status(all.urls(), options).value()) {
    seen.push_back(s.now);
  }
  EXPECT_EQ(seen,
            (std::vector<condition>{condition::admitted, condition::admitted,
                                    condition::admitted, condition::unreachable,
                                    condition::admitted}));
  all[4].say({"FLUSHALL"});
  redlock_admit(all.urls(), std::nullopt, options).value();
  EXPECT_EQ(all[4].say({"EXISTS", marker}), "1");
  all[3].resume();
}

TEST(RedlockWaits, AServerThatRefusesIsNamedOnce) {
  LASTDOOR_NEEDS_REDIS();
  redlock_cluster all{1};
  const auto locks = all.patient();
  ASSERT_TRUE(attempt(*locks, "before", 1h));
  // For the second the connection is given up.
  for (const auto& refusal :
       {argument_list{"CONFIG", "SET", "min-replicas-to-write", "1"},
        argument_list{"REPLICAOF", "127.0.0.1", "1"}}) {
    all[0].say(refusal);
    const auto text = attempt(*locks, "r", 1h).error().message();
    const auto name = all[0].socket();
    const auto first = text.find(name);
    EXPECT_NE(first, std::string::npos) << text;
    EXPECT_EQ(text.find(name, first + 1), std::string::npos) << text;
  }
}

// A counter that cannot be used is no admission.
TEST(RedlockWaits, R20_StatusTellsWhatACounterIsWorth) {
  LASTDOOR_NEEDS_REDIS();
  redlock_cluster all{3};
  const auto second = [&](const argument_list& put) {
    all[1].say({"DEL", counter});
    all[1].say(put);
    return redlock_status(all.urls(), redlock_cluster::patience()).value()[1];
  };
  using condition = redlock_node_status::condition;
  for (const auto& put : {argument_list{"SET", counter, "many"},
                          {"SET", counter, "-5"},
                          {"RPUSH", counter, "1"}}) {
    const auto s = second(put);
    EXPECT_EQ(s.now, condition::foreign) << put.back();
    EXPECT_NE(s.why.find("delete it"), std::string::npos) << s.why;
    const auto admitted =
        redlock_admit(all.urls(), std::nullopt, redlock_cluster::patience());
    ASSERT_FALSE(admitted);
    EXPECT_EQ(admitted.error().code(), errc::damaged);
  }
  EXPECT_EQ(second({"PING"}).now, condition::quarantined) << "it is gone";
}

// A server forgets, comes back with the help of another client, and forgets
// again. The client that saw both, and nothing between, waits anew.
TEST(RedlockWaits, R15_ForgettingTwiceIsWaitedForTwice) {
  LASTDOOR_NEEDS_REDIS();
  redlock_cluster all{5, 0s};
  tcp_proxy to_0{all[0].port()};
  tcp_proxy to_1{all[1].port()};
  auto urls = all.urls();
  urls[0] = to_0.redis_url();
  urls[1] = to_1.redis_url();
  // By the names that the client has for them: it may admit a blank one.
  redlock_init(urls, {.max_ttl = 1h}, redlock_cluster::patience()).value();
  const auto time = std::make_shared<fake_clock>();
  auto options = redlock_cluster::patience();
  options.service.time = time;
  auto locks = open_redlock_backend(urls, options).value();
  int attempts = 0;
  const auto ask = [&] {
    const auto r =
        resource_name::parse("r" + std::to_string(++attempts)).value();
    const auto got = locks->try_acquire(
        {r, owner_id::generate().value(), 1s, "test", time->now() + 10s});
    return got ? "ok" : got.error().message();
  };
  const auto refuse = [&](bool on) {
    for (auto* relay : {&to_0, &to_1}) {
      relay->refuse(on);
      relay->cut();
    }
  };
  // With two out of reach every answer counts, that of the third as well.
  const auto forgets = [&] {
    all[2].say({"FLUSHALL"});
    return eventually(
        [&] { return ask().find("in quarantine") != std::string::npos; });
  };
  ASSERT_EQ(ask(), "ok");
  const auto known = all[2].say({"GET", marker});
  refuse(true);
  ASSERT_TRUE(forgets());
  time->jump(40min);
  // What another client does when it admits a server.
  all[2].say({"SET", counter, "1000"});
  all[2].say({"SET", marker, known});
  all[2].say({"DEL", "lastdoor:{default}:redlock:note"});
  ASSERT_TRUE(forgets());
  refuse(false);
  time->jump(30min);
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(eventually([&] { return ask() == "ok"; }));
  }
  EXPECT_EQ(all[2].say({"GET", marker}), "<nil>")
      << "70 minutes, but not of it";
  time->jump(40min);
  EXPECT_TRUE(eventually([&] {
    return ask() == "ok" && all[2].say({"GET", marker}) == known;
  }));
}

// No server answers any more, and the end of the scope does not wait for one.
TEST(RedlockWaits, R25_TheDestructorWaitsForNoAnswer) {
  struct listener : observer {
    std::atomic<int> released{0};
    void on_event(const event& e) noexcept override {
      released += e.kind == event_kind::released ? 1 : 0;
    }
  };
  LASTDOOR_NEEDS_REDIS();
  const auto heard = std::make_shared<listener>();
  redlock_cluster all{5};
  const auto is_locked = [&](std::size_t k) {
    return all[k].say({"EXISTS", "lastdoor:{default}:redlock:lock:r"}) == "1";
  };
  {
    auto options = redlock_cluster::patience();
    options.service.observe = heard;
    auto locks = open_redlock(all.urls(), options).value();
    std::optional<lease> held;
    // Three answers are enough for a grant; here all have the lock.
    ASSERT_TRUE(eventually([&] {
      held.reset();
      held = locks.acquire("r", {.ttl = 1min, .wait_at_most = 10s}).value();
      return eventually(
          [&] {
            return is_locked(0) && is_locked(1) && is_locked(2) &&
                   is_locked(3) && is_locked(4);
          },
          std::chrono::seconds{1});
    }));
    for (std::size_t k = 0; k < all.size(); ++k) {
      // An answer not written yet would find the connection closed, and the
      // server would read no further.
      all[k].say({"PING"});
      all[k].pause();
    }
    const int before = heard->released;
    held.reset();
    // Nothing can have been confirmed, so nobody waited for it.
    EXPECT_EQ(heard->released, before + 1);
  }
  // It was sent, though the service is gone meanwhile.
  for (std::size_t k = 0; k < all.size(); ++k) {
    all[k].resume();
  }
  for (std::size_t k = 0; k < all.size(); ++k) {
    EXPECT_TRUE(eventually([&] { return !is_locked(k); })) << k;
  }
}

}  // namespace
