// What is particular to the store on Redis; the rest is in the contract.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/redis_store_fixture.hpp"

namespace {

using namespace std::chrono_literals;
using namespace lastdoor;
using namespace lastdoor::support;
using lastdoor::testing::granted;

using RedisStore = redis_store_test;

TEST_F(RedisStore, CommandsTakeEffectInOrderAndAnswer) {
  auto r = store().write(granted({.token = 5}),
                         redis_commands{}
                             .set("text", "a")
                             .add("n", 7)
                             .hash_set("h", "f", 2.5)
                             .hash_add("h", "n", -3)
                             .command({"rpush", "jobs", "x", "y"})
                             .command({"LPOP", "jobs"})
                             .erase("nothing"));
  ASSERT_EQ(outcome_of(r), "ok") << r.error().message();
  EXPECT_EQ(r->rows, 7);
  const std::vector<row> answers{{"OK"}, {7}, {1}, {-3}, {2}, {"x"}, {0}};
  EXPECT_EQ(r->returned, answers);
  EXPECT_EQ(server().say({"GET", "text"}), "a");
  EXPECT_EQ(server().say({"HGET", "h", "f"}), "2.5");
  EXPECT_EQ(server().say({"LRANGE", "jobs", "0", "-1"}), "y");
  EXPECT_EQ(mark_now(), 5);
}

TEST_F(RedisStore, EveryCommandOfTheListIsTaken) {
  const std::vector<std::vector<std::string>> all{{"SET", "s", "1"},
                                                  {"APPEND", "s", "2"},
                                                  {"INCR", "n"},
                                                  {"DECR", "n2"},
                                                  {"INCRBY", "n3", "9"},
                                                  {"DECRBY", "n4", "9"},
                                                  {"HSET", "h", "f", "v"},
                                                  {"HDEL", "h", "f"},
                                                  {"HINCRBY", "h", "g", "2"},
                                                  {"LPUSH", "l", "a"},
                                                  {"RPUSH", "l", "b"},
                                                  {"RPOP", "l"},
                                                  {"SADD", "t", "a", "b"},
                                                  {"SREM", "t", "a"},
                                                  {"ZADD", "z", "1.5", "a"},
                                                  {"ZREM", "z", "b"},
                                                  {"PEXPIRE", "s", "600000"},
                                                  {"PERSIST", "s"},
                                                  {"LPOP", "l"},
                                                  {"DEL", "h"}};
  for (const auto& words : all) {
    auto r = store().write(granted({}), redis_commands{}.command(words));
    EXPECT_EQ(outcome_of(r), "ok") << words[0] << r.error().message();
  }
  EXPECT_EQ(server().say({"GET", "s"}), "12");
  EXPECT_EQ(server().say({"GET", "n4"}), "-9");
}

TEST_F(RedisStore, AWriteIsOneRoundTrip) {
  ASSERT_EQ(write({}, redis_commands{}.add("n", 1)), "ok");
  server().say({"CONFIG", "RESETSTAT"});
  ASSERT_EQ(write({}, redis_commands{}.add("n", 1).set("a", "b")), "ok");
  EXPECT_EQ(server().calls("evalsha"), 1);
  EXPECT_EQ(server().calls("eval"), 0);
}

// F06: whatever fails, and wherever it stands, nothing has happened: neither
// to the commands before it nor to the mark.
TEST_F(RedisStore, F06_AFailingCommandLeavesNeitherDataNorMark) {
  const auto big = std::to_string(fencing_token::max);
  ASSERT_EQ(write({.token = 5}, redis_commands{}
                                    .set("string", "abc")
                                    .set("big", big)
                                    .set("octal", "007")
                                    .hash_set("hash", "f", "abc")
                                    .hash_set("hash", "big", "-" + big)
                                    .command({"RPUSH", "list", "a"})),
            "ok");
  const auto before = everything();
  const struct {
    redis_commands commands;
    std::string outcome;
  } cases[] = {
      {redis_commands{}.add("string", 1), "schema_mismatch"},
      {redis_commands{}.add("octal", 1), "schema_mismatch"},
      {redis_commands{}.add("big", 1), "precondition_failed"},
      {redis_commands{}.add("hash", 1), "schema_mismatch WRONGTYPE"},
      {redis_commands{}.set("list", 1), "schema_mismatch WRONGTYPE"},
      {redis_commands{}.hash_set("list", "f", 1), "schema_mismatch WRONGTYPE"},
      {redis_commands{}.hash_add("hash", "f", 1), "schema_mismatch"},
      {redis_commands{}.hash_add("hash", "big", -1), "precondition_failed"},
      {redis_commands{}.command({"LPUSH", "hash", "a"}),
       "schema_mismatch WRONGTYPE"},
      {redis_commands{}.command({"SADD", "string", "a"}),
       "schema_mismatch WRONGTYPE"},
      {redis_commands{}.command({"ZADD", "list", "1", "a"}),
       "schema_mismatch WRONGTYPE"},
      {redis_commands{}.command({"HDEL", "string", "f"}),
       "schema_mismatch WRONGTYPE"},
      // What a command before it would have made of the key counts.
      {redis_commands{}.set("new", "a").command({"RPUSH", "new", "b"}),
       "schema_mismatch WRONGTYPE"},
      {redis_commands{}.set("twice", 1).add("twice", 1), "invalid_argument"},
      {redis_commands{}.hash_set("h", "f", 1).hash_add("h", "f", 1),
       "invalid_argument"},
      {redis_commands{}.require("string", at_least(1)), "invalid_argument"},
  };
  for (const auto& c : cases) {
    auto list = redis_commands{}.set("first", "x");
    for (const auto& s : c.commands.steps()) {
      if (s.verb == "do") {
        auto words = s.words;
        words.insert(words.begin() + 1, s.key);
        list.command(words);
      }
    }
    if (list.steps().size() == 1) {
      list = c.commands;  // conditions alone
    }
    auto r = store().write(granted({.token = 6, .owner = 'b'}), list);
    ASSERT_FALSE(r) << "instead of " << c.outcome;
    auto word = r.error().backend().empty() ? outcome_of(r) : word_of(r);
    EXPECT_EQ(word, c.outcome) << r.error().message();
    EXPECT_EQ(everything(), before) << r.error().message();
  }
  // After an erase the key may become something else.
  EXPECT_EQ(write({.token = 6, .owner = 'b'},
                  redis_commands{}.erase("list").set("list", "text")),
            "ok");
}

// F06: the one size that Redis limits is that of a string, and the limit is a
// setting of the server. What is appended before counts.
TEST_F(RedisStore, F06_ATextThatWouldGrowTooLongChangesNothing) {
  if (redis_major() < 7) {
    GTEST_SKIP() << "GETBIT has a limit of its own before Redis 7";
  }
  constexpr std::size_t limit = std::size_t{1} << 20;
  server().set("proto-max-bulk-len", std::to_string(limit));
  const auto append = [](std::string text) {
    return redis_commands{}
        .set("first", "x")
        .command({"APPEND", "log", std::move(text)});
  };
  const auto full = std::string(limit - 1, 'a');
  ASSERT_EQ(write({.token = 5}, redis_commands{}.set("log", full)), "ok");
  const auto before = everything();
  for (const auto& list : {
           append("bc"),
           append("b").command({"APPEND", "log", "c"}),
           append("").set("log", full).command({"APPEND", "log", "bc"}),
       }) {
    EXPECT_EQ(write({.token = 6, .owner = 'b'}, list), "precondition_failed");
    EXPECT_EQ(everything(), before);
  }
  EXPECT_EQ(write({.token = 6, .owner = 'b'},
                  append("b").erase("log").command({"APPEND", "log", full})),
            "ok");
  EXPECT_EQ(write({.token = 6, .owner = 'b'}, append("b")), "ok");
  EXPECT_EQ(server().number({"STRLEN", "log"}),
            static_cast<std::int64_t>(limit));
}

TEST_F(RedisStore, NumbersAtTheEdge) {
  ASSERT_EQ(write({}, redis_commands{}.add("n", fencing_token::max)), "ok");
  EXPECT_EQ(write({}, redis_commands{}.add("n", 1)), "precondition_failed");
  EXPECT_EQ(server().say({"GET", "n"}), std::to_string(fencing_token::max));
  EXPECT_EQ(write({}, redis_commands{}.add("n", -fencing_token::max)), "ok");
  EXPECT_EQ(server().say({"GET", "n"}), "0");
  server().say({"SET", "n", "9223372036854775807"});
  EXPECT_EQ(write({}, redis_commands{}.add("n", -1)), "precondition_failed");
}

TEST_F(RedisStore, ListsThatMakeNoSenseAreRefusedBeforeAnyTraffic) {
  server().say({"CONFIG", "RESETSTAT"});
  const redis_commands lists[] = {
      redis_commands{},
      redis_commands{}.require("a", equals("b")),
      redis_commands{}.set("", "a"),
      redis_commands{}.set(std::string(1025, 'k'), "a"),
      redis_commands{}.set("lastdoor:{default}:ledger", "a"),
      redis_commands{}.erase("lastdoor:{default}:counter"),
      redis_commands{}.set("a", nullptr),
      redis_commands{}.hash_set("a", "b", nullptr),
      redis_commands{}.set("a", std::numeric_limits<double>::infinity()),
      redis_commands{}.add("a", fencing_token::max + 1),
      redis_commands{}.hash_set("a", "fence_token", 1),
      redis_commands{}.hash_add("a", "fence_token", -1),
      redis_commands{}.command({"HDEL", "a", "b", "fence_token"}),
      redis_commands{}.shared("a"),
      redis_commands{}.command({}),
      redis_commands{}.command({"SET"}),
      redis_commands{}.command({"GET", "a"}),
      redis_commands{}.command({"FLUSHALL", "a"}),
      redis_commands{}.command({"EVAL", "return 1", "0"}),
      redis_commands{}.command({"SET", "a", "b", "EX"}),
      redis_commands{}.command({"HSET", "a", "b"}),
      redis_commands{}.command({"HSET", "a", "b", "c", "d"}),
      redis_commands{}.command({"RPUSH", "a"}),
      redis_commands{}.command({"INCRBY", "a", "x"}),
      redis_commands{}.command({"INCRBY", "a", "9223372036854775808"}),
      redis_commands{}.command({"DECRBY", "a", "-9223372036854775808"}),
      redis_commands{}.command({"ZADD", "a", "nan", "b"}),
      redis_commands{}.command({"ZADD", "a", "NX", "1", "b"}),
      redis_commands{}.command({"PEXPIRE", "a", "0"}),
      redis_commands{}.command({"PEXPIRE", "a", "9223372036854775807"}),
      redis_commands{}.command(std::vector<std::string>(1002, "SADD")),
      redis_commands{}.set("a", "b").require("a", at_least("b")),
      redis_commands{}.set("a", "b").require("a", equals(nullptr)),
      redis_commands{}.set("a", std::string(std::size_t{17} << 20, 'x')),
  };
  for (const auto& l : lists) {
    EXPECT_EQ(write({}, l), "invalid_argument")
        << (l.steps().empty() ? l.fault() : l.steps()[0].words[0]);
  }
  EXPECT_EQ(write({}, redis_commands{}.set("a", "b"), {.sequence = -1}),
            "invalid_argument");
  EXPECT_EQ(outcome_of(store().write(
                granted({}), update("items").every_row().set("qty", 1))),
            "invalid_argument");
  EXPECT_EQ(outcome_of(store().write(
                granted({}), upsert("items").key("id", 1).add("qty", 0.5))),
            "invalid_argument");
  EXPECT_EQ(server().calls("evalsha"), 0);
}

TEST_F(RedisStore, ConditionsAreLookedAtBeforeTheFirstCommand) {
  ASSERT_EQ(write({}, redis_commands{}
                          .set("state", "open")
                          .set("n", 5)
                          .hash_set("h", "f", "1e3")),
            "ok");
  const auto holds = [&](const redis_commands& wanted) {
    return write({}, redis_commands{wanted}.set("done", "yes"));
  };
  using c = redis_commands;
  for (const auto& good :
       {c{}.require("state", equals("open")), c{}.require("n", equals(5)),
        c{}.require("n", at_least(5)), c{}.require("n", below(5.5)),
        c{}.require("state", differs("shut")), c{}.require("none", is_null()),
        c{}.require("h", not_null()), c{}.require_field("h", "f", above(999)),
        c{}.require_field("h", "x", is_null())}) {
    EXPECT_EQ(holds(good), "ok");
  }
  ASSERT_EQ(write({}, redis_commands{}.erase("done")), "ok");
  for (const auto& bad :
       {c{}.require("state", equals("shut")), c{}.require("none", equals("")),
        c{}.require("none", differs("a")), c{}.require("n", above(5)),
        c{}.require("state", at_most(5)), c{}.require("none", not_null()),
        c{}.require("h", is_null()), c{}.require_field("h", "f", below(1)),
        c{}.require_field("h", "x", at_most(1))}) {
    EXPECT_EQ(holds(bad), "precondition_failed");
  }
  EXPECT_EQ(holds(c{}.require("h", equals("a"))), "schema_mismatch");
  // Wherever it stands in the list: it speaks of the state before.
  EXPECT_EQ(
      write({}, c{}.set("state", "shut").require("state", equals("shut"))),
      "precondition_failed");
  EXPECT_EQ(server().say({"EXISTS", "done"}), "0");
  EXPECT_EQ(server().say({"GET", "state"}), "open");
}

TEST_F(RedisStore, F05_LateWriteAfterEraseIsStale) {
  ASSERT_EQ(write({.token = 1}, redis_commands{}.set("a", "1")), "ok");
  ASSERT_EQ(write({.token = 2, .owner = 'b'}, redis_commands{}.erase("a")),
            "ok");
  EXPECT_EQ(write({.token = 1}, redis_commands{}.set("a", "late")),
            "stale_token");
  EXPECT_EQ(server().say({"EXISTS", "a"}), "0");
}

TEST_F(RedisStore, R29_RowsOfDifferentNamesNeverShareAKey) {
  const auto put = [](std::string table, const value& id) {
    return insert(std::move(table)).key("id", id).set("v", 1);
  };
  for (const auto& s :
       {put("a:b", "c"), put("a", "b:c"), put("a", "b%3Ac"), put("a%3Ab", "c"),
        put("a", ""), put("a:", ""), put("{a}", "}"), put("a", "\xc3\xa9")}) {
    EXPECT_EQ(outcome_of(store().write(granted({}), s)), "ok");
  }
  // The order in which a key is told does not matter; its columns' does.
  const auto both = [](auto... k) {
    statement s = insert("pair");
    (s.key(k.first, k.second), ...);
    return s.set("v", 1);
  };
  using p = std::pair<const char*, int>;
  EXPECT_EQ(outcome_of(store().write(granted({}), both(p{"x", 1}, p{"y", 2}))),
            "ok");
  EXPECT_EQ(outcome_of(store().write(granted({}), both(p{"y", 2}, p{"x", 1}))),
            "precondition_failed");
  EXPECT_EQ(outcome_of(store().write(granted({}), both(p{"x", 2}, p{"y", 1}))),
            "ok");
}

TEST_F(RedisStore, RowsKeepKeyValuesAndLoseNullFields) {
  ASSERT_EQ(outcome_of(store().write(
                granted({.token = 3}),
                upsert("t").key("id", 7).set("a", "x").set("b", 2.5).set(
                    "c", blob{std::byte{0}}))),
            "ok");
  EXPECT_EQ(server().say({"HGET", "{default}:t:7", "id"}), "7");
  auto r = store().write(granted({.token = 3}),
                         update("t")
                             .key("id", 7)
                             .set("a", nullptr)
                             .returning({"id", "a", "b", "c"}));
  ASSERT_EQ(outcome_of(r), "ok");
  EXPECT_EQ(r->returned,
            (std::vector<row>{{7, nullptr, "2.5", std::string(1, '\0')}}));
  r = store().write(granted({.token = 3}),
                    erase("t").keys("id", {7, 7}).returning({"id", "b"}));
  ASSERT_EQ(outcome_of(r), "ok");
  EXPECT_EQ(r->rows, 1);
  EXPECT_EQ(r->returned, (std::vector<row>{{7, "2.5"}}));
  EXPECT_EQ(server().say({"EXISTS", "{default}:t:7"}), "0");
}

TEST_F(RedisStore, KeyOfAnotherTypeIsNoRow) {
  server().say({"SET", "{default}:t:1", "text"});
  EXPECT_EQ(outcome_of(store().write(granted({}),
                                     upsert("t").key("id", 1).set("v", 1))),
            "schema_mismatch");
}

}  // namespace
