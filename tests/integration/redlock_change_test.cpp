// The change of a cluster's members, on real servers.
#include <atomic>
#include <lastdoor/testing/lock_history.hpp>
#include <mutex>
#include <thread>

#include "support/redlock_change_fixture.hpp"

namespace {

using namespace lastdoor;
using namespace lastdoor::support;

// ---- G1, G2

TEST_F(RedlockChange, G2_TokensRiseWhateverTheChange) {
  struct {
    unsigned members;
    places to;
  } const cases[] = {
      {3, {0, 1, 2, 3, 4}},  // two are added
      {5, {0, 2, 4}},        // two are removed
      {3, {2, 0, 1}},        // others first
      {3, {0, 3, 2}},        // one is replaced
      {3, {3, 4, 5}},        // all are
      {4, {0, 1, 2, 3, 4}},  // from an even number
      {2, {1, 2, 3}},
      {1, {0, 1, 2}},
      {3, {3, 1}},  // to an even number
      {3, {3}},
  };
  for (const auto& c : cases) {
    start(c.members, 6 - c.members);
    const auto to = named(c.to);
    SCOPED_TRACE(::testing::PrintToString(c.to));
    std::int64_t before = 0;
    for (int i = 0; i < 10; ++i) {
      before = std::max(before, token(old_));
    }
    const auto report = change(old_, to);
    ASSERT_EQ(outcome(report), "ok") << report.error().message();
    EXPECT_TRUE(report->left_open.empty());
    EXPECT_LE(before, 16 * report->floor + 15);
    EXPECT_THAT(conditions(to), Each("admitted"));
    EXPECT_GT(token(to), 16 * report->floor + 15);
    EXPECT_EQ(outcome(old_), "misconfigured");
    for (std::size_t k = 0; k < c.members; ++k) {
      const bool stays = std::count(c.to.begin(), c.to.end(), k) > 0;
      EXPECT_THAT(at(k).say({"GET", marker}),
                  HasSubstr(stays ? "redlock-1 " : "redlock-closed-1 "));
    }
    // Once more is none.
    EXPECT_EQ(outcome(change(old_, to)), "ok");
    EXPECT_EQ(outcome(change(to, to)), "ok");
    EXPECT_NE(token(to), -1);
  }
}

// Four threads acquire all the time, by the old list, and by the new one when
// they are told so.
TEST_F(RedlockChange, G1_G2_HoldWhileOthersKeepAcquiring) {
  for (const auto& next : {places{3, 4, 1}, places{0, 1, 2, 3, 4}}) {
    start(3, 2, 2s);
    const auto to = named(next);
    std::mutex guard;
    std::vector<lastdoor::testing::grant_record> history;
    std::atomic<int> by_old{0};
    std::atomic<int> by_new{0};
    std::atomic<bool> enough{false};
    std::vector<std::thread> users;
    for (int me = 0; me < 4; ++me) {
      users.emplace_back([&, me] {
        const auto now = [] {
          return std::chrono::steady_clock::now().time_since_epoch().count();
        };
        auto locks = open(old_);
        bool moved = false;
        while (!enough) {
          const auto asked = now();
          auto got = acquire(*locks, "r" + std::to_string(me), 2s);
          const auto answered = now();
          if (got) {
            ++(moved ? by_new : by_old);
            const std::lock_guard hold{guard};
            history.push_back(
                {asked, answered, now(), got->token().value(), me, me});
          } else if (got.code() == errc::misconfigured && !moved) {
            moved = true;
            locks = open(to);
          }
          if (got) {
            locks->release(*got, boot_clock()->now() + 10s).ignore();
          }
        }
      });
    }
    EXPECT_TRUE(eventually([&] { return by_old >= 200; }));
    EXPECT_EQ(outcome(change(old_, to)), "ok");
    EXPECT_TRUE(eventually([&] { return by_new >= 200; }));
    enough = true;
    for (auto& u : users) {
      u.join();
    }
    EXPECT_EQ(find_repeated(history).value_or(""), "");
    EXPECT_EQ(find_disorder(history).value_or(""), "");
  }
}

// The only server that knows of a grant is closed: its counter is the floor.
TEST_F(RedlockChange, G2_TheFloorIsThatOfTheServerThatIsAhead) {
  start(3, 3);
  at(1).say({"INCRBY", counter, "1000"});
  at(2).say({"INCRBY", counter, "1000"});
  const auto before = token(old_);
  EXPECT_GT(token(old_), 16 * 1000 - 1);
  ASSERT_EQ(outcome(change(old_, named({3, 4, 5}))), "ok");
  EXPECT_GT(token(named({3, 4, 5})), before);
}

// ---- mutual exclusion

TEST_F(RedlockChange, G4_NobodyIsGrantedWhatIsHeldByTheOldList) {
  start(3, 3, 3s);
  auto locks = open(old_);
  result<grant> held = acquire(*locks, "r", 3s);
  ASSERT_TRUE(held) << held.error().message();
  const auto to = named({3, 4, 5});
  ASSERT_EQ(outcome(change(old_, to)), "ok");
  auto next = open(to);
  ASSERT_TRUE(eventually([&] { return acquire(*next, "r").has_value(); }));
  EXPECT_GE(boot_clock()->now(), held->valid_until());
}

TEST_F(RedlockChange, LeasesAreNotRenewedMeanwhileButReleased) {
  start(3, 1, 5s);
  auto locks = open(old_);
  const auto held = acquire(*locks, "r", 5s);
  ASSERT_TRUE(held);
  std::string renewed;
  std::string released;
  std::string acquired;
  redlock_change_options how;
  how.progress = [&](std::string_view step) {
    if (step.find("waiting") != step.npos) {
      const auto until = boot_clock()->now() + 10s;
      acquired = outcome(*locks);
      renewed = name_of(locks->renew(*held, 5s, until).code());
      released = locks->release(*held, until) ? "ok" : "failed";
    }
  };
  ASSERT_EQ(outcome(change(old_, named({0, 1, 3}), how)), "ok");
  EXPECT_EQ(acquired, "misconfigured");
  EXPECT_EQ(renewed, "not_owner");
  EXPECT_EQ(released, "ok");
  const auto refused = acquire(*locks, "s");
  EXPECT_THAT(refused.error().message(), HasSubstr("name the new ones"));
}

// ---- crashes

TEST_F(RedlockChange, F11_AfterACrashAnywhereTheSameCommandFinishesIt) {
  int steps = 0;
  for (bool crashed = true; crashed; ++steps) {
    start(3, 1);
    SCOPED_TRACE(steps);
    const auto to = named({3, 1, 0});
    std::int64_t highest = token(old_);
    crashed = crash_before(steps, old_, to);
    // Either list may still grant, but never behind the other.
    const auto look = [&](const urls& list) {
      auto locks = open(list);
      const auto got = acquire(*locks, "after");
      if (got) {
        EXPECT_GT(got->token().value(), highest);
        highest = got->token().value();
      }
      return got ? "ok" : std::string{name_of(got.error().code())};
    };
    const auto by_old = look(old_);
    const auto by_new = look(to);
    EXPECT_FALSE(by_old == "ok" && by_new == "ok");
    const auto report = change(old_, to);
    ASSERT_EQ(outcome(report), "ok") << report.error().message();
    EXPECT_THAT(conditions(to), Each("admitted"));
    EXPECT_GT(token(to), highest);
    EXPECT_EQ(outcome(old_), "misconfigured");
    EXPECT_THAT(conditions(old_), Contains("closed"));
  }
  EXPECT_GE(steps, 9) << "each step was one to crash before";
}

// Who finishes it knows the new list only.
TEST_F(RedlockChange, F11_TheNewListAloneFinishesWhatHasBegunToOpen) {
  start(3, 1);
  const auto to = named({3, 1, 0});
  ASSERT_TRUE(crash_before(7, old_, to));  // one is open
  EXPECT_EQ(outcome(to), "no_quorum") << "it waits for the rest";
  EXPECT_EQ(outcome(change(to, to)), "ok");
  EXPECT_NE(token(to), -1);
}

TEST_F(RedlockChange, AnotherChangeWaitsUntilTheFirstIsFinished) {
  start(3, 2);
  const auto to = named({0, 1, 3});
  ASSERT_TRUE(crash_before(2, old_, to));  // one is closed
  const auto refused = change(old_, named({0, 1, 4}));
  EXPECT_EQ(outcome(refused), "misconfigured");
  EXPECT_THAT(refused.error().message(), HasSubstr("finished first"));
  EXPECT_NE(token(old_), -1) << "two of three are open";
  ASSERT_EQ(outcome(change(old_, to)), "ok");
  EXPECT_EQ(outcome(change(to, named({0, 1, 4}))), "ok");
}

TEST_F(RedlockChange, SeveralAtTheSameChangeDoNoHarm) {
  start(3, 2);
  const auto to = named({4, 3, 0});
  const auto before = token(old_);
  std::vector<child_process<int>> all;
  for (int i = 0; i < 3; ++i) {
    all.emplace_back(
        [&](const auto&) { return change(old_, to).has_value() ? 0 : 1; });
  }
  for (auto& c : all) {
    c.wait();
  }
  EXPECT_EQ(outcome(change(old_, to)), "ok");
  EXPECT_GT(token(to), before);
}

}  // namespace
