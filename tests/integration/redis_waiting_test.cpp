// Those who wait: woken by releases, and no burden to the server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <csignal>
#include <thread>
#include <vector>

#include "support/redis_client.hpp"
#include "support/signals.hpp"
#include "support/tcp_proxy.hpp"
#include "support/temp_redis.hpp"

namespace {

using namespace std::chrono_literals;
using namespace lastdoor::support;
using lastdoor::boot_clock;
using lastdoor::resource_name;

class RedisWaiting : public ::testing::Test {
 protected:
  void SetUp() override {
    LASTDOOR_NEEDS_REDIS();
    server_ = std::make_unique<temp_redis>();
  }
  temp_redis& server() { return *server_; }
  bool subscribed() {
    return server().say({"PUBSUB", "CHANNELS"}).find("free:r") !=
           std::string::npos;
  }
  static bool rings(lastdoor::alarm& bell) {
    return bell.wait_until(boot_clock()->now() + 30s);
  }
  static resource_name r() { return resource_name::parse("r").value(); }

 private:
  std::unique_ptr<temp_redis> server_;
};

TEST_F(RedisWaiting, ReleaseRingsTheBellOfThoseWhoWatch) {
  redis_client holder{server().url()};
  redis_client waiter{server().url()};
  auto g = holder.acquire("r");
  ASSERT_EQ(outcome_of(g), "ok");
  auto bell = boot_clock()->make_alarm();
  const auto watching = waiter.backend().watch(r(), *bell);
  ASSERT_NE(watching, nullptr);
  EXPECT_TRUE(rings(*bell)) << "once, when listening has begun";
  EXPECT_EQ(outcome_of(holder.release(*g)), "ok");
  EXPECT_TRUE(rings(*bell));
}

// A release between somebody's last look and this moment was told already.
TEST_F(RedisWaiting, WhoComesWhileOthersListenLooksOnceMore) {
  redis_client waiter{server().url()};
  auto bell = boot_clock()->make_alarm();
  const auto watching = waiter.backend().watch(r(), *bell);
  ASSERT_TRUE(rings(*bell));
  auto late = boot_clock()->make_alarm();
  const auto too = waiter.backend().watch(r(), *late);
  EXPECT_TRUE(rings(*late));
  EXPECT_FALSE(bell->wait_until(boot_clock()->now() + 50ms));
}

TEST_F(RedisWaiting, ItsThreadTakesNoSignals) {
  redis_client waiter{server().url()};
  auto bell = boot_clock()->make_alarm();
  const auto before = threads_that_take(SIGTERM);
  const auto watching = waiter.backend().watch(r(), *bell);
  ASSERT_TRUE(rings(*bell)) << "it is at work";
  EXPECT_EQ(threads_that_take(SIGTERM), before);
}

TEST_F(RedisWaiting, BellIsSilentOnceNobodyWatches) {
  redis_client holder{server().url()};
  redis_client waiter{server().url()};
  auto bell = boot_clock()->make_alarm();
  auto other = boot_clock()->make_alarm();
  auto watching = waiter.backend().watch(r(), *bell);
  const auto stays = waiter.backend().watch(r(), *other);
  ASSERT_TRUE(rings(*bell));
  ASSERT_TRUE(rings(*other));
  watching.reset();
  ASSERT_NE(holder.token_of("r"), 0);
  EXPECT_TRUE(rings(*other));
  EXPECT_FALSE(bell->wait_until(boot_clock()->now()));
}

TEST_F(RedisWaiting, ListenerComesBackAfterItsConnectionBroke) {
  tcp_proxy between{server().port()};
  redis_client holder{server().url()};
  redis_client waiter{between.redis_url()};
  auto bell = boot_clock()->make_alarm();
  const auto watching = waiter.backend().watch(r(), *bell);
  ASSERT_TRUE(rings(*bell));
  between.cut();
  EXPECT_TRUE(rings(*bell)) << "what was told meanwhile was missed";
  ASSERT_TRUE(subscribed());
  ASSERT_NE(holder.token_of("r"), 0);
  EXPECT_TRUE(rings(*bell));
}

TEST_F(RedisWaiting, NobodyListensWhenNobodyWaits) {
  redis_client waiter{server().url()};
  auto bell = boot_clock()->make_alarm();
  auto watching = waiter.backend().watch(r(), *bell);
  ASSERT_TRUE(rings(*bell));
  EXPECT_TRUE(subscribed());
  watching.reset();
  EXPECT_TRUE(eventually([&] { return !subscribed(); }));
  // And the connection goes after a while; the test's own remains.
  EXPECT_TRUE(
      eventually([&] { return server().info("connected_clients") == "1"; }));
  watching = waiter.backend().watch(r(), *bell);
  EXPECT_TRUE(rings(*bell)) << "it can begin again";
}

TEST_F(RedisWaiting, WatchingADeadServerIsHarmless) {
  redis_client waiter{"redis://127.0.0.1:" + std::to_string(free_port())};
  auto bell = boot_clock()->make_alarm();
  for (int i = 0; i < 20; ++i) {
    const auto watching = waiter.backend().watch(r(), *bell);
  }
  const auto watching = waiter.backend().watch(r(), *bell);
  EXPECT_FALSE(bell->wait_until(boot_clock()->now() + 300ms));
}

// A waiter is granted the lease soon after the release, not at the next poll.
TEST_F(RedisWaiting, WaiterIsWokenByTheRelease) {
  auto a = lastdoor::open_redis_locks(server().url()).value();
  auto b = lastdoor::open_redis_locks(server().url()).value();
  auto held = a.acquire("r", {.ttl = 10min, .renew = false});
  ASSERT_EQ(outcome_of(held), "ok");
  std::string outcome;
  lastdoor::duration took{0};
  std::thread waiter{[&] {
    auto got = b.acquire("r", {.ttl = 60s,
                               .wait_at_most = 10min,
                               .backoff = {.first = 5min, .cap = 5min}});
    took = boot_clock()->now().time_since_epoch();
    outcome = outcome_of(got);
  }};
  ASSERT_TRUE(eventually([&] { return subscribed(); }));
  EXPECT_EQ(outcome_of(held->release()), "ok");
  waiter.join();
  EXPECT_EQ(outcome, "ok");
}

// R36: 50 parties wait, each with a service of its own as in 50 processes.
// The limit: 10 commands a second for each of them. Pauses double from 5 ms to
// 500 ms and are drawn from [0, pause), so two a second is what they come to.
TEST_F(RedisWaiting, R36_FiftyWaitersKeepToABudget) {
  auto holder = lastdoor::open_redis_locks(server().url()).value();
  auto held = holder.acquire("r", {.ttl = 10min, .renew = false});
  ASSERT_EQ(outcome_of(held), "ok");
  std::atomic<int> granted{0};
  std::vector<std::thread> waiters;
  for (int i = 0; i < 50; ++i) {
    waiters.emplace_back([&] {
      auto locks = lastdoor::open_redis_locks(server().url()).value();
      auto lease = locks.acquire("r", {.ttl = 10min, .wait_at_most = 5min});
      granted += lease.has_value() ? 1 : 0;
      if (lease) {
        lease->release().ignore();
      }
    });
  }
  ASSERT_TRUE(eventually([&] {
    return server().say({"PUBSUB", "NUMSUB", "lastdoor:{default}:free:r"}) ==
           "lastdoor:{default}:free:r,50";
  }));
  server().say({"CONFIG", "RESETSTAT"});
  const auto begin = boot_clock()->now();
  (void)eventually([&] { return boot_clock()->now() > begin + 4s; });
  const auto commands = server().calls("evalsha") + server().calls("eval");
  const auto seconds =
      std::chrono::duration<double>(boot_clock()->now() - begin).count();
  EXPECT_LE(static_cast<double>(commands), 50 * 10 * seconds);
  EXPECT_GT(commands, 0) << "they poll all the same";
  EXPECT_EQ(outcome_of(held->release()), "ok");
  for (auto& waiter : waiters) {
    waiter.join();
  }
  EXPECT_EQ(granted, 50);
}

// R39
TEST_F(RedisWaiting, R39_WaitIsAsLongAsAskedFor) {
  auto a = lastdoor::open_redis_locks(server().url()).value();
  auto b = lastdoor::open_redis_locks(server().url()).value();
  auto held = a.acquire("r", {.ttl = 10min, .renew = false});
  ASSERT_EQ(outcome_of(held), "ok");
  const auto before = boot_clock()->now();
  EXPECT_EQ(outcome_of(b.acquire("r", {.wait_at_most = 250ms})), "busy");
  const auto waited = boot_clock()->now() - before;
  EXPECT_GE(waited, 240ms);
  EXPECT_LT(waited, 20s);
  server().say({"CONFIG", "RESETSTAT"});
  EXPECT_EQ(outcome_of(b.acquire("r")), "busy");
  EXPECT_EQ(server().calls("evalsha"), 1);
  EXPECT_EQ(outcome_of(held->release()), "ok");
  EXPECT_EQ(outcome_of(b.acquire("r")), "ok") << "no wait, and free";
}

TEST_F(RedisWaiting, R39_UnrenewedLeaseIsGoneAfterItsTtl) {
  auto locks = lastdoor::open_redis_locks(server().url()).value();
  auto lease = locks.acquire("r", {.ttl = 2s, .renew = false});
  ASSERT_EQ(outcome_of(lease), "ok");
  EXPECT_EQ(server().say({"EXISTS", lock_key("r")}), "1");
  EXPECT_TRUE(eventually([&] {
    return server().say({"EXISTS", lock_key("r")}) == "0";
  }));
  EXPECT_TRUE(eventually([&] { return lease->lost().stop_requested(); }));
}

}  // namespace
