// Redlock on real servers: what is down, silent, forgetful or wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lastdoor/testing/processes.hpp>
#include <thread>

#include "locks/redlock_backend.hpp"
#include "support/redlock_cluster.hpp"
#include "support/tcp_proxy.hpp"

namespace {

using namespace lastdoor;
using namespace lastdoor::support;
using namespace std::chrono_literals;
using ::testing::HasSubstr;

constexpr auto brief = 2s;  // a max TTL that a test can sit out

class Redlock : public ::testing::Test {
 protected:
  void SetUp() override { LASTDOOR_NEEDS_REDIS(); }

  static result<grant> acquire(lock_backend& locks, std::string_view name,
                               duration ttl = 1500ms) {
    return attempt(locks, name, ttl);
  }
  static std::string outcome(const result<grant>& r) {
    return r ? "ok" : std::string{name_of(r.error().code())};
  }
  static result<void> release(lock_backend& locks, const grant& g) {
    return locks.release(g, boot_clock()->now() + 10s);
  }
  // Grants until one succeeds: while servers come back or leases run out.
  static result<grant> insist(lock_backend& locks, std::string_view name) {
    result<grant> got = acquire(locks, name);
    (void)eventually([&] {
      got = acquire(locks, name);
      return got.has_value();
    });
    return got;
  }
  static std::string lock_key(std::string_view name) {
    return "lastdoor:{default}:redlock:lock:" + std::string{name};
  }
  static constexpr const char* counter = "lastdoor:{default}:redlock:counter";
  static constexpr const char* marker = "lastdoor:{default}:redlock:marker";

  static std::vector<std::string> conditions(
      const std::vector<std::string>& urls) {
    static const char* const names[] = {"admitted", "quarantined",
                                        "unreachable", "foreign"};
    std::vector<std::string> out;
    for (const auto& s :
         redlock_status(urls, redlock_cluster::patience()).value()) {
      out.emplace_back(names[static_cast<int>(s.now)]);
    }
    return out;
  }
};

// Nothing is left on any server after a release, and the counters agree.
TEST_F(Redlock, R08_ReleaseClearsEveryServer) {
  redlock_cluster all{5};
  auto locks = all.patient();
  const auto g = acquire(*locks, "r", 1min);
  ASSERT_EQ(outcome(g), "ok");
  ASSERT_TRUE(release(*locks, *g));
  for (std::size_t k = 0; k < all.size(); ++k) {
    EXPECT_TRUE(eventually([&] {
      return all[k].say({"EXISTS", lock_key("r")}) == "0";
    })) << k;
  }
}

TEST_F(Redlock, R07_TwoOfFiveDownAndOneOfThreeSilentDoNotMatter) {
  redlock_cluster five{5};
  auto locks = five.patient();
  ASSERT_EQ(outcome(acquire(*locks, "before")), "ok");
  five[1].kill_hard();
  five[4].kill_hard();
  EXPECT_EQ(outcome(acquire(*locks, "r")), "ok");
  five[0].kill_hard();
  const auto refused = acquire(*locks, "other");
  EXPECT_EQ(outcome(refused), "no_quorum");
  EXPECT_THAT(refused.error().message(), HasSubstr("of 5 servers"));

  redlock_cluster three{3};
  auto quick = open_redlock_backend(three.urls()).value();
  ASSERT_EQ(outcome(insist(*quick, "before")), "ok");
  three[2].pause();
  EXPECT_EQ(outcome(insist(*quick, "r")), "ok");
  three[2].resume();
}

// The second round is not taken while the counters agree; a server that was
// away is raised by the releases and costs one round, once.
TEST_F(Redlock, OneRoundTripUnlessAServerFellBehind) {
  redlock_cluster all{5};
  auto opened = all.patient();
  auto& locks = dynamic_cast<redlock_backend&>(*opened);
  const auto grants = [&](int n) {
    for (int i = 0; i < n; ++i) {
      const auto g = acquire(locks, "r", 1min);
      ASSERT_EQ(outcome(g), "ok");
      ASSERT_TRUE(release(locks, *g));
    }
  };
  grants(500);
  EXPECT_EQ(locks.second_rounds(), 0U);
  all[3].say({"SET", counter, "1"});
  grants(50);
  EXPECT_TRUE(eventually([&] {
    grants(1);
    return all[3].number({"GET", counter}) >= 500;
  })) << "a laggard catches up";
}

TEST_F(Redlock, G2_TokensRiseThoughCountersAreUneven) {
  redlock_cluster all{5};
  auto locks = all.patient();
  std::int64_t last = 0;
  for (int i = 0; i < 40; ++i) {
    // A different server is ahead each time, as after answers that were lost.
    all[static_cast<std::size_t>(i % 5)].say({"INCRBY", counter, "7"});
    const auto g = acquire(*locks, "r", 1min);
    ASSERT_EQ(outcome(g), "ok");
    EXPECT_GT(g->token().value(), last);
    last = g->token().value();
    ASSERT_TRUE(release(*locks, *g));
  }
}

// Two quorums that share one server, and that one was behind: only because it
// was raised before the first grant is the second token higher.
TEST_F(Redlock, G2_AQuorumStandsBehindEveryToken) {
  redlock_cluster all{3};
  auto locks = all.patient();
  ASSERT_EQ(outcome(acquire(*locks, "before")), "ok");
  all[1].say({"INCRBY", counter, "1000"});
  all[2].pause();
  const auto first = acquire(*locks, "r", 10min);
  ASSERT_EQ(outcome(first), "ok");
  all[1].pause();
  all[2].resume();
  const auto second = acquire(*locks, "s", 10min);
  ASSERT_EQ(outcome(second), "ok");
  EXPECT_GT(second->token(), first->token());
  all[1].resume();
}

// R15, G8: a server that forgot everything does not vote before one max TTL
// is over, and then stands above everything that was granted.
TEST_F(Redlock, R15_AForgetfulServerWaitsAndComesBackAbove) {
  redlock_cluster all{3, brief};
  auto locks = all.patient();
  ASSERT_EQ(outcome(acquire(*locks, "first")), "ok");
  const auto high = insist(*locks, "second");
  all[0].restart_empty();
  ASSERT_EQ(outcome(insist(*locks, "third")), "ok");
  EXPECT_EQ(all[0].say({"EXISTS", lock_key("third")}), "0")
      << "it grants nothing";
  EXPECT_THAT(conditions(all.urls()),
              ::testing::ElementsAre("quarantined", "admitted", "admitted"));
  // With another one down there is no quorum until it is readmitted.
  EXPECT_TRUE(eventually([&] {
    (void)acquire(*locks, "tick");
    return conditions(all.urls())[0] == "admitted";
  }));
  EXPECT_GE(all[0].number({"GET", counter}), high->token().value() / 16);
  all[1].kill_hard();
  const auto after = insist(*locks, "fourth");
  ASSERT_EQ(outcome(after), "ok");
  EXPECT_GT(after->token(), high->token());
}

TEST_F(Redlock, R15_AFlushOnALiveConnectionIsNoticed) {
  redlock_cluster all{3, brief};
  auto locks = all.patient();
  const auto before = acquire(*locks, "r");
  ASSERT_EQ(outcome(before), "ok");
  all[0].say({"FLUSHALL"});
  all[1].kill_hard();
  EXPECT_EQ(outcome(acquire(*locks, "other")), "no_quorum")
      << "one server that remembers is not enough";
  all[1].start();
  // Two of three have forgotten: no wait brings them back without a floor.
  EXPECT_FALSE(eventually(
      [&] { return outcome(acquire(*locks, "other")) == "ok"; }, 3 * brief));
}

// Only the counter is gone, evicted for one.
TEST_F(Redlock, R20_ALostCounterIsALostMemory) {
  redlock_cluster all{3, 1h};
  auto locks = all.patient();
  const auto before = acquire(*locks, "r", 10min);
  ASSERT_EQ(outcome(before), "ok");
  all[0].say({"DEL", counter});
  all[1].say({"DEL", counter});
  const auto refused = acquire(*locks, "s");
  EXPECT_EQ(outcome(refused), "no_quorum") << "two voices of three are void";
  EXPECT_THAT(refused.error().message(), HasSubstr("quarantine"));
}

// A restart with all data is a restart all the same: what was written last
// may be missing. Durable servers are excepted.
TEST_F(Redlock, R15_ARestartWithDataWaitsUnlessDurable) {
  const redis_options persistent{.persistent = true,
                                 .settings = {"appendfsync always"}};
  redlock_cluster kept{3, 1h, persistent};
  auto others = kept.patient();
  ASSERT_EQ(outcome(acquire(*others, "r")), "ok");
  kept[0].restart();
  kept[1].restart();
  EXPECT_EQ(outcome(acquire(*others, "s")), "no_quorum");

  redlock_cluster all{3, duration{0}, persistent};
  ASSERT_TRUE(redlock_init(all.urls(), {.max_ttl = 1h, .durable = true},
                           redlock_cluster::patience()));
  auto locks = all.patient();
  const auto before = acquire(*locks, "r", 10min);
  ASSERT_EQ(outcome(before), "ok");
  for (std::size_t k = 0; k < 2; ++k) {
    all[k].restart();
  }
  const auto held = insist(*locks, "s");
  ASSERT_EQ(outcome(held), "ok") << "no hour was waited";
  EXPECT_GT(held->token(), before->token());
  EXPECT_EQ(outcome(acquire(*locks, "r")), "busy") << "the lock was kept";

  redlock_cluster plain{3};
  EXPECT_THAT(
      redlock_init(plain.urls(), {.durable = true}, redlock_cluster::patience())
          .error()
          .message(),
      HasSubstr("used before"));
  redlock_cluster blank{3, duration{0}};
  EXPECT_EQ(
      redlock_init(blank.urls(), {.durable = true}, redlock_cluster::patience())
          .code(),
      errc::misconfigured)
      << "durable is checked";
}

TEST_F(Redlock, TooFewThatRememberNeedAFloor) {
  redlock_cluster all{3, brief};
  auto locks = all.patient();
  const auto before = insist(*locks, "r");
  ASSERT_EQ(outcome(before), "ok");
  all[0].restart_empty();
  all[1].restart_empty();
  EXPECT_EQ(outcome(acquire(*locks, "s")), "no_quorum");
  EXPECT_EQ(redlock_admit(all.urls(), {}, redlock_cluster::patience()).code(),
            errc::no_quorum);
  const mark floor{fencing_token::from(100'000).value()};
  ASSERT_TRUE(redlock_admit(all.urls(), floor, redlock_cluster::patience()));
  const auto after = insist(*locks, "s");
  ASSERT_EQ(outcome(after), "ok");
  EXPECT_GT(after->token().value(), 100'000);
}

TEST_F(Redlock, G8_AFloorIsRaisedOnAQuorum) {
  redlock_cluster all{3};
  auto locks = all.patient();
  ASSERT_TRUE(locks->raise_floor(mark{fencing_token::from(1'000'000).value()}));
  all[0].kill_hard();
  const auto g = acquire(*locks, "r");
  ASSERT_EQ(outcome(g), "ok");
  EXPECT_GT(g->token().value(), 1'000'000);
}

// R09, R10: the answers of a quorum are lost; the attempt leaves nothing.
TEST_F(Redlock, R09_LostAnswersLeaveNoOrphan) {
  redlock_cluster all{3};
  std::vector<std::unique_ptr<tcp_proxy>> between;
  std::vector<std::string> urls;
  for (std::size_t k = 0; k < 3; ++k) {
    between.push_back(std::make_unique<tcp_proxy>(all[k].port()));
    urls.push_back(between.back()->redis_url());
  }
  auto locks = open_redlock_backend(urls, redlock_cluster::patience()).value();
  ASSERT_EQ(outcome(acquire(*locks, "before")), "ok");
  between[0]->lose_next_reply();
  between[1]->lose_next_reply();
  EXPECT_NE(outcome(acquire(*locks, "r", 1h)), "ok");
  EXPECT_EQ(outcome(insist(*locks, "r")), "ok") << "not blocked by itself";
}

TEST_F(Redlock, WrongSetUpsAreToldApart) {
  redlock_cluster all{3};
  redlock_cluster other{3};
  const auto why = [](const std::vector<std::string>& urls) {
    auto locks = open_redlock_backend(urls, redlock_cluster::patience());
    if (!locks) {
      return locks.error().message();
    }
    static int calls = 0;
    const auto got = acquire(**locks, std::to_string(++calls));
    return got ? std::string{"ok"} : got.error().message();
  };
  const auto& u = all.urls();
  EXPECT_EQ(why(u), "ok");
  EXPECT_THAT(why({u[0], u[0], u[1]}), HasSubstr("named twice"));
  EXPECT_THAT(why({all[0].url(), all[0].tcp_url(), u[1]}), HasSubstr("place"));
  EXPECT_THAT(why({u[1], u[0], u[2]}), HasSubstr("order"));
  EXPECT_THAT(why({u[0], u[1]}), HasSubstr("cluster of 3"));
  EXPECT_THAT(why({u[0], u[1], other.urls()[2]}), HasSubstr("another cluster"));
  EXPECT_THAT(why({}), HasSubstr("1 to 15"));
  EXPECT_THAT(why(std::vector<std::string>(16, u[0])), HasSubstr("1 to 15"));
  temp_redis blank;
  EXPECT_THAT(why({blank.url()}), HasSubstr("redlock init"));
  all[0].say({"SET", marker, "redlock-1 broken"});
  EXPECT_EQ(why(u), "ok") << "two of three are in order";
  EXPECT_THAT(conditions(u),
              ::testing::ElementsAre("foreign", "admitted", "admitted"));
  EXPECT_THAT(redlock_status(u, redlock_cluster::patience()).value()[0].why,
              HasSubstr("damaged"));
  EXPECT_EQ(redlock_init(other.urls(), {}, redlock_cluster::patience()).code(),
            errc::misconfigured);
}

TEST_F(Redlock, R35_ADamagedCounterIsNoContention) {
  redlock_cluster all{1};
  auto locks = all.patient();
  ASSERT_EQ(outcome(acquire(*locks, "r")), "ok");
  all[0].say({"SET", counter, "abc"});
  EXPECT_EQ(outcome(acquire(*locks, "s")), "damaged");
  all[0].say({"SET", counter, "562949953421310"});
  const auto last = acquire(*locks, "t");
  ASSERT_EQ(outcome(last), "ok");
  EXPECT_LE(last->token().value(), fencing_token::max);
  EXPECT_EQ(outcome(acquire(*locks, "u")), "token_exhausted");
}

TEST_F(Redlock, R21_TtlsTheClusterWasNotSetUpFor) {
  redlock_cluster all{3, 1s};
  auto locks = all.patient();
  EXPECT_EQ(outcome(acquire(*locks, "r", 2s)), "invalid_argument");
  EXPECT_EQ(all[0].say({"EXISTS", lock_key("r")}), "0") << "nothing was sent";
  EXPECT_EQ(outcome(acquire(*locks, "r", 0s)), "invalid_argument");
  EXPECT_EQ(outcome(acquire(*locks, "r", 1s)), "ok");
}

// R05, R06: the time that the votes took counts.
TEST_F(Redlock, R06_ASlowQuorumLeavesLessOrNothing) {
  redlock_cluster all{3};
  std::vector<std::unique_ptr<tcp_proxy>> between;
  std::vector<std::string> urls;
  for (std::size_t k = 0; k < 3; ++k) {
    between.push_back(std::make_unique<tcp_proxy>(all[k].port()));
    urls.push_back(between.back()->redis_url());
  }
  auto locks = open_redlock_backend(urls, redlock_cluster::patience()).value();
  ASSERT_EQ(outcome(acquire(*locks, "before")), "ok");
  for (auto& b : between) {
    b->delay(60ms);
  }
  const auto start = boot_clock()->now();
  const auto g = acquire(*locks, "slow", 30s);
  ASSERT_EQ(outcome(g), "ok");
  EXPECT_LE(g->valid_until(), start + 30s - 300ms - 2ms + 1ms)
      << "counted from before the first send, with drift";
  EXPECT_EQ(outcome(acquire(*locks, "late", 100ms)), "too_slow");
  for (auto& b : between) {
    b->delay(0ms);
  }
  EXPECT_EQ(outcome(insist(*locks, "late")), "ok") << "and was undone";
}

// Two clients, two servers: one vote each. Every such pattern ends.
TEST_F(Redlock, SplitVotesEnd) {
  for (const unsigned n : {2U, 4U}) {
    redlock_cluster all{n};
    std::vector<lastdoor::testing::child_process<int>> rivals;
    for (int i = 0; i < 4; ++i) {
      rivals.emplace_back([&](const auto&) {
        auto locks =
            open_redlock(all.urls(), redlock_cluster::patience()).value();
        for (int done = 0; done < 25; ++done) {
          auto l = locks.acquire("r", {.ttl = 10s, .wait_at_most = 30s});
          if (!l || !l->release()) {
            return 1;
          }
        }
        return 0;
      });
    }
    for (auto& r : rivals) {
      EXPECT_EQ(r.wait(), 0) << n;
    }
  }
}

TEST_F(Redlock, SequentialGrantsTheSame) {
  redlock_cluster all{5};
  auto options = redlock_cluster::patience();
  options.sequential = true;
  auto one = open_redlock_backend(all.urls(), options).value();
  auto two = all.patient();
  const auto g = acquire(*one, "r", 1min);
  ASSERT_EQ(outcome(g), "ok");
  EXPECT_EQ(outcome(acquire(*two, "r")), "busy");
  ASSERT_TRUE(release(*one, *g));
  const auto next = acquire(*two, "r");
  ASSERT_EQ(outcome(next), "ok");
  EXPECT_GT(next->token(), g->token());
}

TEST(RedlockUrl, NamesEachServer) {
  EXPECT_THAT(
      redlock_servers("redlock://a:1,b,c:3").value(),
      ::testing::ElementsAre("redis://a:1", "redis://b", "redis://c:3"));
  EXPECT_THAT(redlock_servers("redlock://u:p@a:1,b:2/4").value(),
              ::testing::ElementsAre("redis://u:p@a:1/4", "redis://u:p@b:2/4"));
  for (const char* bad : {"redlock://", "redlock://a,,b", "redlock://a,",
                          "redlock://u:p@a,u:p@b", "redis://a", "redlock:a"}) {
    EXPECT_EQ(redlock_servers(bad).code(), errc::invalid_argument) << bad;
  }
}

}  // namespace
