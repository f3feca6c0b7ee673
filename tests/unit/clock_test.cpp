#include <gtest/gtest.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <lastdoor/clock.hpp>
#include <lastdoor/testing/fake_clock.hpp>
#include <limits>
#include <thread>

#include "locks/time_math.hpp"

namespace lastdoor {
namespace {

using namespace std::chrono_literals;
using detail::later;
using testing::fake_clock;

// --- durations of any unit --------------------------------------------------

TEST(AnyDuration, TakesEveryUnitExactly) {
  EXPECT_EQ(any_duration{3us}, 3000ns);
  EXPECT_EQ(any_duration{2h}, 7'200s);
  EXPECT_EQ(any_duration{}, 0ns);
  EXPECT_EQ(any_duration{std::chrono::duration<double>{0.25}}, 250ms);
  const std::int64_t odd = (std::int64_t{1} << 62) + 1;
  EXPECT_EQ(any_duration{std::chrono::nanoseconds{odd}}.count(), odd);
}

TEST(AnyDuration, EndsAtTheEdgeWhereOthersOverflow) {
  EXPECT_EQ(any_duration{std::chrono::hours::max()}, duration::max());
  EXPECT_EQ(any_duration{std::chrono::hours::min()}, duration::min());
  EXPECT_EQ(any_duration{std::chrono::milliseconds::max()}, duration::max());
  EXPECT_EQ(any_duration{duration::max()}, duration::max());
  EXPECT_EQ(any_duration{duration::min()}, duration::min());
  using real = std::chrono::duration<double>;
  EXPECT_EQ(any_duration{real{1e300}}, duration::max());
  EXPECT_EQ(any_duration{real{-1e300}}, duration::min());
  EXPECT_EQ(any_duration{real{std::numeric_limits<double>::quiet_NaN()}},
            duration::min());
}

TEST(TimeMath, EndsAtTheEdge) {
  const time_point t{1h};
  EXPECT_EQ(later(t, 1s), time_point{1h + 1s});
  EXPECT_EQ(later(t, duration::max()), time_point::max());
  EXPECT_EQ(later(time_point::max(), 1ns), time_point::max());
  EXPECT_EQ(later(time_point::min(), -1ns), time_point::min());
}

// --- the real clock ---------------------------------------------------------

time_point read(clockid_t id) {
  timespec t{};
  ::clock_gettime(id, &t);
  return time_point{std::chrono::seconds{t.tv_sec} +
                    std::chrono::nanoseconds{t.tv_nsec}};
}

TEST(BootClock, R30_IsTheOneThatCountsSuspendAndNothingElse) {
  const auto before = read(CLOCK_BOOTTIME);
  const auto now = boot_clock()->now();
  const auto after = read(CLOCK_BOOTTIME);
  EXPECT_LE(before, now);
  EXPECT_LE(now, after);
}

TEST(BootClock, IsOneObject) { EXPECT_EQ(boot_clock(), boot_clock()); }

TEST(BootAlarm, SleepsUntilItsTimeAndNotLess) {
  const auto a = boot_clock()->make_alarm();
  const auto until = boot_clock()->now() + 20ms;
  EXPECT_FALSE(a->wait_until(until));
  EXPECT_GE(boot_clock()->now(), until);
}

TEST(BootAlarm, DoesNotSleepForThePast) {
  const auto a = boot_clock()->make_alarm();
  EXPECT_FALSE(a->wait_until(time_point{}));
  EXPECT_FALSE(a->wait_until(time_point::min()));
  EXPECT_FALSE(a->wait_until(boot_clock()->now()));
}

TEST(BootAlarm, ARingBeforeTheWaitCountsOnce) {
  const auto a = boot_clock()->make_alarm();
  a->ring();
  a->ring();
  EXPECT_TRUE(a->wait_until(time_point::max()));
  EXPECT_FALSE(a->wait_until(boot_clock()->now() + 1ms));
}

TEST(BootAlarm, ARingWakesASleeper) {
  const auto a = boot_clock()->make_alarm();
  std::jthread ringer{[&] { a->ring(); }};
  EXPECT_TRUE(a->wait_until(time_point::max()));
}

// Longer than the first, brief sleep; after that there is a timer.
TEST(BootAlarm, ALongSleepEndsInTimeOrByARing) {
  const auto a = boot_clock()->make_alarm();
  for (int i = 0; i < 2; ++i) {
    const auto until = boot_clock()->now() + 250ms;
    EXPECT_FALSE(a->wait_until(until));
    EXPECT_GE(boot_clock()->now(), until);
  }
  std::jthread ringer{[&] {
    std::this_thread::sleep_for(250ms);
    a->ring();
  }};
  EXPECT_TRUE(a->wait_until(time_point::max()));
}

TEST(BootAlarm, ALongSleepNeedsNoDescriptorOfItsOwn) {
  const auto early_by = [](alarm& a, duration time) {
    const auto until = boot_clock()->now() + time;
    return a.wait_until(until) ? duration::max() : until - boot_clock()->now();
  };
  const auto a = boot_clock()->make_alarm();
  // Sanitizers need descriptors to look at a type for the first time.
  EXPECT_LE(early_by(*a, 1ms), 0ms);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{3, before.rlim_max};  // less and poll() would refuse
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const bool out_of_descriptors = ::dup(0) == -1;
  const auto early = early_by(*a, 250ms);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_TRUE(out_of_descriptors);
  EXPECT_LE(early, 0ms);
}

TEST(BootAlarm, ARingIsNeverMissed) {
  const auto a = boot_clock()->make_alarm();
  const auto back = boot_clock()->make_alarm();
  constexpr int rounds = 2000;
  std::jthread other{[&] {
    for (int i = 0; i < rounds; ++i) {
      a->ring();
      EXPECT_TRUE(back->wait_until(time_point::max()));
    }
  }};
  for (int i = 0; i < rounds; ++i) {
    EXPECT_TRUE(a->wait_until(time_point::max()));
    back->ring();
  }
}

// --- the fake clock ---------------------------------------------------------

TEST(FakeClock, StandsStillUntilItIsMoved) {
  const auto time = std::make_shared<fake_clock>();
  const auto start = time->now();
  EXPECT_EQ(time->now(), start);
  time->advance(3s);
  EXPECT_EQ(time->now(), start + 3s);
  time->jump(-5s);
  EXPECT_EQ(time->now(), start - 2s);
}

TEST(FakeClock, AdvanceStopsAtEveryAlarm) {
  const auto time = std::make_shared<fake_clock>();
  const auto start = time->now();
  std::vector<duration> woken;
  std::jthread sleeper{[&] {
    const auto a = time->make_alarm();
    for (int i = 1; i <= 3; ++i) {
      EXPECT_FALSE(a->wait_until(start + i * 1s));
      woken.push_back(time->now() - start);
    }
  }};
  time->settle(1);
  EXPECT_EQ(time->next_alarm(), start + 1s);
  time->advance(1h);
  sleeper.join();
  EXPECT_EQ(woken, (std::vector<duration>{1s, 2s, 3s}));
  EXPECT_EQ(time->next_alarm(), time_point::max());
}

TEST(FakeClock, JumpWakesLate) {
  const auto time = std::make_shared<fake_clock>();
  const auto start = time->now();
  time_point woken;
  std::jthread sleeper{[&] {
    EXPECT_FALSE(time->make_alarm()->wait_until(start + 1s));
    woken = time->now();
  }};
  time->settle(1);
  time->jump(1h);
  sleeper.join();
  EXPECT_EQ(woken, start + 1h);
}

TEST(FakeClock, RingsLikeTheRealOne) {
  const auto time = std::make_shared<fake_clock>();
  const auto a = time->make_alarm();
  EXPECT_FALSE(a->wait_until(time->now()));
  a->ring();
  a->ring();
  EXPECT_TRUE(a->wait_until(time_point::max()));
  std::jthread ringer{[&] { a->ring(); }};
  EXPECT_TRUE(a->wait_until(time_point::max()));
  EXPECT_FALSE(a->wait_until(time_point::min()));
}

}  // namespace
}  // namespace lastdoor
