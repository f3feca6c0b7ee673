// The change of a cluster's members, on real servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <lastdoor/testing/lock_history.hpp>
#include <lastdoor/testing/processes.hpp>
#include <mutex>
#include <thread>

#include "support/redlock_cluster.hpp"

namespace {

using namespace lastdoor;
using namespace lastdoor::support;
using namespace std::chrono_literals;
using lastdoor::testing::child_process;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using urls = std::vector<std::string>;
using places = std::vector<std::size_t>;

constexpr auto brief = 400ms;  // a max TTL that a test can sit out
constexpr const char* marker = "lastdoor:{default}:redlock:marker";
constexpr const char* counter = "lastdoor:{default}:redlock:counter";

class RedlockChange : public ::testing::Test {
 protected:
  void SetUp() override { LASTDOOR_NEEDS_REDIS(); }

  // `members` servers that are a cluster, and blank ones behind them.
  void start(unsigned members, unsigned blank, duration max_ttl = brief) {
    all_.clear();
    for (unsigned k = 0; k < members + blank; ++k) {
      all_.push_back(std::make_unique<temp_redis>());
    }
    old_.clear();
    for (unsigned k = 0; k < members; ++k) {
      old_.push_back(all_[k]->url());
    }
    redlock_init(old_, {.max_ttl = max_ttl}, redlock_cluster::patience())
        .value();
  }
  [[nodiscard]] urls named(const places& which) const {
    urls out;
    for (const auto k : which) {
      out.push_back(all_[k]->url());
    }
    return out;
  }
  temp_redis& at(std::size_t k) { return *all_[k]; }

  static std::unique_ptr<lock_backend> open(const urls& list) {
    return open_redlock_backend(list, redlock_cluster::patience()).value();
  }
  static result<grant> acquire(lock_backend& locks, std::string_view name,
                               duration ttl = 300ms) {
    const auto resource = resource_name::parse(name).value();
    const auto owner = owner_id::generate().value();
    auto got = locks.try_acquire(
        {resource, owner, ttl, "test", boot_clock()->now() + 10s});
    if (!got) {
      return got.error();
    }
    return grant{resource, owner, got->token, locks.source(), got->valid_until};
  }
  // A grant of a resource of its own, tried until there is one.
  static std::int64_t token(const urls& list) {
    auto locks = open(list);
    result<grant> got = acquire(*locks, "first");
    (void)eventually([&] {
      static int n = 0;
      got = acquire(*locks, std::to_string(++n));
      return got.has_value();
    });
    return got ? got->token().value() : -1;
  }
  // What one attempt comes to.
  static std::string outcome(lock_backend& locks) {
    static int n = 0;
    const auto got = acquire(locks, "once-" + std::to_string(++n));
    return got ? "ok" : std::string{name_of(got.error().code())};
  }
  static std::string outcome(const urls& list) { return outcome(*open(list)); }

  static result<redlock_change_report> change(
      const urls& from, const urls& to, const redlock_change_options& how = {},
      redlock_options options = redlock_cluster::patience()) {
    return redlock_change(from, to, how, options);
  }
  // With servers that do not answer.
  static redlock_options hasty() {
    redlock_options o;
    o.node_timeout = 1s;
    o.call_timeout = 2s;
    return o;
  }
  static std::string outcome(const result<redlock_change_report>& r) {
    return r ? "ok" : std::string{name_of(r.error().code())};
  }
  static std::vector<std::string> conditions(
      const urls& list,
      const redlock_options& o = redlock_cluster::patience()) {
    static const char* const names[] = {"admitted", "quarantined",
                                        "unreachable", "foreign", "closed"};
    std::vector<std::string> out;
    for (const auto& s : redlock_status(list, o).value()) {
      out.emplace_back(names[static_cast<int>(s.now)]);
    }
    return out;
  }
  // A change that dies before its step `n`, in a process of its own. False
  // when it was done before that.
  static bool crash_before(int n, const urls& from, const urls& to) {
    child_process<int> dying{[&](const auto&) {
      redlock_change_options how;
      how.progress = [&, left = n](std::string_view) mutable {
        if (left-- == 0) {
          ::_exit(77);
        }
      };
      return change(from, to, how) ? 0 : 1;
    }};
    const int code = dying.wait();
    EXPECT_TRUE(code == 0 || code == 77) << code;
    return code == 77;
  }

  std::vector<std::unique_ptr<temp_redis>> all_;
  urls old_;
};

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

// ---- what forgets

TEST_F(RedlockChange, R15_AReservedServerThatForgotIsReadmittedNotOpened) {
  start(3, 1);
  const auto to = named({0, 1, 3});
  const auto before = token(old_);
  ASSERT_TRUE(crash_before(6, old_, to));
  at(3).restart_empty();
  ASSERT_EQ(outcome(change(old_, to)), "ok");
  EXPECT_THAT(conditions(to), Each("admitted"));
  EXPECT_GT(token(to), before);
  // Opened, granted, forgotten: again not by the old floor.
  std::int64_t last = 0;
  for (int i = 0; i < 5; ++i) {
    last = token(to);
  }
  at(3).restart_empty();
  ASSERT_EQ(outcome(change(old_, to)), "ok");
  EXPECT_GE(at(3).number({"GET", counter}), last / 16);
}

TEST_F(RedlockChange, R15_WithNobodyWhoRemembersAFloorIsNeeded) {
  start(3, 3);
  const auto to = named({3, 4, 5});
  const auto before = token(old_);
  ASSERT_TRUE(crash_before(8, old_, to));  // closed and waited
  for (std::size_t k = 3; k < 6; ++k) {
    at(k).restart_empty();
  }
  EXPECT_EQ(outcome(change(old_, to)), "unavailable");
  redlock_change_options how;
  how.floor = mark{fencing_token::from(before + 1000).value()};
  ASSERT_EQ(outcome(change(old_, to, how)), "ok");
  EXPECT_GT(token(to), before + 1000);
}

// Closed one after the other, but not at one moment.
TEST_F(RedlockChange, R15_AClosedServerThatForgotIsNotCounted) {
  start(3, 1);
  redlock_change_options how;
  how.progress = [&](std::string_view step) {
    if (step.find("whether enough") != step.npos) {
      at(0).say({"FLUSHALL"});
      at(1).say({"FLUSHALL"});
    }
  };
  const auto refused = change(old_, named({0, 1, 3}), how);
  EXPECT_EQ(outcome(refused), "no_quorum");
  EXPECT_EQ(at(3).say({"GET", marker}).find("redlock-1 "), std::string::npos)
      << "nothing was opened";
}

TEST_F(RedlockChange, TooFewThatRememberNeedAFloor) {
  start(3, 1);
  const auto before = token(old_);
  at(0).restart_empty();
  at(1).restart_empty();
  const auto to = named({0, 2, 3});
  EXPECT_EQ(outcome(change(old_, to)), "no_quorum");
  redlock_change_options how;
  how.floor = mark{fencing_token::from(before + 1000).value()};
  ASSERT_EQ(outcome(change(old_, to, how)), "ok");
  EXPECT_GT(token(to), before + 1000);
}

// ---- who is there

TEST_F(RedlockChange, R07_ADeadServerIsReplaced) {
  start(3, 1);
  const auto before = token(old_);
  at(1).kill_hard();
  const auto to = named({0, 3, 2});
  const auto report = change(old_, to);
  ASSERT_EQ(outcome(report), "ok") << report.error().message();
  EXPECT_THAT(report->left_open, ElementsAre(HasSubstr("socket")));
  EXPECT_GT(token(to), before);
}

// Fewer than a quorum, and of an even number exactly half: half could be
// enough to know the tokens, but not to keep the old cluster closed.
TEST_F(RedlockChange, TooFewOldServersAndNothingIsChanged) {
  for (const unsigned n : {3U, 4U}) {
    start(n, 1);
    for (std::size_t k = n / 2; k < n; ++k) {
      at(k).pause();
    }
    const auto marker_before = at(0).say({"GET", marker});
    const auto refused = change(old_, named({0, n}), {}, hasty());
    EXPECT_EQ(outcome(refused), "no_quorum") << n;
    EXPECT_THAT(refused.error().message(), HasSubstr("Nothing was changed"));
    EXPECT_EQ(at(0).say({"GET", marker}), marker_before);
    EXPECT_EQ(at(n).say({"EXISTS", marker}), "0");
    for (std::size_t k = n / 2; k < n; ++k) {
      at(k).resume();
    }
    EXPECT_NE(token(old_), -1) << "and it works as before";
  }
}

TEST_F(RedlockChange, NewServersMustBeThereAndBlank) {
  start(3, 2);
  redlock_cluster other{1};
  const auto refused = [&](const urls& to) {
    const auto r = change(old_, to, {}, hasty());
    return r ? "ok" : r.error().message();
  };
  const auto& o = old_;
  EXPECT_THAT(refused({o[0], o[1], other.urls()[0]}),
              HasSubstr("another cluster"));
  at(3).say({"SET", counter, "5"});
  EXPECT_THAT(refused({o[0], o[1], at(3).url()}), HasSubstr("used before"));
  at(3).say({"SET", marker, "abc"});
  EXPECT_THAT(refused({o[0], o[1], at(3).url()}), HasSubstr("damaged"));
  EXPECT_THAT(refused({o[0], o[1], at(1).tcp_url()}),
              HasSubstr("named before"));
  at(4).kill_hard();
  EXPECT_THAT(refused({o[0], o[1], at(4).url()}), HasSubstr("must answer"));
  EXPECT_THAT(refused({}), HasSubstr("1 to 15"));
  EXPECT_THAT(conditions(old_), Each("admitted"));
  EXPECT_NE(token(old_), -1);

  at(4).start();
  const auto why = [&](const urls& from) {
    const auto r = change(from, {o[0], o[1], at(4).url()});
    return r ? "ok" : r.error().message();
  };
  EXPECT_THAT(why({o[1], o[0], o[2]}), HasSubstr("order"));
  EXPECT_THAT(why({o[0], o[1]}), HasSubstr("cluster of 3"));
  EXPECT_THAT(why({at(4).url()}), HasSubstr("remembers"));
  EXPECT_THAT(conditions(old_), Each("admitted"));
}

// Paused during the change: it comes back as it was.
TEST_F(RedlockChange, AnOldServerThatComesBackIsForeignAndThenClosed) {
  start(3, 1);
  const auto to = named({0, 1, 3});
  const auto before = token(old_);
  at(2).pause();
  const auto report = change(old_, to, {}, hasty());
  ASSERT_EQ(outcome(report), "ok") << report.error().message();
  EXPECT_EQ(report->left_open.size(), 1U);
  at(2).resume();
  EXPECT_THAT(conditions(old_), ElementsAre("admitted", "admitted", "foreign"));
  EXPECT_EQ(outcome(old_), "misconfigured");
  const auto again = change(old_, to);
  ASSERT_EQ(outcome(again), "ok") << again.error().message();
  EXPECT_TRUE(again->left_open.empty());
  const auto all = redlock_status(old_, redlock_cluster::patience()).value();
  EXPECT_EQ(all[2].now, redlock_node_status::condition::closed);
  EXPECT_THAT(all[2].why, HasSubstr("name the new ones"));
  EXPECT_GT(token(to), before);
  // To be used again it must be emptied.
  const auto back = named({0, 1, 3, 2});
  EXPECT_EQ(outcome(change(to, back)), "misconfigured");
  at(2).say({"FLUSHDB"});
  EXPECT_EQ(outcome(change(to, back)), "ok");
}

// The list of a client that was not told, and behind the old address a new
// server. Place and number fit; it must not be taken for the member that has
// this place now.
TEST_F(RedlockChange, R15_AStaleListAdmitsNoStranger) {
  start(3, 1);
  const auto to = named({0, 1, 3});
  at(2).kill_hard();
  ASSERT_EQ(outcome(change(old_, to)), "ok");
  at(2).start();
  auto stale = open(old_);
  EXPECT_EQ(redlock_admit(old_, {}, redlock_cluster::patience()).code(),
            errc::misconfigured);
  EXPECT_FALSE(eventually(
      [&] {
        (void)outcome(*stale);
        return at(2).say({"EXISTS", marker}) == "1";
      },
      5 * brief));
  const auto all = redlock_status(old_, redlock_cluster::patience()).value();
  EXPECT_EQ(all[2].now, redlock_node_status::condition::quarantined);
  EXPECT_THAT(all[2].why, HasSubstr("as they were set up"));
  // Those who know the list readmit the member.
  at(3).restart_empty();
  EXPECT_TRUE(redlock_admit(to, {}, redlock_cluster::patience()));
  EXPECT_THAT(conditions(to), Each("admitted"));
}

// Without any change: a typing error must not bring a stranger in. Other
// names for the same servers are good for everything else.
TEST_F(RedlockChange, R15_OtherNamesAdmitOnlyWhoRemembersItsPlace) {
  start(3, 0);
  const urls others{at(0).tcp_url(), at(1).tcp_url(), at(2).tcp_url()};
  EXPECT_NE(token(others), -1);
  at(2).restart_empty();
  EXPECT_FALSE(redlock_admit(others, {}, redlock_cluster::patience()));
  EXPECT_EQ(at(2).say({"EXISTS", marker}), "0");
  EXPECT_TRUE(redlock_admit(old_, {}, redlock_cluster::patience()));
  EXPECT_EQ(at(2).say({"EXISTS", marker}), "1");
}

}  // namespace
