// What one server of a Redlock cluster answers when many ask it at once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "embedded_redis_scripts.hpp"
#include "support/temp_redis.hpp"

namespace {

using namespace lastdoor;
using namespace lastdoor::support;
using ::testing::HasSubstr;
namespace scripts = detail::redis_scripts;

class RedlockScripts : public ::testing::Test {
 protected:
  void SetUp() override {
    LASTDOOR_NEEDS_REDIS();
    server_ = std::make_unique<temp_redis>();
    server_->say({"SET", "counter", "10"});
    server_->say({"SET", "marker", "mine"});
  }
  temp_redis& server() { return *server_; }

  struct vote {
    std::string lock;
    std::string owner;
  };
  std::string ask(const std::vector<vote>& all) {
    argument_list words{"EVAL",
                        std::string{scripts::redlock_acquire.text},
                        std::to_string(3 + all.size()),
                        "counter",
                        "marker",
                        "note"};
    for (const auto& v : all) {
      words.push_back(v.lock);
    }
    words.emplace_back("mine");
    for (const auto& v : all) {
      words.push_back(v.owner + " 0 holder");
      words.emplace_back("60000");
    }
    return server().say(words);
  }
  struct freed {
    std::string lock;
    std::string owner;
    std::string value;
  };
  std::string release(const std::vector<freed>& all) {
    argument_list words{"EVAL", std::string{scripts::redlock_release.text},
                        std::to_string(2 + all.size()), "counter", "marker"};
    for (const auto& f : all) {
      words.push_back(f.lock);
    }
    words.emplace_back("mine");
    for (const auto& f : all) {
      words.push_back(f.owner);
      words.push_back("free:" + f.lock);
      words.push_back(f.value);
    }
    return server().say(words);
  }
  std::string get(const std::string& key) { return server().say({"GET", key}); }

 private:
  std::unique_ptr<temp_redis> server_;
};

TEST_F(RedlockScripts, G1_EachOfManyVotesIsAValueOfItsOwn) {
  EXPECT_EQ(ask({{"a", "A"}, {"b", "B"}, {"c", "C"}}), "11,12,13");
  EXPECT_EQ(get("counter"), "13");
  EXPECT_EQ(get("b"), "B 0 holder");
  EXPECT_EQ(ask({{"d", "D"}}), "14");
}

TEST_F(RedlockScripts, OneLockForTwoAtOnceIsTheFirstOnes) {
  EXPECT_THAT(ask({{"a", "A"}, {"a", "B"}, {"b", "B"}}),
              ::testing::MatchesRegex("11,busy,[0-9]+,A 0 holder,12"));
  EXPECT_EQ(get("a"), "A 0 holder");
}

TEST_F(RedlockScripts, ForeignKeyIsNoReasonForTheOthers) {
  server().say({"RPUSH", "list", "x"});
  EXPECT_EQ(ask({{"list", "A"}, {"b", "B"}}), "foreign,11");
  EXPECT_EQ(server().say({"LLEN", "list"}), "1");
}

TEST_F(RedlockScripts, R15_ForgetfulServerVotesForNobodyAndKeepsOneNote) {
  server().say({"DEL", "marker"});
  EXPECT_EQ(ask({{"a", "A"}, {"b", "B"}}), "forgot,,A,forgot,,A");
  EXPECT_EQ(ask({{"a", "C"}}), "forgot,,A");
  EXPECT_EQ(get("a"), "<nil>");
  EXPECT_EQ(get("counter"), "10");
}

TEST_F(RedlockScripts, R20_LostCounterLeavesNoLock) {
  server().say({"DEL", "counter"});
  EXPECT_EQ(ask({{"a", "A"}, {"b", "B"}}), "forgot,,A,forgot,,A");
  EXPECT_EQ(server().say({"EXISTS", "a", "b", "counter", "marker"}), "0");
}

// Whoever wrote it, nobody knows what it was: together no votes may leap over
// the value that tells.
TEST_F(RedlockScripts, R20_CounterBelowOneIsNotPassedByManyVotes) {
  server().say({"SET", "counter", "-3"});
  EXPECT_EQ(ask({{"a", "A"}, {"b", "B"}}), "damaged,damaged");
  EXPECT_EQ(ask({{"a", "A"}, {"b", "B"}, {"c", "C"}}),
            "forgot,,A,forgot,,A,forgot,,A");
  EXPECT_EQ(server().say({"EXISTS", "a", "b", "c", "counter", "marker"}), "0");
}

TEST_F(RedlockScripts, DamagedOrSpentCounterLeavesNoLock) {
  for (const auto& [counter, answer] :
       {std::pair{"no number", "damaged,damaged"},
        {"-7", "damaged,damaged"},
        {"562949953421311", "exhausted,exhausted"},
        {"9223372036854775806", "exhausted,exhausted"}}) {
    SCOPED_TRACE(counter);
    server().say({"SET", "counter", counter});
    EXPECT_EQ(ask({{"a", "A"}, {"b", "B"}}), answer);
    EXPECT_EQ(server().say({"EXISTS", "a", "b"}), "0");
  }
}

TEST_F(RedlockScripts, FullServerStillSaysWhoHoldsALock) {
  ask({{"held", "A"}});
  server().set("maxmemory", "1");
  EXPECT_THAT(ask({{"held", "B"}, {"b", "B"}}),
              ::testing::MatchesRegex("busy,[0-9]+,A 0 holder,.*OOM .*"));
  EXPECT_EQ(get("counter"), "11");
  EXPECT_EQ(release({{"held", "A", "99"}}), "1");
}

TEST_F(RedlockScripts, ReleaseFreesEachForItsOwnerAndRaisesOnce) {
  ask({{"a", "A"}, {"b", "B"}});
  EXPECT_EQ(release({{"a", "A", "0"},
                     {"b", "X", "40"},
                     {"c", "C", "30"},
                     {"a", "A", "0"}}),
            "1,-1,0,0");
  EXPECT_EQ(get("b"), "B 0 holder");
  EXPECT_EQ(get("counter"), "40");
}

TEST_F(RedlockScripts, ReleaseNeverLowersNorRaisesWhatForgot) {
  EXPECT_EQ(release({{"a", "A", "7"}}), "0");
  EXPECT_EQ(get("counter"), "10");
  server().say({"SET", "marker", "another"});
  EXPECT_EQ(release({{"a", "A", "70"}}), "0");
  EXPECT_EQ(get("counter"), "10");
  server().say({"MSET", "marker", "mine", "counter", "-5"});
  EXPECT_EQ(release({{"a", "A", "70"}}), "0");
  EXPECT_EQ(get("counter"), "-5") << "damaged is not mended in passing";
}

}  // namespace
