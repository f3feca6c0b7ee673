// Leases on a healthy server: what is sent, what is stored, what is refused.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <climits>
#include <thread>

#include "support/redis_client.hpp"
#include "support/tcp_proxy.hpp"
#include "support/temp_redis.hpp"

namespace {

using namespace std::chrono_literals;
using namespace lastdoor::support;
using lastdoor::duration;
using lastdoor::errc;
using lastdoor::fencing_token;
using lastdoor::mark;
using ::testing::HasSubstr;

class RedisLocks : public ::testing::Test {
 protected:
  void SetUp() override {
    LASTDOOR_NEEDS_REDIS();
    server_ = std::make_unique<temp_redis>();
    client_ = std::make_unique<redis_client>(server().url());
  }
  temp_redis& server() { return *server_; }
  redis_client& client() { return *client_; }

 private:
  std::unique_ptr<temp_redis> server_;
  std::unique_ptr<redis_client> client_;
};

// R17: lock and token in one request, so nothing can come between them.
TEST_F(RedisLocks, R17_GrantAndTokenAreOneRequest) {
  ASSERT_NE(client().token_of("first"), 0) << "connects, loads the scripts";
  server().say({"CONFIG", "RESETSTAT"});
  auto g = client().acquire("r");
  ASSERT_EQ(outcome_of(g), "ok");
  EXPECT_EQ(server().calls("evalsha"), 1);
  ASSERT_EQ(outcome_of(client().release(*g)), "ok");
  EXPECT_EQ(server().calls("evalsha"), 2);
  EXPECT_EQ(server().calls("eval"), 0);
  EXPECT_EQ(server().calls("ping"), 0);
}

// R18: the token of the grant stays when the resource moves on.
TEST_F(RedisLocks, R18_TokenIsFixedInTheGrant) {
  auto a = client().acquire("r", 1s);
  ASSERT_EQ(outcome_of(a), "ok");
  const auto mine = a->token();
  lastdoor::result<lastdoor::grant> b = lastdoor::fail(errc::busy, "");
  ASSERT_TRUE(eventually([&] {
    b = client().acquire("r");
    return b.has_value();
  }));
  EXPECT_EQ(a->token(), mine);
  EXPECT_GT(b->token(), mine);
  EXPECT_EQ(outcome_of(client().release(*a)), "not_owner");
}

TEST_F(RedisLocks, R19_CounterOutlivesEveryLeaseAndHasNoTtl) {
  std::int64_t last = 0;
  for (int i = 0; i < 3; ++i) {
    const auto token = client().token_of("r");
    EXPECT_GT(token, last);
    last = token;
  }
  EXPECT_EQ(server().say({"TTL", counter_key}), "-1");
  EXPECT_EQ(server().say({"TTL", marker_key}), "-1");
  EXPECT_EQ(server().say({"GET", counter_key}), std::to_string(last));
}

// R26, and nothing is left of a resource that is free.
TEST_F(RedisLocks, R26_LockAlwaysHasATtlAndLeavesNothingBehind) {
  ASSERT_NE(client().token_of("other"), 0);
  const auto keys = server().say({"DBSIZE"});
  auto g = client().acquire("r", 60s);
  ASSERT_EQ(outcome_of(g), "ok");
  const auto ttl = server().number({"PTTL", lock_key("r")});
  EXPECT_GT(ttl, 50'000);
  EXPECT_LE(ttl, 60'000);
  ASSERT_EQ(outcome_of(client().release(*g)), "ok");
  EXPECT_EQ(server().say({"DBSIZE"}), keys);
}

TEST_F(RedisLocks, R21_TtlOutsideTheRangeIsRefusedBeforeAnyTraffic) {
  auto held = client().acquire("held");
  ASSERT_EQ(outcome_of(held), "ok");
  server().say({"CONFIG", "RESETSTAT"});
  for (const auto ttl :
       {duration{0}, duration{-1ms}, duration{999us}, duration{1ms - 1ns},
        duration::min(), duration::max(), duration{31 * 24h}}) {
    EXPECT_EQ(outcome_of(client().acquire("r", ttl)), "invalid_argument")
        << ttl.count();
    EXPECT_EQ(outcome_of(client().renew(*held, ttl)), "invalid_argument")
        << ttl.count();
  }
  EXPECT_EQ(server().calls("evalsha") + server().calls("eval"), 0);
  EXPECT_GT(server().number({"PTTL", lock_key("held")}), 0);
  // It is taken; a busy machine may be slower than it.
  EXPECT_THAT(outcome_of(client().acquire("shortest", 1ms)),
              ::testing::AnyOf("ok", "too_slow"));
  auto longest = client().acquire("longest", client().backend().max_ttl());
  ASSERT_EQ(outcome_of(longest), "ok");
  EXPECT_GT(server().number({"PTTL", lock_key("longest")}), 29LL * 86'400'000);
}

TEST_F(RedisLocks, R21_TtlIsRoundedUpOnTheServerAndNotForTheHolder) {
  const auto before = lastdoor::boot_clock()->now();
  auto g = client().acquire("r", 1000ms + 1ns);
  const auto after = lastdoor::boot_clock()->now();
  ASSERT_EQ(outcome_of(g), "ok");
  EXPECT_LE(g->valid_until(), after + 1000ms + 1ns - 12ms);
  EXPECT_GE(g->valid_until(), before + 1000ms - 13ms);
  server().say({"SET", "sample", "x", "PX", "1001"});
  EXPECT_LE(server().number({"PTTL", lock_key("r")}), 1001);
}

// R05: 1 % of the TTL and 2 ms for clocks that run differently.
TEST_F(RedisLocks, R05_ValidityCountsFromBeforeTheRequest) {
  tcp_proxy between{server().port()};
  redis_client far{between.redis_url()};
  ASSERT_NE(far.token_of("r"), 0);
  between.delay(50ms);
  const auto before = lastdoor::boot_clock()->now();
  auto g = far.acquire("r", 10s);
  ASSERT_EQ(outcome_of(g), "ok");
  EXPECT_GE(g->valid_until(), before + 10s - 102ms);
  // Counted from the answer it would be 100 ms later.
  EXPECT_LT(g->valid_until(),
            lastdoor::boot_clock()->now() + 10s - 102ms - 90ms);
}

// R28: a user's braces do not move a key to another slot.
TEST(RedisCluster, R28_AllKeysOfANameSpaceShareASlot) {
  LASTDOOR_NEEDS_REDIS();
  temp_redis server{{.settings = cluster_settings()}};
  server.own_all_slots();
  redis_client client{server.url()};
  for (const auto* name : {"a", "{a}b", "a{b", "}{", "{}", "{}{b}", "{", "}"}) {
    SCOPED_TRACE(name);
    auto g = client.acquire(name);
    ASSERT_EQ(outcome_of(g), "ok") << g.error().message();
    EXPECT_EQ(outcome_of(client.renew(*g)), "ok");
    EXPECT_EQ(outcome_of(client.inspect(name)), "ok");
    EXPECT_EQ(outcome_of(client.release(*g)), "ok");
    EXPECT_EQ(server.say({"CLUSTER", "KEYSLOT", lock_key(name)}),
              server.say({"CLUSTER", "KEYSLOT", counter_key}));
  }
}

TEST(RedisCluster, R28_SlotOfAnotherNodeIsMisconfigured) {
  LASTDOOR_NEEDS_REDIS();
  temp_redis owner{{.settings = cluster_settings()}};
  temp_redis other{{.settings = cluster_settings()}};
  redis_client client{other.url()};
  EXPECT_EQ(word_of(client.acquire("r")), "unavailable CLUSTERDOWN");
  owner.own_all_slots();
  // Its bus is not always at the usual distance from its port.
  ASSERT_EQ(other.say({"CLUSTER", "MEET", "127.0.0.1",
                       std::to_string(owner.port()), owner.cluster_port()}),
            "OK");
  ASSERT_TRUE(eventually([&] { return other.serves_slots(); }));
  EXPECT_EQ(word_of(client.acquire("r")), "misconfigured MOVED");
}

TEST_F(RedisLocks, R29_KeyOfSomebodyElseIsNotTakenForALock) {
  ASSERT_NE(client().token_of("other"), 0);
  server().say({"HSET", lock_key("hash"), "a", "1"});
  server().say({"SET", lock_key("string"), "something"});
  for (const auto* name : {"hash", "string"}) {
    SCOPED_TRACE(name);
    const auto before = server().say({"TYPE", lock_key(name)});
    auto refused = client().acquire(name);
    EXPECT_EQ(outcome_of(refused), "misconfigured");
    EXPECT_EQ(refused.error().resource(), name);
    EXPECT_THAT(refused.error().message(), HasSubstr(lock_key(name)));
    EXPECT_EQ(outcome_of(client().inspect(name)), "misconfigured");
    EXPECT_EQ(server().say({"TYPE", lock_key(name)}), before);
  }
}

TEST_F(RedisLocks, R29_NameSpacesDoNotMeet) {
  redis_client jobs{server().url(), {.name_space = "jobs"}};
  auto a = client().acquire("r");
  auto b = jobs.acquire("r");
  ASSERT_EQ(outcome_of(a), "ok");
  ASSERT_EQ(outcome_of(b), "ok");
  EXPECT_EQ(outcome_of(jobs.release(*a)), "not_owner");
  EXPECT_EQ(jobs.backend().source().str(), "redis/jobs");
  EXPECT_EQ(outcome_of(client().release(*a)), "ok");
}

// R35, and no lock is left behind.
TEST_F(RedisLocks, R35_CounterAtItsEndOrNoNumberGrantsNothing) {
  ASSERT_NE(client().token_of("first"), 0);
  struct sample {
    std::string value;
    std::string outcome;
  };
  for (const auto& [value, outcome] :
       std::vector<sample>{{"9223372036854775807", "token_exhausted"},
                           {"9223372036854775806", "token_exhausted"},
                           {"9007199254740991", "token_exhausted"},
                           {"abc", "damaged"},
                           {"1.5", "damaged"},
                           {"0x10", "damaged"},
                           {"", "damaged"},
                           {"-7", "damaged"},
                           {"99999999999999999999", "damaged"}}) {
    SCOPED_TRACE(value);
    server().say({"SET", counter_key, value});
    EXPECT_EQ(outcome_of(client().acquire("r")), outcome);
    EXPECT_EQ(server().say({"EXISTS", lock_key("r")}), "0");
    EXPECT_EQ(outcome_of(client().acquire("r")), outcome) << "and it lasts";
  }
  server().say({"DEL", counter_key});
  server().say({"RPUSH", counter_key, "1"});
  EXPECT_EQ(outcome_of(client().acquire("r")), "damaged");
  EXPECT_EQ(server().say({"EXISTS", lock_key("r")}), "0");
  EXPECT_EQ(server().say({"TYPE", counter_key}), "list");
}

// The same while the counter would have to be raised first.
TEST_F(RedisLocks, R35_DamagedCounterIsNotRepairedByForgetting) {
  ASSERT_NE(client().token_of("first"), 0);
  for (const auto* value : {"abc", "-7", "1.5"}) {
    SCOPED_TRACE(value);
    server().say({"SET", counter_key, value});
    server().say({"DEL", marker_key});
    EXPECT_EQ(outcome_of(client().acquire("r")), "damaged");
    EXPECT_EQ(server().say({"GET", counter_key}), value);
  }
  server().say({"SET", counter_key, "9007199254740991"});
  EXPECT_EQ(outcome_of(client().acquire("r")), "token_exhausted");
  server().say({"SET", counter_key, "abc"});
  EXPECT_EQ(outcome_of(client().backend().raise_floor(mark{})), "damaged");
}

TEST_F(RedisLocks, R35_LastTokenIsGranted) {
  ASSERT_NE(client().token_of("first"), 0);
  server().say({"SET", counter_key, "9007199254740990"});
  EXPECT_EQ(client().token_of("last"), fencing_token::max);
  EXPECT_EQ(outcome_of(client().acquire("beyond")), "token_exhausted");
}

TEST_F(RedisLocks, R40_SecondAcquisitionByTheHolderIsBusy) {
  auto g = client().acquire("r");
  ASSERT_EQ(outcome_of(g), "ok");
  auto again = client().acquire("r");
  ASSERT_EQ(outcome_of(again), "busy");
  EXPECT_THAT(again.error().message(), HasSubstr("host:1"));
  EXPECT_GT(again.error().retry_after_ms(), 50'000);
  EXPECT_EQ(outcome_of(client().release(*g)), "ok") << "and is still the one";
}

TEST_F(RedisLocks, R24_SecondReleaseIsHarmlessAndSaysSo) {
  auto g = client().acquire("r");
  ASSERT_EQ(outcome_of(g), "ok");
  EXPECT_EQ(outcome_of(client().release(*g)), "ok");
  redis_client other{server().url()};
  EXPECT_EQ(outcome_of(other.release(*g)), "not_owner");
  EXPECT_EQ(outcome_of(client().release(*g)), "ok") << "it was this client";
  ASSERT_EQ(outcome_of(other.acquire("r")), "ok");
  EXPECT_EQ(outcome_of(client().release(*g)), "not_owner");
}

// R41: a script that asks for the time cannot write on old servers. Only the
// one that raises the counter does.
TEST_F(RedisLocks, R41_NoLeaseVerbAsksTheServerForTheTime) {
  ASSERT_NE(client().token_of("first"), 0);
  EXPECT_EQ(server().calls("time"), 1);
  server().say({"CONFIG", "RESETSTAT"});
  auto g = client().acquire("r");
  ASSERT_EQ(outcome_of(g), "ok");
  EXPECT_EQ(outcome_of(client().acquire("r")), "busy");
  EXPECT_EQ(outcome_of(client().renew(*g)), "ok");
  EXPECT_EQ(outcome_of(client().inspect("r")), "ok");
  EXPECT_EQ(outcome_of(client().release(*g)), "ok");
  EXPECT_EQ(server().calls("time"), 0);
}

TEST_F(RedisLocks, BusyWritesNothing) {
  auto g = client().acquire("r");
  ASSERT_EQ(outcome_of(g), "ok");
  const auto before = server().info("rdb_changes_since_last_save");
  EXPECT_EQ(outcome_of(client().acquire("r")), "busy");
  EXPECT_EQ(server().info("rdb_changes_since_last_save"), before);
}

TEST_F(RedisLocks, HolderIsStoredAsTextAndCutToALength) {
  const auto name = lastdoor::resource_name::parse("r").value();
  const auto owner = lastdoor::owner_id::generate().value();
  const std::string holder = "a holder: 7 " + std::string(1000, 'x');
  ASSERT_EQ(
      outcome_of(client().backend().try_acquire(
          {name, owner, 60s, holder, lastdoor::boot_clock()->now() + 20s})),
      "ok");
  EXPECT_EQ(client().inspect("r").value().holder, holder.substr(0, 256));
}

TEST_F(RedisLocks, GrantIsUndoneWhenReplicasDoNotConfirmIt) {
  lastdoor::redis_locks_options options;
  options.wait_replicas = 1;
  redis_client careful{server().url(), options};
  auto refused = careful.acquire("r");
  EXPECT_EQ(outcome_of(refused), "unavailable");
  EXPECT_THAT(refused.error().message(), HasSubstr("0 of 1 replicas"));
  EXPECT_EQ(server().say({"EXISTS", lock_key("r")}), "0");

  temp_redis replica;
  replica.follow(server());
  lastdoor::result<lastdoor::grant> g = lastdoor::fail(errc::unavailable, "");
  // A replica that has just joined may take a moment to answer.
  ASSERT_TRUE(eventually([&] {
    g = careful.acquire("r");
    return g.has_value();
  })) << g.error().message();
  EXPECT_EQ(replica.say({"EXISTS", lock_key("r")}), "1");
  EXPECT_EQ(replica.say({"GET", counter_key}), g->token().to_string());
}

TEST_F(RedisLocks, ManyThreadsShareOneConnection) {
  tcp_proxy between{server().port()};
  redis_client shared{between.redis_url()};
  std::vector<std::thread> threads;
  std::vector<std::vector<std::int64_t>> tokens(8);
  for (std::size_t t = 0; t < tokens.size(); ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        tokens[t].push_back(shared.token_of("r" + std::to_string(t)));
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  std::vector<std::int64_t> all;
  for (const auto& mine : tokens) {
    EXPECT_TRUE(std::is_sorted(mine.begin(), mine.end()));
    all.insert(all.end(), mine.begin(), mine.end());
  }
  std::sort(all.begin(), all.end());
  EXPECT_GT(all.front(), 0);
  EXPECT_EQ(std::adjacent_find(all.begin(), all.end()), all.end());
  EXPECT_EQ(between.connections(), 1);
}

}  // namespace
