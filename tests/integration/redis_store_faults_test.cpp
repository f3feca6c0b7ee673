// The store on Redis when answers, marks, data, rights or servers are gone.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/redis_store_fixture.hpp"
#include "support/tcp_proxy.hpp"

namespace {

using namespace std::chrono_literals;
using namespace lastdoor;
using namespace lastdoor::support;
using lastdoor::testing::granted;
using lastdoor::testing::terms;
using ::testing::HasSubstr;
using ::testing::Not;

using RedisStoreFaults = redis_store_test;

TEST_F(RedisStoreFaults, F08_NumberedWriteWithALostAnswerTakesEffectOnce) {
  tcp_proxy between{server().port()};
  auto far = open_redis_store(between.redis_url(), patient_store()).value();
  const auto add = redis_commands{}.add("n", 1);
  ASSERT_EQ(outcome_of(far.claim(granted({.token = 5}))), "ok");
  between.lose_next_reply();
  auto r = far.write(granted({.token = 5}), add, {.sequence = 1});
  ASSERT_EQ(outcome_of(r), "ok") << "sent again within the call";
  EXPECT_TRUE(r->already_applied);
  EXPECT_EQ(between.lost_replies(), 1);
  EXPECT_EQ(server().say({"GET", "n"}), "1");
  // And by a caller of its own accord, on any connection.
  r = store().write(granted({.token = 5}), add, {.sequence = 1});
  EXPECT_TRUE(r.value().already_applied);
  r = store().write(granted({.token = 5}), add, {.sequence = 2});
  EXPECT_FALSE(r.value().already_applied);
  EXPECT_EQ(server().say({"GET", "n"}), "2");
}

TEST_F(RedisStoreFaults,
       F08_UnnumberedWriteWithALostAnswerIsInDoubtAndNotRepeated) {
  tcp_proxy between{server().port()};
  auto far = open_redis_store(between.redis_url(), patient_store()).value();
  ASSERT_EQ(outcome_of(far.claim(granted({.token = 5}))), "ok");
  between.lose_next_reply();
  auto r = far.write(granted({.token = 5}), redis_commands{}.add("n", 1));
  EXPECT_EQ(outcome_of(r), "in_doubt");
  EXPECT_EQ(r.error().presented(), 5);
  EXPECT_EQ(server().say({"GET", "n"}), "1");
  // A claim can be repeated without harm, on a connection of its own.
  ASSERT_EQ(outcome_of(far.claim(granted({.token = 5}))), "ok");
  between.lose_next_reply();
  EXPECT_EQ(outcome_of(far.claim(granted({.token = 6, .owner = 'b'}))), "ok");
  EXPECT_EQ(mark_now(), 6);
}

TEST_F(RedisStoreFaults, F17_AServerThatLostItsDataIsRefusedUntilItIsSetUp) {
  ASSERT_EQ(write({.token = 9}, redis_commands{}.set("a", "9")), "ok");
  server().restart_empty();
  auto r = store().write(granted({.token = 8}), redis_commands{}.set("a", "8"));
  EXPECT_EQ(outcome_of(r), "schema_mismatch") << "on a key that is gone";
  EXPECT_THAT(r.error().message(), HasSubstr("lost its data"));
  server().say({"SET", "a", "restored"});
  EXPECT_EQ(write({.token = 8}, redis_commands{}.set("a", "8")),
            "schema_mismatch");
  const auto g = granted({.token = 8});
  EXPECT_EQ(outcome_of(store().claim(g)), "schema_mismatch");
  EXPECT_EQ(outcome_of(store().read_mark(g.resource())), "schema_mismatch");
  EXPECT_EQ(outcome_of(store().list_marks("", 9)), "schema_mismatch");
  EXPECT_EQ(outcome_of(store().hand_over(
                g.source(), source_name::parse("test/two").value())),
            "schema_mismatch");
  EXPECT_EQ(server().say({"GET", "a"}), "restored");
  EXPECT_TRUE(create_redis_ledger(server().url()).value());
  EXPECT_FALSE(create_redis_ledger(server().url()).value()) << "there already";
  EXPECT_EQ(write({.token = 8}, redis_commands{}.set("b", "8")), "ok");
}

TEST_F(RedisStoreFaults, F17_DataWithoutAMarkAreRefusedUnlessAllowed) {
  server().say({"SET", "old", "1"});
  auto r = store().write(granted({.token = 5}),
                         redis_commands{}.set("new", "x").set("old", "2"));
  ASSERT_EQ(outcome_of(r), "damaged");
  EXPECT_THAT(r.error().message(), HasSubstr("'old'"));
  EXPECT_EQ(mark_now(), 0);
  // A barrier says nothing about data, so it is no way around.
  ASSERT_EQ(outcome_of(store().claim(granted({.token = 5}))), "ok");
  EXPECT_EQ(write({.token = 5}, redis_commands{}.set("old", "2")), "damaged");
  EXPECT_EQ(server().say({"GET", "old"}), "1");

  auto options = patient_store();
  options.adopt_existing = true;
  auto lenient = open_redis_store(server().url(), options).value();
  EXPECT_EQ(outcome_of(lenient.write(granted({.token = 5}),
                                     redis_commands{}.set("old", "2"))),
            "ok");
  EXPECT_EQ(write({.token = 5}, redis_commands{}.set("old", "3")), "ok")
      << "it has a mark now";
  // The mark alone is lost.
  server().say({"HDEL", ledger_key, "stock"});
  EXPECT_EQ(write({.token = 4}, redis_commands{}.set("old", "4")), "damaged");
  EXPECT_EQ(server().say({"GET", "old"}), "3");
}

TEST_F(RedisStoreFaults, F17_SharedKeysAreNamedAsSuch) {
  const terms one{.resource = "order/1"};
  const terms two{.resource = "order/2"};
  const auto count = [](const char* key) {
    return redis_commands{}.set(key, "new").add("orders", 1);
  };
  ASSERT_EQ(write(one, count("o1")), "ok");
  EXPECT_EQ(write(two, count("o2")), "damaged");
  EXPECT_EQ(server().say({"GET", "orders"}), "1");
  EXPECT_EQ(write(two, count("o2").shared("orders")), "ok");
  EXPECT_EQ(server().say({"GET", "orders"}), "2");
  // What is only looked at is nobody's data.
  const terms three{.resource = "order/3"};
  EXPECT_EQ(
      write(three,
            redis_commands{}.set("o3", "new").require("orders", at_least(2))),
      "ok");
}

TEST_F(RedisStoreFaults, F17_ARowsOwnFenceStandsInForALostMark) {
  ASSERT_EQ(outcome_of(store().write(granted({.token = 9}),
                                     upsert("t").key("id", 1).set("v", 9))),
            "ok");
  server().say({"HDEL", ledger_key, "stock"});
  const auto put = [&](std::int64_t token) {
    return outcome_of(store().write(granted({.token = token}),
                                    update("t").key("id", 1).set("v", token)));
  };
  EXPECT_EQ(put(8), "stale_token");
  EXPECT_EQ(put(10), "ok");
}

TEST_F(RedisStoreFaults, F17_MarksSurviveARestartWithPersistence) {
  temp_redis lasting{{.persistent = true}};
  ASSERT_TRUE(create_redis_ledger(lasting.url()).value());
  auto s = open_redis_store(lasting.url(), patient_store()).value();
  ASSERT_EQ(outcome_of(
                s.write(granted({.token = 9}), redis_commands{}.set("a", "9"))),
            "ok");
  lasting.restart();
  EXPECT_EQ(outcome_of(
                s.write(granted({.token = 8}), redis_commands{}.set("a", "8"))),
            "stale_token");
  EXPECT_EQ(lasting.say({"TTL", ledger_key}), "-1");
}

TEST_F(RedisStoreFaults, LedgerThatSomebodyTamperedWithIsNamed) {
  ASSERT_EQ(write({}, redis_commands{}.set("a", "1")), "ok");
  server().say({"HSET", ledger_key, "stock", "12"});
  EXPECT_EQ(write({}, redis_commands{}.set("a", "2")), "damaged");
  EXPECT_EQ(outcome_of(store().highest_mark()), "damaged");
  EXPECT_EQ(
      outcome_of(store().hand_over(source_name::parse("test/one").value(),
                                   source_name::parse("test/two").value())),
      "damaged");
  server().say({"DEL", ledger_key});
  server().say({"RPUSH", ledger_key, "a"});
  EXPECT_EQ(word_of(store().write(granted({}), redis_commands{}.set("a", "2"))),
            "misconfigured WRONGTYPE");
  EXPECT_EQ(server().say({"GET", "a"}), "1");
}

TEST_F(RedisStoreFaults, RowWithABrokenFenceIsDamaged) {
  const auto put = upsert("t").key("id", 1).set("v", 1);
  ASSERT_EQ(outcome_of(store().write(granted({}), put)), "ok");
  for (const auto* fence : {"abc", "-1", "9007199254740993", ""}) {
    server().say({"HSET", "{default}:t:1", "fence_token", fence});
    EXPECT_EQ(outcome_of(store().write(granted({}), put)), "damaged") << fence;
  }
}

TEST_F(RedisStoreFaults, R12_ScriptsGoneBetweenTheWrites) {
  ASSERT_EQ(write({.token = 5}, redis_commands{}.add("n", 1)), "ok");
  server().say({"SCRIPT", "FLUSH"});
  EXPECT_EQ(write({.token = 5}, redis_commands{}.add("n", 1)), "ok");
  server().say({"SCRIPT", "FLUSH"});
  EXPECT_EQ(mark_now(), 5);
  server().say({"SCRIPT", "FLUSH"});
  EXPECT_EQ(store().highest_mark().value().value(), 5);
  EXPECT_EQ(server().say({"GET", "n"}), "2");
}

TEST_F(RedisStoreFaults, R13_RefusalsOfTheServerChangeNothing) {
  ASSERT_EQ(write({.token = 5}, redis_commands{}.set("a", "1")), "ok");
  const auto before = everything();
  const auto attempt = [&](std::int64_t token) {
    return word_of(store().write(granted({.token = token}),
                                 redis_commands{}.set("a", "2").add("n", 1)));
  };
  server().set("maxmemory", "1");
  EXPECT_EQ(attempt(5), "unavailable OOM");
  EXPECT_EQ(attempt(6), "unavailable OOM");
  server().set("maxmemory", "0");
  if (redis_major() >= 7) {
    server().set("min-replicas-to-write", "1");
    EXPECT_EQ(attempt(5), "unavailable NOREPLICAS");
    EXPECT_EQ(attempt(6), "unavailable NOREPLICAS");
    server().set("min-replicas-to-write", "0");
  }
  EXPECT_EQ(everything(), before);
  EXPECT_EQ(attempt(6), "ok");
}

TEST_F(RedisStoreFaults, MissingRightsAreFoundBeforeAnythingChanges) {
  if (redis_major() < 7) {
    GTEST_SKIP() << "a script cannot ask for rights before Redis 7";
  }
  server().say(
      {"ACL", "SETUSER", "worker", "on", ">geheim", "~*", "+@all", "-del"});
  server().say({"ACL", "SETUSER", "narrow", "on", ">geheim", "~lastdoor:*",
                "~mine:*", "+@all"});
  const auto as = [&](const std::string& user) {
    return open_redis_store(
               "redis+unix://" + user + ":geheim@" + server().socket(),
               patient_store())
        .value();
  };
  auto worker = as("worker");
  ASSERT_EQ(outcome_of(worker.write(granted({.token = 5}),
                                    redis_commands{}.set("a", "1"))),
            "ok");
  const auto before = everything();
  auto r = worker.write(granted({.token = 6, .owner = 'b'}),
                        redis_commands{}.set("a", "2").erase("a"));
  EXPECT_EQ(word_of(r), "misconfigured NOPERM");
  EXPECT_THAT(r.error().message(), Not(HasSubstr("geheim")));
  EXPECT_EQ(everything(), before);
  auto narrow = as("narrow");
  r = narrow.write(granted({.token = 6, .owner = 'b'}),
                   redis_commands{}.set("mine:1", "2").set("a", "2"));
  EXPECT_EQ(word_of(r), "misconfigured NOPERM");
  EXPECT_EQ(everything(), before);
}

TEST_F(RedisStoreFaults, X04_AChildOfAForkNeedsAStoreOfItsOwn) {
  ASSERT_EQ(write({}, redis_commands{}.set("a", "1")), "ok");
  const auto child = ::fork();
  if (child == 0) {
    const bool refused =
        write({}, redis_commands{}.set("a", "2")) == "misconfigured" &&
        outcome_of(store().highest_mark()) == "misconfigured";
    auto own = open_redis_store(server().url(), patient_store()).value();
    const bool works =
        outcome_of(own.write(granted({}), redis_commands{}.set("a", "3"))) ==
        "ok";
    ::_exit(refused && works ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(server().say({"GET", "a"}), "3");
  EXPECT_EQ(write({}, redis_commands{}.add("n", 1)), "ok");
}

TEST_F(RedisStoreFaults, NobodyThereAndWrongPassword) {
  auto dead = open_redis_store("redis://:geheim@127.0.0.1:" +
                               std::to_string(free_port()))
                  .value();
  auto r = dead.write(granted({}), redis_commands{}.set("a", "1"));
  EXPECT_EQ(outcome_of(r), "unavailable");
  EXPECT_THAT(r.error().message(), Not(HasSubstr("geheim")));
  EXPECT_EQ(r.error().resource(), "stock");
  auto stranger =
      open_redis_store("redis+unix://:geheim@" + server().socket()).value();
  server().set("requirepass", "other");
  r = stranger.write(granted({}), redis_commands{}.set("a", "1"));
  EXPECT_EQ(outcome_of(r), "misconfigured");
  EXPECT_THAT(r.error().message(), Not(HasSubstr("geheim")));
  EXPECT_EQ(outcome_of(open_redis_store("redis://h:geheim")),
            "invalid_argument");
  EXPECT_EQ(outcome_of(open_redis_store("redis://h", {.name_space = "a b"})),
            "invalid_argument");
}

TEST(RedisStoreOnACluster, R28_LedgerAndRowsShareASlot) {
  LASTDOOR_NEEDS_REDIS();
  temp_redis server{{.settings = cluster_settings()}};
  server.own_all_slots();
  ASSERT_TRUE(create_redis_ledger(server.url(), patient_store()).value());
  auto s = open_redis_store(server.url(), patient_store()).value();
  for (const auto* name : {"a", "{a}b", "a{b", "}{", "{}", "{", "}"}) {
    EXPECT_EQ(outcome_of(s.write(granted({}),
                                 upsert(name).key("id", name).set("v", 1))),
              "ok")
        << name;
  }
  EXPECT_EQ(
      outcome_of(s.write(granted({}), redis_commands{}.set("{default}:x", 1))),
      "ok");
  EXPECT_EQ(word_of(s.write(granted({}), redis_commands{}.set("other", 1))),
            "misconfigured CROSSSLOT");
}

}  // namespace
