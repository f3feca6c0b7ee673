// The token rule of Redlock, tried out on every small case.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "locks/redlock_marker.hpp"
#include "locks/redlock_rule.hpp"

namespace lastdoor::redlock {
namespace {

TEST(RedlockRule, R38_MajorityIsMoreThanHalf) {
  const unsigned quorums[] = {1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8};
  for (unsigned n = 1; n <= most_servers; ++n) {
    EXPECT_EQ(quorum(n), quorums[n - 1]) << n;
    EXPECT_GT(2 * quorum(n), n) << "two quorums share a server";
    EXPECT_EQ(quorum(n) + blocking(n), n + 1) << "a quorum and a blocking set "
                                                 "share a server";
  }
}

TEST(RedlockRule, FewerThanAQuorumChooseNothing) {
  EXPECT_FALSE(choose(std::vector<std::int64_t>{7, 0, 0}));
  EXPECT_FALSE(choose(std::vector<std::int64_t>{7, 9, 0, 0}));
  EXPECT_TRUE(choose(std::vector<std::int64_t>{7, 0, 9}));
}

TEST(RedlockRule, TakesTheSmallestThatAQuorumReached) {
  const auto c = choose(std::vector<std::int64_t>{11, 13, 16, 12, 15});
  ASSERT_TRUE(c);
  EXPECT_EQ(c->t, 13);
  EXPECT_EQ(c->place, 1U);
  EXPECT_EQ(c->standing, 3U) << "with all answers no second round is needed";
  EXPECT_EQ(token_of(*c), 16 * 13 + 1);
}

TEST(RedlockRule, AllAnswersOfAnOddNumberNeedNoSecondRound) {
  std::mt19937 random{7};
  for (unsigned n = 1; n <= most_servers; n += 2) {
    for (int i = 0; i < 1000; ++i) {
      std::vector<std::int64_t> answers(n);
      for (auto& a : answers) {
        a = 1 + static_cast<std::int64_t>(random() % 5);
      }
      EXPECT_GE(choose(answers)->standing, quorum(n));
    }
  }
}

// G2 by brute force: whoever comes after a grant, whichever servers answer.
TEST(RedlockRule, G2_EveryQuorumAfterAGrantGetsAHigherToken) {
  for (const unsigned n : {1U, 3U, 4U, 5U}) {
    std::mt19937 random{n};
    for (int i = 0; i < 20000; ++i) {
      std::vector<std::int64_t> counters(n);
      for (auto& c : counters) {
        c = static_cast<std::int64_t>(random() % 6);
      }
      const auto votes = [&] {
        std::vector<std::int64_t> answers(n, 0);
        for (unsigned k = 0; k < n; ++k) {
          if (random() % 4 != 0) {
            answers[k] = ++counters[k];
          }
        }
        return answers;
      };
      const auto first = votes();
      const auto a = choose(first);
      if (!a) {
        continue;
      }
      // The write-back, to as few servers as will do.
      unsigned standing = a->standing;
      for (unsigned k = 0; k < n && standing < quorum(n); ++k) {
        if (first[k] > 0 && first[k] < a->t) {
          counters[k] = std::max(counters[k], a->t);
          ++standing;
        }
      }
      const auto b = choose(votes());
      if (b && standing >= quorum(n)) {
        EXPECT_GT(token_of(*b), token_of(*a)) << n;
        EXPECT_GT(b->t, a->t) << n;
      }
    }
  }
}

TEST(RedlockRule, AFloorIsBelowTheNextToken) {
  for (const std::int64_t floor : {1, 15, 16, 17, 4242, 65535}) {
    const mark m{fencing_token::from(floor).value()};
    const choice next{value_below(m) + 1, 0, 1};
    EXPECT_GT(token_of(next), floor);
    const choice at{value_below(m), 0, 1};
    EXPECT_LE(token_of(at), floor) << "not higher than it must be";
  }
}

TEST(RedlockMarker, IsReadAsItWasWritten) {
  const marker m{{std::string(40, 'a'), 5, 60000, true, std::string(16, '0')},
                 3,
                 "run/replication"};
  const auto read = marker::parse(m.text());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->of, m.of);
  EXPECT_EQ(read->place, 3U);
  EXPECT_EQ(read->identity, m.identity);
}

TEST(RedlockMarker, DamageIsNoticed) {
  const marker m{
      {std::string(40, 'a'), 5, 60000, false, std::string(16, '0')}, 3, "run"};
  const auto good = m.text();
  for (std::size_t cut = 0; cut < good.size() - 3; ++cut) {
    EXPECT_FALSE(marker::parse(good.substr(0, cut))) << cut;
  }
  for (const char* bad : {"", " ", "redlock-2 ", "x",
                          "redlock-1 zz 3 5 60000 0 0123456789abcdef run"}) {
    EXPECT_FALSE(marker::parse(bad)) << bad;
  }
  const auto with = [](std::string place, std::string n, std::string ttl) {
    return "redlock-1 " + std::string(40, 'a') + " " + place + " " + n + " " +
           ttl + " 0 0123456789abcdef run";
  };
  EXPECT_TRUE(marker::parse(with("4", "5", "1")));
  EXPECT_FALSE(marker::parse(with("5", "5", "1"))) << "place beyond N";
  EXPECT_FALSE(marker::parse(with("0", "16", "1"))) << "N beyond 15";
  EXPECT_FALSE(marker::parse(with("0", "0", "1")));
  EXPECT_FALSE(marker::parse(with("-1", "5", "1")));
  EXPECT_FALSE(marker::parse(with("0", "5", "0")));
  EXPECT_FALSE(marker::parse(with("0", "5", "1 ")));
}

TEST(RedlockMarker, AClosedServerIsReadAsItWasWritten) {
  closed c{std::string(40, 'a'),
           2,
           3,
           {std::string(40, 'b'), 5, 60000, false, std::string(16, '0')},
           true,
           "nonce",
           {}};
  const auto read = closed::parse(c.head() + " 17");
  ASSERT_TRUE(read);
  EXPECT_EQ(read->head(), c.head());
  EXPECT_EQ(read->from, c.from);
  EXPECT_EQ(read->from_place, 2U);
  EXPECT_EQ(read->to, c.to);
  EXPECT_TRUE(read->stays);
  EXPECT_EQ(read->counter, 17);
  EXPECT_EQ(closed::parse(c.head() + " -")->counter, std::nullopt);
  EXPECT_FALSE(marker::parse(c.head() + " 17")) << "it is no marker";
  c.from.clear();
  EXPECT_EQ(closed::parse(c.head() + " -")->from, "");
  for (const char* bad : {"", " ", " x", " -1", " 1 1"}) {
    EXPECT_FALSE(closed::parse(c.head() + bad)) << bad;
  }
}

TEST(RedlockMarker, NamesAreTheListInItsOrder) {
  const std::vector<std::string> a{"h:1/0", "h:2/0"};
  const std::vector<std::string> b{"h:2/0", "h:1/0"};
  const std::vector<std::string> c{"h:1/0h:2/0"};
  EXPECT_EQ(names_digest(a).size(), 16U);
  EXPECT_NE(names_digest(a), names_digest(b));
  EXPECT_NE(names_digest(a), names_digest(c));
  const auto id = std::string(40, 'a');
  EXPECT_TRUE(owner_id::parse(successor(id, names_digest(a))));
  EXPECT_NE(successor(id, names_digest(a)), successor(id, names_digest(b)));
  EXPECT_NE(successor(id, names_digest(a)),
            successor(successor(id, names_digest(a)), names_digest(a)));
}

}  // namespace
}  // namespace lastdoor::redlock
