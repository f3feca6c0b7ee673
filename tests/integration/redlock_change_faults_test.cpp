// The change of a cluster's members: what forgets, what is missing, what is
// a stranger.
#include "support/redlock_change_fixture.hpp"

namespace {

using namespace lastdoor;
using namespace lastdoor::support;

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
