// Requests that arrive and answers that do not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <vector>

#include "support/redis_client.hpp"
#include "support/tcp_proxy.hpp"
#include "support/temp_redis.hpp"

namespace {

using namespace std::chrono_literals;
using namespace lastdoor::support;
using lastdoor::boot_clock;
using lastdoor::errc;

class RedisLostAnswers : public ::testing::Test {
 protected:
  void SetUp() override {
    LASTDOOR_NEEDS_REDIS();
    server_ = std::make_unique<temp_redis>();
    between_ = std::make_unique<tcp_proxy>(server().port());
    client_ = std::make_unique<redis_client>(between().redis_url(),
                                             redis_client::patient());
    ASSERT_NE(client().token_of("first"), 0);
  }
  temp_redis& server() { return *server_; }
  tcp_proxy& between() { return *between_; }
  redis_client& client() { return *client_; }
  bool locked(const std::string& name) {
    return server().say({"EXISTS", lock_key(name)}) == "1";
  }

 private:
  std::unique_ptr<temp_redis> server_;
  std::unique_ptr<tcp_proxy> between_;
  std::unique_ptr<redis_client> client_;
};

TEST_F(RedisLostAnswers, R09_LostGrantIsUndoneWithinTheCall) {
  redis_client other{server().url()};
  between().lose_next_reply();
  auto lost = client().acquire("r", 10min);
  EXPECT_EQ(outcome_of(lost), "in_doubt");
  EXPECT_EQ(between().lost_replies(), 1);
  EXPECT_FALSE(locked("r"));
  EXPECT_EQ(outcome_of(other.acquire("r")), "ok");
}

// Neither the answer nor the undoing gets through within the call; the next
// one, of whatever kind, cleans up.
TEST_F(RedisLostAnswers, R09_LostGrantIsUndoneOnceTheLinkIsBack) {
  between().hold_replies(true);
  std::thread caller{[&] {
    EXPECT_EQ(outcome_of(client().acquire("r", 10min, 1s)), "in_doubt");
  }};
  ASSERT_TRUE(eventually([&] { return locked("r"); }));
  between().hold_requests(true);
  caller.join();
  ASSERT_TRUE(locked("r"));
  between().refuse(true);
  between().cut();
  between().hold_requests(false);
  between().hold_replies(false);
  EXPECT_TRUE(eventually(
      [&] { return outcome_of(client().inspect("other")) == "unavailable"; }));
  EXPECT_TRUE(locked("r"));
  between().refuse(false);
  EXPECT_TRUE(eventually(
      [&] { return outcome_of(client().inspect("other")) == "ok"; }));
  EXPECT_TRUE(eventually([&] { return !locked("r"); }));
}

// Both travel on one connection, in order: however late the first is carried
// out, the second comes after it.
TEST_F(RedisLostAnswers, R09_LateGrantIsFollowedByItsUndoing) {
  between().hold_requests(true);
  EXPECT_EQ(outcome_of(client().acquire("r", 10min, 50ms)), "in_doubt");
  EXPECT_FALSE(locked("r")) << "it has not arrived yet";
  const auto before = server().number({"GET", counter_key});
  between().hold_requests(false);
  EXPECT_TRUE(eventually([&] {
    return server().number({"GET", counter_key}) > before && !locked("r");
  }));
}

TEST_F(RedisLostAnswers, R10_ClientIsNotInItsOwnWay) {
  between().lose_next_reply();
  EXPECT_EQ(outcome_of(client().acquire("r", 10min)), "in_doubt");
  EXPECT_EQ(outcome_of(client().acquire("r", 10min)), "ok");

  between().hold_replies(true);
  EXPECT_EQ(outcome_of(client().acquire("s", 10min, 50ms)), "in_doubt");
  between().hold_replies(false);
  EXPECT_EQ(outcome_of(client().acquire("s", 10min)), "ok");
}

TEST_F(RedisLostAnswers, R24_ReleaseInDoubtIsRecognisedWhenRepeated) {
  auto g = client().acquire("r", 10min);
  ASSERT_EQ(outcome_of(g), "ok");
  between().hold_replies(true);
  EXPECT_EQ(outcome_of(client().release(*g, 50ms)), "in_doubt");
  EXPECT_TRUE(eventually([&] { return !locked("r"); }));
  between().hold_replies(false);
  EXPECT_EQ(outcome_of(client().release(*g)), "ok");
}

// The same, and meanwhile the resource went to another.
TEST_F(RedisLostAnswers, R24_RepeatedReleaseDoesNotFreeTheNextHolder) {
  auto g = client().acquire("r", 10min);
  ASSERT_EQ(outcome_of(g), "ok");
  between().hold_replies(true);
  EXPECT_EQ(outcome_of(client().release(*g, 50ms)), "in_doubt");
  redis_client other{server().url()};
  lastdoor::result<lastdoor::grant> next = lastdoor::fail(errc::busy, "");
  ASSERT_TRUE(eventually([&] {
    next = other.acquire("r");
    return next.has_value();
  }));
  between().hold_replies(false);
  EXPECT_EQ(outcome_of(client().release(*g)), "ok");
  EXPECT_EQ(outcome_of(other.renew(*next)), "ok");
}

TEST_F(RedisLostAnswers, ReleaseIsRepeatedWithinTheCallWhenTheLinkBreaks) {
  auto g = client().acquire("r", 10min);
  ASSERT_EQ(outcome_of(g), "ok");
  between().lose_next_reply();
  EXPECT_EQ(outcome_of(client().release(*g)), "ok");
  EXPECT_EQ(between().lost_replies(), 1);
  EXPECT_FALSE(locked("r"));
}

TEST_F(RedisLostAnswers, R24_UnsentReleaseIsUnavailableAndCanBeRepeated) {
  auto g = client().acquire("r", 10min);
  ASSERT_EQ(outcome_of(g), "ok");
  between().refuse(true);
  between().cut();
  // The first may find the connection not yet known to be dead.
  EXPECT_TRUE(eventually([&] {
    return outcome_of(client().release(*g)) == "unavailable";
  })) << outcome_of(client().release(*g));
  EXPECT_TRUE(locked("r"));
  between().refuse(false);
  EXPECT_TRUE(
      eventually([&] { return outcome_of(client().release(*g)) == "ok"; }));
  EXPECT_FALSE(locked("r"));
}

TEST_F(RedisLostAnswers, RenewalIsRepeatedWithinTheCallWhenTheLinkBreaks) {
  auto g = client().acquire("r", 5min);
  ASSERT_EQ(outcome_of(g), "ok");
  between().lose_next_reply();
  const auto before = boot_clock()->now();
  auto renewed = client().renew(*g, 10min);
  ASSERT_EQ(outcome_of(renewed), "ok");
  EXPECT_LE(*renewed, boot_clock()->now() + 10min);
  EXPECT_GE(*renewed, before + 10min - 7s);
}

TEST_F(RedisLostAnswers, ConnectionThatBrokeIsReplacedInTheNextCall) {
  auto g = client().acquire("r", 10min);
  ASSERT_EQ(outcome_of(g), "ok");
  between().cut();
  EXPECT_EQ(outcome_of(client().renew(*g)), "ok");
  between().cut();
  EXPECT_EQ(outcome_of(client().release(*g)), "ok");
}

// R26: a client that is killed leaves nothing without an end.
TEST_F(RedisLostAnswers, R26_ConnectionsThatEndAnywhereLeaveNoLastingLock) {
  for (int i = 0; i < 50; ++i) {
    std::thread cutter{[&] { between().cut(); }};
    auto g = client().acquire("r", 100ms);
    cutter.join();
    const auto ttl = server().number({"PTTL", lock_key("r")});
    ASSERT_TRUE(ttl == -2 || (ttl >= 0 && ttl <= 100)) << ttl;
    if (g) {
      client().release(*g).ignore();
    }
  }
}

// ---- through the service

class recorder final : public lastdoor::observer {
 public:
  void on_event(const lastdoor::event& e) noexcept override {
    const std::lock_guard lock{mutex_};
    seen_.push_back(e.kind);
  }
  std::ptrdiff_t count(lastdoor::event_kind kind) {
    const std::lock_guard lock{mutex_};
    return std::count(seen_.begin(), seen_.end(), kind);
  }

 private:
  std::mutex mutex_;
  std::vector<lastdoor::event_kind> seen_;
};

TEST_F(RedisLostAnswers, R22_LeaseOutlivesAShortOutage) {
  auto events = std::make_shared<recorder>();
  lastdoor::redis_locks_options options;
  options.call_timeout = 300ms;
  options.service.observe = events;
  auto locks =
      lastdoor::open_redis_locks(between().redis_url(), options).value();
  auto lease = locks.acquire(
      "r", {.ttl = 8s, .renew_every = 100ms, .loss_margin = 500ms});
  ASSERT_EQ(outcome_of(lease), "ok");
  ASSERT_TRUE(eventually(
      [&] { return events->count(lastdoor::event_kind::renewed) >= 2; }));
  between().refuse(true);
  between().cut();
  ASSERT_TRUE(eventually(
      [&] { return events->count(lastdoor::event_kind::renew_failed) >= 1; }));
  between().refuse(false);
  const auto before = events->count(lastdoor::event_kind::renewed);
  EXPECT_TRUE(eventually([&] {
    return events->count(lastdoor::event_kind::renewed) >= before + 2;
  }));
  EXPECT_FALSE(lease->lost().stop_requested());
  EXPECT_EQ(outcome_of(lease->release()), "ok");
}

TEST_F(RedisLostAnswers, R22_LongOutageIsToldBeforeValidityEndsAndOnce) {
  auto events = std::make_shared<recorder>();
  lastdoor::redis_locks_options options;
  options.call_timeout = 300ms;
  options.service.observe = events;
  auto locks =
      lastdoor::open_redis_locks(between().redis_url(), options).value();
  auto lease = locks.acquire("r", {.ttl = 2s, .loss_margin = 500ms});
  ASSERT_EQ(outcome_of(lease), "ok");
  server().pause();
  ASSERT_TRUE(eventually([&] { return lease->lost().stop_requested(); }));
  EXPECT_EQ(lease->why_lost(), lastdoor::loss_reason::unconfirmed);
  server().resume();
  EXPECT_EQ(outcome_of(lease->renew()), "lease_lost");
  EXPECT_EQ(events->count(lastdoor::event_kind::lost), 1);
  // A new grant is renewed like any other.
  lastdoor::result<lastdoor::lease> next = lastdoor::fail(errc::busy, "");
  ASSERT_TRUE(eventually([&] {
    next = locks.acquire("r", {.ttl = 8s, .renew_every = 100ms});
    return next.has_value();
  }));
  const auto before = events->count(lastdoor::event_kind::renewed);
  EXPECT_TRUE(eventually(
      [&] { return events->count(lastdoor::event_kind::renewed) > before; }));
  EXPECT_EQ(outcome_of(next->release()), "ok");
}

}  // namespace
