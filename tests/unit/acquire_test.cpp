// One attempt: what is checked, what is undone, which error comes out.
#include <gtest/gtest.h>

#include <lastdoor/testing/matchers.hpp>
#include <limits>
#include <set>

#include "support/lease_bench.hpp"

namespace lastdoor {
namespace {

using namespace std::chrono_literals;
using test_support::fault;
using test_support::lease_bench;
using test_support::memory_backend;
using test_support::verb;
using testing::FailsWith;
using testing::IsOk;

// --- arguments --------------------------------------------------------------

TEST(Arguments, R21_ATtlOutOfRangeIsRefusedBeforeAnyTraffic) {
  lease_bench b{{.max_ttl = 1h}};
  using std::chrono::hours;
  const std::vector<any_duration> refused{
      0s,
      -1ms,
      999us,
      1h + 1ns,
      std::chrono::milliseconds{std::int64_t{1} << 53},
      std::chrono::milliseconds{std::numeric_limits<std::int64_t>::max()},
      hours::max(),
      hours::min(),
      duration::max(),
      std::chrono::duration<double>{std::numeric_limits<double>::quiet_NaN()},
      std::chrono::duration<double>{std::numeric_limits<double>::infinity()}};
  for (const auto ttl : refused) {
    EXPECT_THAT(b.acquire({.ttl = ttl}), FailsWith(errc::invalid_argument))
        << ttl.count();
  }
  EXPECT_EQ(b.backend->calls(), 0);
}

TEST(Arguments, R21_TheEdgesOfTheRangeAreGranted) {
  lease_bench b{{.max_ttl = 1h, .call_timeout = 1ms}};
  EXPECT_THAT(b.acquire({.ttl = 1ms}), IsOk());
  EXPECT_THAT(b.acquire({.ttl = 1h}, "s"), IsOk());
}

TEST(Arguments, BadNamesAreRefusedBeforeAnyTraffic) {
  lease_bench b;
  for (const std::string& name :
       {std::string{}, std::string(513, 'x'), std::string{"a\0b", 3},
        std::string{"\xff"}}) {
    EXPECT_THAT(b.acquire({}, name), FailsWith(errc::invalid_argument));
    EXPECT_THAT(b.locks->inspect(name), FailsWith(errc::invalid_argument));
  }
  EXPECT_EQ(b.backend->calls(), 0);
}

TEST(Arguments, OptionsThatContradictThemselvesAreRefused) {
  lease_bench b;
  const std::vector<acquire_options> refused{
      {.wait_at_most = -1ns},
      {.wait_at_most = std::chrono::hours::min()},
      {.ttl = 10s, .minimum_validity = 0ns},
      {.ttl = 10s, .minimum_validity = -1s},
      {.ttl = 10s, .minimum_validity = 10s + 1ns},
      {.ttl = 10s, .minimum_validity = std::chrono::hours::max()},
      {.ttl = 10s, .renew_every = 0s},
      {.ttl = 10s, .renew_every = -1s},
      {.ttl = 10s, .renew_every = std::chrono::hours::max()},
      {.ttl = 10s, .loss_margin = 0s},
      {.ttl = 10s, .loss_margin = 10s},
      {.ttl = 10s, .loss_margin = std::chrono::hours::max()},
      {.backoff = {.first = 0s}},
      {.backoff = {.first = -1s}},
      {.backoff = {.first = 2s, .cap = 1s}},
      {.holder = std::string{"a\0b", 3}},
      {.holder = "\xff"},
      {.holder = std::string(513, 'x')}};
  for (std::size_t i = 0; i < refused.size(); ++i) {
    EXPECT_THAT(b.acquire(refused[i]), FailsWith(errc::invalid_argument))
        << "number " << i;
  }
  EXPECT_EQ(b.backend->calls(), 0);
}

TEST(Arguments, X06_TheTimeBudgetOfARenewalMustFitIntoTheTtl) {
  lease_bench b{{.call_timeout = 2s}};
  EXPECT_THAT(b.acquire({.ttl = 3s, .renew_every = 2s}),
              FailsWith(errc::invalid_argument));
  // 5 s + 2 s + 1 s against 8 s, and one nanosecond more.
  const acquire_options exact{.ttl = 8s, .renew_every = 5s, .loss_margin = 1s};
  EXPECT_THAT(b.acquire(exact), FailsWith(errc::invalid_argument));
  EXPECT_EQ(b.backend->calls(), 0);
  acquire_options fits = exact;
  fits.ttl = 8s + 1ns;
  EXPECT_THAT(b.acquire(fits), IsOk());
}

TEST(Arguments, X06_WithTheDefaultTheCallIsShortenedInstead) {
  lease_bench b{{.call_timeout = 1min}};
  auto held = b.acquire({.ttl = 3s}).value();
  b.time->advance(1s);
  ASSERT_EQ(b.backend->calls(verb::renew), 1);
  // 3 s - 1 s - 0.3 s, and twice.
  EXPECT_EQ(b.backend->last_deadline(verb::renew), b.time->now() + 850ms);
}

// --- attempts ---------------------------------------------------------------

TEST(Attempt, HasAFreshOwnerAndADeadline) {
  lease_bench b{{.call_timeout = 700ms}};
  const time_point start = b.time->now();
  for (int i = 0; i < 3; ++i)
    b.acquire().value().release().value();
  const auto owners = b.server->owners();
  EXPECT_EQ(std::set<std::string>(owners.begin(), owners.end()).size(), 3U);
  EXPECT_EQ(b.backend->last_deadline(verb::acquire), start + 700ms);
}

TEST(Attempt, R18_TheTokenIsTheGrantsForEver) {
  lease_bench b;
  auto a = b.acquire({.ttl = 1s, .renew = false}).value();
  const grant copy = a.grant();
  b.time->advance(1s);
  auto other = b.acquire({.ttl = 1s}).value();
  EXPECT_EQ(a.token().value(), 1);
  EXPECT_EQ(copy.token().value(), 1);
  EXPECT_EQ(other.token().value(), 2);
  EXPECT_EQ(a.grant(), copy);
}

TEST(Attempt, R05_ValidityIsCountedFromBeforeTheRequest) {
  lease_bench b;
  b.backend->fails(verb::acquire, {.what = fault::kind::slow, .takes = 300ms},
                   memory_backend::once);
  auto held = b.acquire({.ttl = 1s}).value();
  EXPECT_EQ(held.remaining(), 700ms);
  EXPECT_EQ(held.grant().valid_until(), b.time->now() + 700ms);
}

TEST(Attempt, R05_ValidityIsNeverMoreThanTheTtlWhateverTheServiceSays) {
  lease_bench b;
  b.backend->fails(verb::acquire, {fault::kind::boast}, memory_backend::once);
  b.backend->fails(verb::renew, {fault::kind::boast}, memory_backend::once);
  auto held = b.acquire({.ttl = 1s, .renew = false}).value();
  EXPECT_EQ(held.remaining(), 1s);
  EXPECT_THAT(held.renew(), IsOk());
  EXPECT_EQ(held.remaining(), 1s);
}

TEST(Attempt, R05_ValidityIsTheWinningAttemptsNotTheWholeWaits) {
  lease_bench b;
  b.server->take_over("r", 3s);
  test_support::acquirer waiting{
      b, {.ttl = 1s, .wait_at_most = 10s, .backoff = {.cap = 50ms}}};
  b.time->settle(1);
  b.time->advance(4s);
  auto held = std::move(waiting.got()).value();
  EXPECT_THAT(held.check(), IsOk());
  EXPECT_LE(held.remaining(), 1s);
  EXPECT_GT(held.remaining(), 0s);
}

TEST(Attempt, R06_TooLittleValidityIsTooSlowAndUndone) {
  lease_bench b;
  b.backend->fails(verb::acquire,
                   {.what = fault::kind::slow, .takes = 500ms + 1ns},
                   memory_backend::once);
  const auto got = b.acquire({.ttl = 1s});
  ASSERT_THAT(got, FailsWith(errc::too_slow));
  EXPECT_FALSE(b.server->held("r"));
  EXPECT_EQ(b.backend->calls(verb::release), 1);
  EXPECT_EQ(got.error().presented(), 1);
}

TEST(Attempt, R06_ExactlyTheMinimumIsEnough) {
  lease_bench b;
  b.backend->fails(verb::acquire, {.what = fault::kind::slow, .takes = 500ms},
                   memory_backend::once);
  EXPECT_THAT(b.acquire({.ttl = 1s}), IsOk());
}

TEST(Attempt, R06_NothingLeftIsTooSlowWhateverTheMinimum) {
  for (const duration takes : {duration{1s}, duration{2s}}) {
    lease_bench b;
    b.backend->fails(verb::acquire, {.what = fault::kind::slow, .takes = takes},
                     memory_backend::once);
    EXPECT_THAT(b.acquire({.ttl = 1s, .minimum_validity = 1ns}),
                FailsWith(errc::too_slow));
    EXPECT_FALSE(b.server->held("r"));
  }
}

TEST(Attempt, AGrantThatWouldBeLostAtOnceIsTooSlow) {
  lease_bench b;
  b.backend->fails(verb::acquire, {.what = fault::kind::slow, .takes = 900ms},
                   memory_backend::once);
  EXPECT_THAT(b.acquire({.ttl = 1s, .minimum_validity = 1ms}),
              FailsWith(errc::too_slow));
}

TEST(Attempt, ALostReplyIsUndoneByItsOwner) {
  lease_bench b;
  b.backend->fails(verb::acquire, {fault::kind::lost_reply},
                   memory_backend::once);
  EXPECT_THAT(b.acquire(), FailsWith(errc::in_doubt));
  EXPECT_FALSE(b.server->held("r"));
  EXPECT_THAT(b.acquire(), IsOk());
}

TEST(Attempt, TheUndoOfALostRequestFreesNobodyElse) {
  lease_bench b;
  b.server->take_over("r", 1h);
  b.backend->fails(verb::acquire, {fault::kind::lost_request},
                   memory_backend::once);
  EXPECT_THAT(b.acquire(), FailsWith(errc::in_doubt));
  EXPECT_TRUE(b.server->held("r"));
}

TEST(Attempt, AnUndoThatFailsIsNotFatal) {
  lease_bench b;
  b.backend->fails(verb::acquire, {fault::kind::lost_reply},
                   memory_backend::once);
  b.backend->fails(verb::release, {fault::kind::error}, memory_backend::once);
  EXPECT_THAT(b.acquire({.ttl = 5s}), FailsWith(errc::in_doubt));
  b.time->advance(5s);
  EXPECT_THAT(b.acquire(), IsOk());
}

TEST(Attempt, ABackendThatThrowsIsInternalAndUndone) {
  lease_bench b;
  b.backend->fails(verb::acquire, {fault::kind::throws}, memory_backend::once);
  EXPECT_THAT(b.acquire({.wait_at_most = 1h}), FailsWith(errc::internal));
  EXPECT_EQ(b.backend->calls(verb::release), 1);
}

TEST(Attempt, R37_EveryScenarioHasACodeOfItsOwn) {
  lease_bench b;
  std::vector<errc> seen;
  const auto note = [&](const auto& r) {
    ASSERT_FALSE(r.has_value());
    seen.push_back(r.code());
  };
  auto held = b.acquire({.ttl = 1s, .renew = false}).value();
  note(b.acquire());  // busy
  b.time->advance(1s);
  note(held.check());            // lease_lost
  note(b.acquire({.ttl = 0s}));  // invalid_argument
  b.backend->fails(verb::acquire, {.what = fault::kind::slow, .takes = 1s},
                   memory_backend::once);
  note(b.acquire({.ttl = 1s}));  // too_slow
  b.backend->fails(verb::acquire, {fault::kind::error}, memory_backend::once);
  note(b.acquire());  // unavailable
  b.backend->fails(verb::acquire, {fault::kind::lost_request},
                   memory_backend::once);
  note(b.acquire());  // in_doubt
  auto taken = b.acquire().value();
  b.server->take_over("r", 1h);
  note(taken.release());  // not_owner
  std::stop_source stop;
  stop.request_stop();
  note(b.acquire({.stop = stop.get_token()}));  // canceled
  EXPECT_EQ(std::set<errc>(seen.begin(), seen.end()).size(), seen.size());
}

TEST(Attempt, ErrorsNameTheResource) {
  lease_bench b;
  b.server->take_over("r", 10s);
  const auto busy = b.acquire();
  ASSERT_THAT(busy, FailsWith(errc::busy));
  EXPECT_EQ(busy.error().resource(), "r");
  EXPECT_EQ(busy.error().retry_after_ms(), 10'000);
}

TEST(Attempt, TellsTheObserver) {
  lease_bench b;
  b.backend->fails(verb::acquire, {.what = fault::kind::slow, .takes = 30ms},
                   memory_backend::once);
  auto held = b.acquire().value();
  EXPECT_THAT(b.acquire(), FailsWith(errc::busy));
  const auto events = b.told->entries();
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0].kind, event_kind::granted);
  EXPECT_EQ(events[0].resource, "r");
  EXPECT_EQ(events[0].token, 1);
  EXPECT_EQ(events[0].took, 30ms);
  EXPECT_EQ(events[0].why, std::nullopt);
  EXPECT_EQ(events[1].kind, event_kind::acquire_failed);
  EXPECT_EQ(events[1].why, errc::busy);
}

TEST(Attempt, R40_IsNotReEntrant) {
  lease_bench b;
  auto held = b.acquire().value();
  EXPECT_THAT(b.acquire(), FailsWith(errc::busy));
  EXPECT_EQ(b.backend->calls(verb::acquire), 1);
  EXPECT_THAT(held.check(), IsOk());
  EXPECT_THAT(held.release(), IsOk());
  EXPECT_THAT(b.acquire(), IsOk());
}

TEST(Attempt, R39_WithoutAWaitThereIsExactlyOne) {
  lease_bench b;
  b.server->take_over("r", 1h);
  EXPECT_THAT(b.acquire(), FailsWith(errc::busy));
  EXPECT_EQ(b.backend->calls(verb::acquire), 1);
  b.server->let_go("r");
  EXPECT_THAT(b.acquire(), IsOk());
  EXPECT_EQ(b.backend->calls(verb::acquire), 2);
}

TEST(Attempt, AFullProcessIsUnavailableAndNothingStaysHeld) {
  // A clock without alarms stands for a process without descriptors.
  class no_alarms final : public clock {
   public:
    [[nodiscard]] time_point now() const noexcept override {
      return time_point{1h};
    }
    [[nodiscard]] std::unique_ptr<alarm> make_alarm() override {
      throw std::system_error{EMFILE, std::generic_category(), "no alarm"};
    }
  };
  const auto time = std::make_shared<testing::fake_clock>();
  const auto server = std::make_shared<test_support::memory_server>(time);
  lock_service locks{
      std::make_unique<memory_backend>(server, time, memory_backend::limits{}),
      {.time = std::make_shared<no_alarms>()}};
  EXPECT_THAT(locks.acquire("r", {.ttl = 10s, .minimum_validity = 1ns}),
              FailsWith(errc::unavailable));
  EXPECT_FALSE(server->held("r"));
}

TEST(Attempt, RaisesAndInspectsThroughTheService) {
  lease_bench b;
  const mark floor{fencing_token::from(41).value()};
  EXPECT_THAT(b.locks->raise_floor(floor), IsOk());
  EXPECT_EQ(b.acquire().value().token().value(), 42);
  EXPECT_FALSE(b.locks->inspect("r").value().held);
  EXPECT_EQ(b.locks->source().str(), "memory/test");
}

}  // namespace
}  // namespace lastdoor
