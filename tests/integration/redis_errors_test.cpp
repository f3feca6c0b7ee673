// Servers that are sick, shut, or somebody else's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <set>
#include <thread>

#include "support/redis_client.hpp"
#include "support/redlock_cluster.hpp"
#include "support/tcp_proxy.hpp"
#include "support/temp_redis.hpp"

namespace {

using namespace std::chrono_literals;
using namespace lastdoor::support;
using lastdoor::boot_clock;
using lastdoor::errc;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

class RedisErrors : public ::testing::Test {
 protected:
  void SetUp() override {
    LASTDOOR_NEEDS_REDIS();
    server_ = std::make_unique<temp_redis>();
    client_ = std::make_unique<redis_client>(server().url());
  }
  temp_redis& server() { return *server_; }
  redis_client& client() { return *client_; }
  // A refusal leaves the lease as it was, and it can go on afterwards.
  void expect_all_verbs(const lastdoor::grant& held, const std::string& word) {
    EXPECT_EQ(word_of(client().acquire("other")), word);
    // Longer than what it has, or there would be nothing to refuse.
    EXPECT_EQ(word_of(client().renew(held, 11min)), word);
    EXPECT_EQ(word_of(client().release(held)), word);
  }
  void expect_recovery(const lastdoor::grant& held) {
    EXPECT_TRUE(
        eventually([&] { return outcome_of(client().renew(held)) == "ok"; }));
    EXPECT_EQ(outcome_of(client().release(held)), "ok");
    auto other = client().acquire("other");
    ASSERT_EQ(outcome_of(other), "ok") << other.error().message();
    EXPECT_GT(other->token(), held.token());
    EXPECT_EQ(outcome_of(client().release(*other)), "ok");
  }

 private:
  std::unique_ptr<temp_redis> server_;
  std::unique_ptr<redis_client> client_;
};

TEST_F(RedisErrors, R13_ReplicaIsNamedLeftAndLookedForAgain) {
  auto held = client().acquire("r");
  ASSERT_EQ(outcome_of(held), "ok");
  temp_redis elsewhere;
  server().say({"REPLICAOF", "127.0.0.1", std::to_string(elsewhere.port())});
  expect_all_verbs(*held, "unavailable READONLY");
  server().promote();
  EXPECT_TRUE(eventually([&] { return client().token_of("r2") != 0; }));
}

TEST_F(RedisErrors, R13_RunningScriptOfSomebodyElseIsUnavailable) {
  auto held = client().acquire("r", 60s);
  ASSERT_EQ(outcome_of(held), "ok");
  server().set("lua-time-limit", "10");
  redis_session other{server().socket()};
  other.send({"EVAL", "while true do end", "0"});
  // Until the server says so itself, the answer is only late.
  EXPECT_TRUE(eventually([&] {
    return word_of(client().acquire("probe", 60s, 100ms)) == "unavailable BUSY";
  }));
  expect_all_verbs(*held, "unavailable BUSY");
  server().say({"SCRIPT", "KILL"});
  expect_recovery(*held);
}

// The lease outlives a script that blocks the server for a while.
TEST_F(RedisErrors, R13_LeaseSurvivesABlockedServer) {
  auto locks = lastdoor::open_redis_locks(server().url()).value();
  auto lease = locks.acquire("r", {.ttl = 3s, .loss_margin = 300ms});
  ASSERT_EQ(outcome_of(lease), "ok");
  redis_session other{server().socket()};
  other.say({"DEBUG", "SLEEP", "1.5"});
  EXPECT_FALSE(lease->lost().stop_requested());
  EXPECT_TRUE(eventually([&] { return lease->renew().has_value(); }));
  EXPECT_EQ(outcome_of(lease->release()), "ok");
}

TEST_F(RedisErrors, R13_FullMemoryIsUnavailableAndLeavesNoLock) {
  auto held = client().acquire("r");
  ASSERT_EQ(outcome_of(held), "ok");
  server().set("maxmemory", "1");
  EXPECT_EQ(word_of(client().acquire("other")), "unavailable OOM");
  EXPECT_EQ(server().say({"EXISTS", lock_key("other")}), "0");
  EXPECT_EQ(outcome_of(client().renew(*held)), "ok") << "needs no memory";
  EXPECT_EQ(outcome_of(client().release(*held)), "ok");
  server().set("maxmemory", "0");
  EXPECT_NE(client().token_of("other"), 0);
}

TEST_F(RedisErrors, R13_ServerThatCannotSaveIsUnavailable) {
  auto held = client().acquire("r");
  ASSERT_EQ(outcome_of(held), "ok");
  namespace fs = std::filesystem;
  fs::permissions(server().folder(),
                  fs::perms::owner_read | fs::perms::owner_exec);
  server().set("save", "3600 1");
  server().say({"BGSAVE"});
  ASSERT_TRUE(eventually(
      [&] { return server().info("rdb_last_bgsave_status") == "err"; }));
  expect_all_verbs(*held, "unavailable MISCONF");
  fs::permissions(server().folder(), fs::perms::owner_all);
  server().set("save", "");
  expect_recovery(*held);
}

TEST_F(RedisErrors, R13_TooFewReplicasAreUnavailable) {
  if (redis_major() < 7) {
    GTEST_SKIP() << "scripts do not look at it before Redis 7";
  }
  auto held = client().acquire("r");
  ASSERT_EQ(outcome_of(held), "ok");
  server().set("min-replicas-to-write", "1");
  expect_all_verbs(*held, "unavailable NOREPLICAS");
  server().set("min-replicas-to-write", "0");
  expect_recovery(*held);
}

TEST(RedisLoading, R13_LoadingServerIsUnavailableUntilItHasLoaded) {
  LASTDOOR_NEEDS_REDIS();
  if (redis_major() < 7) {
    GTEST_SKIP() << "the load cannot be slowed down before Redis 7";
  }
  temp_redis server{{.settings = {"rdbcompression no"}}};
  redis_client client{server.url()};
  auto held = client.acquire("r", 10min);
  ASSERT_EQ(outcome_of(held), "ok");
  redis_session fill{server.socket()};
  for (int i = 0; i < 500; ++i) {
    fill.say({"SET", "key" + std::to_string(i), std::string(2000, 'x')});
  }
  ASSERT_EQ(server.say({"SAVE"}), "OK");
  server.kill_hard();
  // Microseconds for each key: the load takes as long as the test needs. And
  // it looks at its clients after each key.
  server.add_setting("key-load-delay 100000");
  server.add_setting("loading-process-events-interval-bytes 1024");
  server.start(false);
  ASSERT_TRUE(eventually([&] {
    try {
      return server.say({"PING"}).starts_with("LOADING");
    } catch (const std::runtime_error&) {
      return false;
    }
  }));
  EXPECT_TRUE(eventually([&] {
    return word_of(client.acquire("other")) == "unavailable LOADING";
  }));
  EXPECT_EQ(word_of(client.renew(*held)), "unavailable LOADING");
  server.set("key-load-delay", "0");
  lastdoor::result<lastdoor::time_point> renewed =
      lastdoor::fail(errc::unavailable, "");
  EXPECT_TRUE(eventually([&] {
    renewed = client.renew(*held);
    return renewed.has_value();
  })) << renewed.error().message();
  EXPECT_GT(client.token_of("other"), held->token().value());
}

TEST_F(RedisErrors, RefusedLoginIsMisconfiguredAndNeverQuoted) {
  server().set("requirepass", "geheim");
  for (const auto& url : {"redis+unix://:falsch@" + server().socket(),
                          "redis+unix://" + server().socket()}) {
    redis_client stranger{url};
    auto refused = stranger.acquire("r");
    EXPECT_EQ(outcome_of(refused), "misconfigured");
    EXPECT_THAT(refused.error().message(), Not(HasSubstr("falsch")));
    EXPECT_THAT(refused.error().message(), Not(HasSubstr("geheim")));
  }
  redis_client friendly{"redis+unix://:geheim@" + server().socket()};
  EXPECT_NE(friendly.token_of("r"), 0);
}

TEST_F(RedisErrors, MissingRightsAreMisconfigured) {
  const auto allow = [&](argument_list rights) {
    rights.insert(rights.begin(), {"ACL", "SETUSER"});
    ASSERT_EQ(server().say(rights), "OK");
  };
  allow({"reader", "on", ">p", "~*", "+@read", "+info"});
  redis_client reader{"redis+unix://reader:p@" + server().socket()};
  EXPECT_EQ(word_of(reader.acquire("r")), "misconfigured NOPERM");
  // Keys only, no channels: the wake-up is lost, the release is not.
  allow({"worker", "on", ">p", "~lastdoor:*", "+@all"});
  if (redis_major() >= 7) {
    allow({"worker", "resetchannels"});
  }
  redis_client worker{"redis+unix://worker:p@" + server().socket()};
  auto g = worker.acquire("r");
  ASSERT_EQ(outcome_of(g), "ok");
  EXPECT_EQ(outcome_of(worker.release(*g)), "ok");
  EXPECT_EQ(server().say({"EXISTS", lock_key("r")}), "0");
}

// Those of redis_server.hpp.
TEST_F(RedisErrors, TheRightsThatAreNamedAreEnough) {
  argument_list user{"ACL",        "SETUSER",      "modest",
                     "on",         ">p",           "~lastdoor:{default}:*",
                     "+info",      "+select",      "+eval",
                     "+evalsha",   "+script|load", "+get",
                     "+mget",      "+set",         "+incr",
                     "+incrby",    "+del",         "+pttl",
                     "+pexpire",   "+time",        "+publish",
                     "+subscribe", "+unsubscribe"};
  if (redis_major() >= 7) {
    user.emplace_back("&lastdoor:{default}:*");
  }
  ASSERT_EQ(server().say(user), "OK");
  const auto url = "redis+unix://modest:p@" + server().socket() + "?db=1";
  const std::vector<std::string> one{url};
  lastdoor::redlock_init(one, {.max_ttl = 1h}, redlock_cluster::patience())
      .value();
  server().say({"SCRIPT", "FLUSH"});
  for (const bool quorum : {false, true}) {
    SCOPED_TRACE(quorum ? "redlock" : "redis");
    const auto open = [&] {
      return quorum ? lastdoor::open_redlock(one, redlock_cluster::patience())
                    : lastdoor::open_redis_locks(url, redis_client::patient());
    };
    auto locks = open().value();
    auto others = open().value();
    auto held = locks.acquire("r", {.ttl = 1h}).value();
    EXPECT_EQ(outcome_of(held.renew()), "ok");
    EXPECT_TRUE(locks.inspect("r").value().held);
    auto waiter = std::async(std::launch::async, [&] {
      return others.acquire("r", {.ttl = 1h, .wait_at_most = 1min});
    });
    EXPECT_TRUE(eventually([&] {
      return server().say({"PUBSUB", "CHANNELS"}).find("free:r") !=
             std::string::npos;
    })) << "it listens: "
        << server().say({"ACL", "LOG"});
    EXPECT_EQ(outcome_of(held.release()), "ok");
    auto next = waiter.get();
    ASSERT_EQ(outcome_of(next), "ok");
    EXPECT_EQ(outcome_of(next->release()), "ok");
  }
  for (const auto& s : lastdoor::redlock_status(one).value()) {
    EXPECT_EQ(s.now, lastdoor::redlock_node_status::condition::admitted);
  }
}

TEST_F(RedisErrors, FullServerIsUnavailable) {
  redis_session only{server().socket()};
  ASSERT_EQ(only.say({"CONFIG", "SET", "maxclients", "1"}), "OK");
  redis_client late{server().url()};
  EXPECT_EQ(outcome_of(late.acquire("r")), "unavailable");
}

TEST_F(RedisErrors, DeadPortIsUnavailableAtOnce) {
  redis_client nobody{"redis://127.0.0.1:" + std::to_string(free_port()),
                      redis_client::patient(1min)};
  const auto before = boot_clock()->now();
  EXPECT_EQ(outcome_of(nobody.acquire("r", 60s, 1min)), "unavailable");
  EXPECT_EQ(outcome_of(nobody.inspect("r")), "unavailable");
  EXPECT_EQ(outcome_of(nobody.backend().raise_floor(lastdoor::mark{})),
            "unavailable");
  EXPECT_LT(boot_clock()->now() - before, 30s);
}

TEST_F(RedisErrors, StoppedServerCostsNoMoreThanTheDeadline) {
  redis_client client{server().url(), redis_client::patient(1min)};
  ASSERT_NE(client.token_of("r"), 0);
  server().pause();
  const auto before = boot_clock()->now();
  EXPECT_EQ(outcome_of(client.acquire("r", 60s, 100ms)), "in_doubt");
  EXPECT_LT(boot_clock()->now() - before, 20s);
  redis_client fresh{server().url(), redis_client::patient(1min)};
  EXPECT_EQ(outcome_of(fresh.acquire("r", 60s, 100ms)), "unavailable");
  server().resume();
  // What the stopped server had been sent was an acquisition and its undoing.
  EXPECT_TRUE(eventually([&] { return client.token_of("r") != 0; }));
}

TEST_F(RedisErrors, ServerKilledDuringACallLeavesDoubtAtOnce) {
  redis_client client{server().url(), redis_client::patient(1min)};
  ASSERT_NE(client.token_of("r"), 0);
  server().pause();
  std::string outcome;
  std::thread caller{
      [&] { outcome = outcome_of(client.acquire("r", 60s, 1min)); }};
  // Wherever the call is now, it ends with the server.
  const auto sent = boot_clock()->now() + 50ms;
  (void)eventually([&] { return boot_clock()->now() > sent; });
  const auto before = boot_clock()->now();
  server().kill_hard();
  caller.join();
  EXPECT_LT(boot_clock()->now() - before, 30s);
  EXPECT_THAT(outcome, AnyOf("in_doubt", "unavailable"));
  EXPECT_EQ(outcome_of(client.acquire("r")), "unavailable");
  server().start();
  EXPECT_TRUE(eventually([&] { return client.token_of("r") != 0; }));
}

// R20: the keys of a lock are the first to go when memory runs out.
TEST_F(RedisErrors, R20_EvictedLockIsNoticedAndTokensStillRise) {
  auto held = client().acquire("r");
  ASSERT_EQ(outcome_of(held), "ok");
  server().set("maxmemory-policy", "allkeys-random");
  server().set("maxmemory", "3mb");
  redis_session fill{server().socket()};
  const auto bytes = std::string(10'000, 'x');
  ASSERT_TRUE(eventually([&] {
    for (int i = 0; i < 1000; ++i) {
      fill.say({"SET", "fill" + std::to_string(i), bytes});
    }
    return server().say({"EXISTS", lock_key("r"), counter_key}) == "0";
  }));
  EXPECT_EQ(outcome_of(client().renew(*held)), "not_owner");
  lastdoor::result<lastdoor::grant> next = lastdoor::fail(errc::busy, "");
  ASSERT_TRUE(eventually([&] {
    next = client().acquire("r");
    return next.has_value();
  })) << next.error().message();
  EXPECT_GT(next->token(), held->token());
  // Another client knows nothing of the first token.
  redis_client other{server().url()};
  server().say({"DEL", counter_key, lock_key("r")});
  auto third = other.acquire("r");
  ASSERT_EQ(outcome_of(third), "ok");
  EXPECT_GT(third->token(), next->token());
}

// R37: what the caller has to do next can be told from the code alone.
TEST_F(RedisErrors, R37_EachCaseHasACodeOfItsOwn) {
  ASSERT_NE(client().token_of("x"), 0);
  std::multiset<std::string> seen;
  auto held = client().acquire("r");
  ASSERT_EQ(outcome_of(held), "ok");
  seen.insert(outcome_of(client().acquire("r")));
  const lastdoor::grant foreign{
      held->resource(), lastdoor::owner_id::generate().value(), held->token(),
      held->source(), held->valid_until()};
  seen.insert(outcome_of(client().renew(foreign)));
  seen.insert(outcome_of(client().acquire("r2", 0s)));
  server().say({"HSET", lock_key("hash"), "a", "1"});
  seen.insert(outcome_of(client().acquire("hash")));
  server().pause();
  seen.insert(outcome_of(client().acquire("r2", 60s, 50ms)));
  server().resume();
  server().kill_hard();
  EXPECT_TRUE(eventually(
      [&] { return outcome_of(client().acquire("r2")) == "unavailable"; }));
  seen.insert(outcome_of(client().acquire("r2")));
  EXPECT_THAT(seen, ::testing::UnorderedElementsAre(
                        "busy", "not_owner", "invalid_argument",
                        "misconfigured", "in_doubt", "unavailable"));
}

}  // namespace
