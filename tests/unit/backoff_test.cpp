// Pauses: growing, capped, jittered, and not in step with anybody else's.
#include "locks/backoff.hpp"

#include <gtest/gtest.h>

#include <lastdoor/testing/matchers.hpp>
#include <vector>

#include "support/lease_bench.hpp"

namespace lastdoor {
namespace {

using namespace std::chrono_literals;
using detail::backoff;
using test_support::acquirer;
using test_support::lease_bench;
using test_support::verb;
using testing::FailsWith;

TEST(Backoff, R36_GrowsUpToTheCap) {
  constexpr backoff_options o{.first = 5ms, .cap = 500ms};
  std::vector<duration> longest(12, 0ns);
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    backoff b{o, seed};
    for (duration& l : longest)
      l = std::max(l, b.next());
  }
  duration limit = 5ms;
  for (const duration l : longest) {
    EXPECT_LT(l, limit);
    EXPECT_GT(l, limit * 9 / 10);
    limit = std::min<duration>(2 * limit, 500ms);
  }
}

TEST(Backoff, R36_IsSpreadOverItsWholeRange) {
  constexpr backoff_options o{.first = 1s, .cap = 1s};
  std::vector<int> tenths(10, 0);
  backoff b{o, 1};
  for (int i = 0; i < 10'000; ++i)
    ++tenths[static_cast<std::size_t>(b.next() / 100ms)];
  for (const int n : tenths)
    EXPECT_GT(n, 800);
}

TEST(Backoff, StartsAgainAfterAReset) {
  backoff b{{.first = 1ms, .cap = 1h}, 7};
  for (int i = 0; i < 20; ++i)
    static_cast<void>(b.next());
  b.reset();
  EXPECT_LT(b.next(), 1ms);
}

TEST(Backoff, SurvivesAnEnormousCap) {
  backoff b{{.first = 1h, .cap = std::chrono::hours::max()}, 7};
  for (int i = 0; i < 200; ++i)
    EXPECT_GE(b.next(), 0ns);
}

std::vector<duration> pauses_of(lease_bench& b) {
  b.server->take_over("r", 1h);
  acquirer a{b, {.ttl = 10s, .wait_at_most = 5s}};
  b.time->settle(1);
  b.time->advance(5s);
  EXPECT_THAT(a.got(), FailsWith(errc::busy));
  const auto at = b.backend->times(verb::acquire);
  std::vector<duration> pauses;
  for (std::size_t i = 1; i < at.size(); ++i)
    pauses.push_back(at[i] - at[i - 1]);
  return pauses;
}

TEST(Backoff, R36_TwoServicesDoNotKeepStep) {
  lease_bench one;
  lease_bench other;
  const auto first = pauses_of(one);
  ASSERT_GT(first.size(), 5U);
  EXPECT_NE(first, pauses_of(other));
}

TEST(Backoff, ASeedMakesItRepeatable) {
  lease_bench one{{}, nullptr, nullptr, 7};
  lease_bench same{{}, nullptr, nullptr, 7};
  EXPECT_EQ(pauses_of(one), pauses_of(same));
}

TEST(Backoff, R36_TwoWaitersOfOneServiceDoNotKeepStep) {
  lease_bench b{{}, nullptr, nullptr, 7};
  const auto first = pauses_of(b);
  const auto calls = static_cast<std::size_t>(b.backend->calls());
  auto both = pauses_of(b);
  both.erase(both.begin(), both.begin() + static_cast<std::ptrdiff_t>(calls));
  EXPECT_NE(first, both);
}

}  // namespace
}  // namespace lastdoor
