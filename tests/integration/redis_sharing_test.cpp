// Many callers on one connection of the Redis driver.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <thread>
#include <vector>

#include "support/redis_loop_fixture.hpp"
#include "support/tcp_proxy.hpp"

namespace {

using namespace std::chrono_literals;
using namespace lastdoor::redis_driver;
using namespace lastdoor::redis_driver::testing;
using lastdoor::support::eventually;
using lastdoor::support::tcp_proxy;

using RedisSharing = redis_loop_test;

TEST_F(RedisSharing, ThreadsShareOneConnectionAndGetTheirOwnAnswers) {
  tcp_proxy between{server().port()};
  auto loop = new_loop();
  auto& n = loop->add(to(between.redis_url()));
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 200; ++i) {
        const auto mine = std::to_string(t) + "/" + std::to_string(i);
        wrong += ask(*loop, n, {"ECHO", mine}) == mine ? 0 : 1;
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(between.connections(), 1);
}

// With an answer that nobody has read, and another that will find nobody.
TEST_F(RedisSharing, WhatWasSentLastIsDoneAlthoughTheLoopIsGone) {
  {
    auto loop = new_loop();
    auto& n = loop->add(to(server().url()));
    ASSERT_EQ(ask(*loop, n, {"ECHO", "x"}), "x");
    {
      session here{*loop};
      n.send(here, {"SET", "first", "1"});
    }
    ASSERT_TRUE(eventually([&] {
      return server().say({"GET", "first"}) == "1";
    }));
    server().pause();
    session here{*loop};
    n.send(here, {"SET", "last", "1"});
  }
  server().resume();
  EXPECT_TRUE(eventually([&] { return server().say({"GET", "last"}) == "1"; }));
}

// A lease of static storage is released when the thread-local objects of the
// main thread are gone already.
TEST_F(RedisSharing, ACallMayComeWhileTheProcessEnds) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  const auto ends = [&] {
    struct last_call {
      std::unique_ptr<loop> where{new_loop()};
      node* to_whom{nullptr};
      ~last_call() {
        if (to_whom != nullptr) {
          std::cerr << ask(*where, *to_whom, {"ECHO", "still here"});
        }
      }
    };
    static last_call call;
    call.to_whom = &call.where->add(to(server().url()));
    std::cerr << ask(*call.where, *call.to_whom, {"ECHO", "once, "});
    std::exit(0);
  };
  EXPECT_EXIT(ends(), ::testing::ExitedWithCode(0), "once, still here");
}

TEST_F(RedisSharing, CommandsOfManyCallersTravelTogether) {
  constexpr int threads = 16;
  constexpr int each = 200;
  auto loop = new_loop();
  auto& n = loop->add(to(server().url()));
  ASSERT_EQ(ask(*loop, n, {"ECHO", "x"}), "x");
  const auto before = n.writes();
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&] {
      for (int i = 0; i < each; ++i) {
        EXPECT_EQ(ask(*loop, n, {"ECHO", "x"}), "x");
      }
    });
  }
  for (auto& thread : all) {
    thread.join();
  }
  EXPECT_LT(n.writes() - before, threads * each / 2);
}

// The one that drives waits for a server that is stopped; the other gets its
// answer all the same, and drives when the first has gone.
TEST_F(RedisSharing, LeaderServesFollowersAndHandsOver) {
  temp_redis stopped;
  auto loop = new_loop();
  auto& slow = loop->add(to(stopped.url()));
  auto& quick = loop->add(to(server().url()));
  ASSERT_EQ(ask(*loop, slow, {"ECHO", "x"}), "x");
  ASSERT_EQ(ask(*loop, quick, {"ECHO", "x"}), "x");
  stopped.pause();
  std::atomic<bool> leads{false};
  std::atomic<bool> follower_done{false};
  std::string led;
  std::thread leader{[&] {
    session here{*loop};
    const auto t = slow.send(here, {"ECHO", "led"});
    here.wait(
        [&] {
          leads = true;
          return t->settled();
        },
        in(20s));
    led = t->state() == fate::replied ? t->answer().text() : "none";
  }};
  ASSERT_TRUE(eventually([&] { return leads.load(); }));
  std::thread follower{[&] {
    for (int i = 0; i < 100; ++i) {
      ASSERT_EQ(ask(*loop, quick, {"ECHO", "y"}), "y");
    }
    follower_done = true;
  }};
  EXPECT_TRUE(eventually([&] { return follower_done.load(); }));
  stopped.resume();
  leader.join();
  follower.join();
  EXPECT_EQ(led, "led");
  EXPECT_EQ(ask(*loop, quick, {"ECHO", "z"}), "z");
}

}  // namespace
