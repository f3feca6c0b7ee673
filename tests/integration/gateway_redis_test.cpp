// The gateway with the lock and the store on Redis.
#include <gtest/gtest.h>

#include <lastdoor/lastdoor.hpp>
#include <lastdoor/locks/redis.hpp>
#include <lastdoor/stores/redis.hpp>

#include "support/redis_client.hpp"
#include "support/temp_redis.hpp"

namespace {

using namespace std::chrono_literals;
using namespace lastdoor;
using namespace lastdoor::support;

// The same acquisition by a holder that never looks at its clock.
grant blind(const grant& g) {
  return {g.resource(), g.owner(), g.token(), g.source(), time_point::max()};
}

class GatewayRedis : public ::testing::Test {
 protected:
  void SetUp() override {
    LASTDOOR_NEEDS_REDIS();
    lock_server_ = std::make_unique<temp_redis>();
    store_server_ = std::make_unique<temp_redis>();
    redis_locks_options options;
    options.call_timeout = 5s;
    locks_.emplace(open_redis_locks(lock_server().url(), options).value());
    redis_store_options store_options;
    store_options.call_timeout = 20s;
    ASSERT_TRUE(create_redis_ledger(store_server().url()).value());
    store_.emplace(
        open_redis_store(store_server().url(), store_options).value());
    door_.emplace(*locks_, *store_);
  }
  temp_redis& lock_server() { return *lock_server_; }
  temp_redis& store_server() { return *store_server_; }
  redis_store& store() { return *store_; }
  gateway<redis_store>& door() { return *door_; }
  std::string stock() { return store_server().say({"GET", "stock"}); }

 private:
  std::unique_ptr<temp_redis> lock_server_;
  std::unique_ptr<temp_redis> store_server_;
  std::optional<lock_service> locks_;
  std::optional<redis_store> store_;
  std::optional<gateway<redis_store>> door_;
};

struct stock_keeper {
  void put(redis_commands& c, const std::string& key, int n) { c.set(key, n); }
  result<int> take(redis_commands& c, const std::string& key, int n) const {
    if (n > 5) {
      return fail(errc::precondition_failed, "that many at once?");
    }
    c.require(key, at_least(n)).add(key, -n);
    return n;
  }
};

TEST_F(GatewayRedis, WritesOfEveryKindGoThroughASession) {
  auto session = door().acquire("stock", {.ttl = 60s});
  ASSERT_EQ(outcome_of(session), "ok") << session.error().message();
  auto counted = session->write(redis_commands{}.add("stock", 10));
  EXPECT_EQ(counted.value().returned[0][0], value{10});
  EXPECT_EQ(
      outcome_of(session->write(upsert("items").key("sku", 1).set("qty", 3))),
      "ok");
  EXPECT_EQ(session
                ->transaction([](redis_commands& c) {
                  c.add("stock", -3);
                  return 7;
                })
                .value(),
            7);
  EXPECT_EQ(stock(), "7");
  EXPECT_EQ(outcome_of(session->release()), "ok");
  EXPECT_EQ(outcome_of(session->write(redis_commands{}.add("stock", 1))),
            "lease_lost");
  EXPECT_EQ(stock(), "7");
}

TEST_F(GatewayRedis, ARepositoryIsFencedAsItIs) {
  auto session = door().acquire("stock", {.ttl = 60s});
  ASSERT_EQ(outcome_of(session), "ok");
  stock_keeper keeper;
  fenced_repository stock_of{*session, keeper};
  stock_of.call(&stock_keeper::put, "stock", 9);
  EXPECT_EQ(stock_of.call([](auto& repo, redis_commands& c) {
    return repo.take(c, "stock", 4);
  }),
            4);
  EXPECT_EQ(stock(), "5");
  EXPECT_THROW(stock_of.call([](auto& repo, redis_commands& c) {
    c.set("stock", 0);
    return repo.take(c, "stock", 6);
  }),
               failure);
  EXPECT_EQ(stock(), "5") << "after an error nothing is sent";
}

TEST_F(GatewayRedis, X01_APausedHolderIsRefused) {
  auto first = door().acquire("stock", {.ttl = 2s, .renew = false});
  ASSERT_EQ(outcome_of(first), "ok");
  const auto old = blind(first->grant());
  ASSERT_EQ(outcome_of(store().write(old, redis_commands{}.set("stock", 5))),
            "ok");
  auto second = door().acquire("stock", {.ttl = 60s, .wait_at_most = 30s});
  ASSERT_EQ(outcome_of(second), "ok");
  // Before the second holder has written anything: the barrier stands.
  auto late = store().write(old, redis_commands{}.set("stock", 2));
  ASSERT_EQ(outcome_of(late), "stale_token");
  EXPECT_EQ(late.error().presented(), old.token().value());
  EXPECT_EQ(late.error().seen(), second->token().value());
  EXPECT_EQ(outcome_of(store().write(old, redis_commands{}.set("other", 2))),
            "stale_token")
      << "on keys that nobody has touched yet";
  EXPECT_EQ(outcome_of(second->write(redis_commands{}.set("stock", 4))), "ok");
  EXPECT_EQ(stock(), "4");
}

TEST_F(GatewayRedis, G8_ALockServerThatForgotGoesOnAboveTheMark) {
  auto session = door().acquire("stock", {.ttl = 60s});
  ASSERT_EQ(outcome_of(session), "ok");
  const auto before = session->token();
  ASSERT_EQ(outcome_of(session->release()), "ok");
  lock_server().restart_empty();
  auto again = door().acquire("stock", {.ttl = 60s, .wait_at_most = 30s});
  ASSERT_EQ(outcome_of(again), "ok") << again.error().message();
  EXPECT_GT(again->token(), before);
  EXPECT_EQ(outcome_of(again->write(redis_commands{}.set("stock", 1))), "ok");
}

TEST_F(GatewayRedis, G8_AMarkAboveTheServersClockRaisesTheSource) {
  // As if tokens came from a server whose clock was years ahead.
  const auto ahead =
      grant{resource_name::parse("stock").value(), owner_id::generate().value(),
            fencing_token::from(fencing_token::max / 2).value(),
            source_name::parse("redis/default").value(), time_point::max()};
  ASSERT_EQ(outcome_of(store().claim(ahead)), "ok");
  auto session = door().acquire("stock", {.ttl = 60s});
  ASSERT_EQ(outcome_of(session), "ok") << session.error().message();
  EXPECT_GT(session->token(), ahead.token());
}

TEST_F(GatewayRedis, F17_AStoreThatForgotLetsNobodyIn) {
  ASSERT_EQ(outcome_of(door().acquire("stock", {.ttl = 60s})), "ok");
  store_server().restart_empty();
  EXPECT_EQ(
      outcome_of(door().acquire("stock", {.ttl = 60s, .wait_at_most = 5s})),
      "schema_mismatch");
}

}  // namespace
