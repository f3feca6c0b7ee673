// Keeping a lease, and being told that it is lost.
#include <gtest/gtest.h>

#include <csignal>

#include <lastdoor/testing/matchers.hpp>

#include "support/lease_bench.hpp"
#include "support/signals.hpp"

namespace lastdoor {
namespace {

using namespace std::chrono_literals;
using test_support::bell_counter;
using test_support::fault;
using test_support::lease_bench;
using test_support::memory_backend;
using test_support::verb;
using testing::FailsWith;
using testing::IsOk;

constexpr auto held_forever = memory_backend::for_ever;

TEST(Renewal, KeepsALeaseFarBeyondItsTtl) {
  lease_bench b;
  auto held = b.acquire({.ttl = 10s}).value();
  const auto token = held.token();
  b.time->advance(1h);
  EXPECT_THAT(held.check(), IsOk());
  EXPECT_EQ(held.token(), token);
  EXPECT_FALSE(held.lost().stop_requested());
  EXPECT_EQ(b.told->count(event_kind::renewed), b.backend->calls(verb::renew));
}

TEST(Renewal, IsDueEveryThirdOfTheTtlUnlessTold) {
  lease_bench b;
  auto held = b.acquire({.ttl = 9s}).value();
  b.time->advance(30s);
  EXPECT_EQ(b.backend->calls(verb::renew), 10);
}

TEST(Renewal, IsDueWhenTold) {
  lease_bench b;
  auto held = b.acquire({.ttl = 10s, .renew_every = 5s}).value();
  b.time->advance(50s);
  EXPECT_EQ(b.backend->calls(verb::renew), 10);
}

TEST(Renewal, R39_WithoutItTheLeaseEndsWithItsTtl) {
  lease_bench b;
  auto held = b.acquire({.ttl = 2s, .renew = false}).value();
  b.time->advance(1999ms);
  EXPECT_TRUE(b.server->held("r"));
  b.time->advance(1ms);
  EXPECT_FALSE(b.server->held("r"));
  EXPECT_EQ(held.why_lost(), loss_reason::not_renewed);
  EXPECT_EQ(b.backend->calls(verb::renew), 0);
}

TEST(Loss, G7_IsSignalledAMarginBeforeValidityEnds) {
  lease_bench b;
  auto held = b.acquire({.ttl = 10s, .renew = false}).value();
  b.time->advance(9s - 1ns);
  EXPECT_FALSE(held.lost().stop_requested());
  EXPECT_THAT(held.check(), IsOk());
  b.time->advance(1ns);
  EXPECT_TRUE(held.lost().stop_requested());
  EXPECT_THAT(held.check(), FailsWith(errc::lease_lost));
}

TEST(Loss, G7_TheMarginIsTheCallers) {
  lease_bench b;
  auto held =
      b.acquire({.ttl = 10s, .renew = false, .loss_margin = 4s}).value();
  b.time->advance(6s - 1ns);
  EXPECT_FALSE(held.lost().stop_requested());
  b.time->advance(1ns);
  EXPECT_TRUE(held.lost().stop_requested());
}

TEST(Loss, EndsTheGrantForGood) {
  lease_bench b;
  auto held = b.acquire({.ttl = 10s, .renew = false}).value();
  const grant copy = held.grant();
  b.time->advance(9s);
  EXPECT_FALSE(copy.valid_at(b.time->now()));
  EXPECT_EQ(held.remaining(), 0ns);
}

TEST(Loss, R22_OneFailedRenewalIsTriedAgainWithinValidity) {
  lease_bench b;
  auto held = b.acquire({.ttl = 1s}).value();
  b.backend->fails(verb::renew, {fault::kind::error}, held_forever);
  b.time->advance(700ms);
  EXPECT_THAT(held.check(), IsOk());
  b.backend->heal(verb::renew);
  b.time->advance(10s);
  EXPECT_THAT(held.check(), IsOk());
  EXPECT_GE(b.told->count(event_kind::renew_failed), 1);
  EXPECT_EQ(b.told->count(event_kind::lost), 0);
}

TEST(Loss, R22_IsRaisedByALocalTimerWhileTheRenewalIsStuck) {
  lease_bench b;
  auto held = b.acquire({.ttl = 1s}).value();
  const bell_counter bell{held.lost()};
  b.backend->fails(verb::renew, {fault::kind::stuck}, held_forever);
  b.time->advance(900ms);
  EXPECT_EQ(bell.count(), 1);
  EXPECT_EQ(held.why_lost(), loss_reason::unconfirmed);
  EXPECT_EQ(b.backend->calls(verb::renew), 1);
  b.time->advance(10s);
  EXPECT_EQ(bell.count(), 1);
  EXPECT_EQ(b.told->count(event_kind::lost), 1);
  b.backend->unstick();
  b.time->settle();
}

TEST(Loss, R22_ANewGrantOfTheSameNameIsRenewedAgain) {
  lease_bench b;
  auto first = b.acquire({.ttl = 1s}).value();
  b.backend->fails(verb::renew, {fault::kind::hang}, held_forever);
  b.time->advance(3s);
  ASSERT_EQ(first.why_lost(), loss_reason::unconfirmed);
  b.backend->heal(verb::renew);
  auto second = b.acquire({.ttl = 1s}).value();
  EXPECT_GT(second.token(), first.token());
  b.time->advance(10s);
  EXPECT_THAT(second.check(), IsOk());
  EXPECT_THAT(first.check(), FailsWith(errc::lease_lost));
}

TEST(Loss, ALateRenewalRevivesNothing) {
  lease_bench b;
  auto held = b.acquire({.ttl = 1s}).value();
  b.backend->fails(verb::renew, {fault::kind::stuck}, held_forever);
  b.time->advance(950ms);
  ASSERT_EQ(held.why_lost(), loss_reason::unconfirmed);
  b.backend->unstick();
  b.time->settle();
  EXPECT_EQ(b.told->count(event_kind::renewed), 0);
  EXPECT_THAT(held.check(), FailsWith(errc::lease_lost));
  EXPECT_FALSE(held.grant().valid_at(b.time->now()));
}

TEST(Loss, ALateRenewalIsLetGoWhenTheMarginIsOver) {
  lease_bench b;
  auto held = b.acquire({.ttl = 1s}).value();
  b.backend->fails(verb::renew, {fault::kind::stuck}, held_forever);
  b.time->advance(950ms);
  b.backend->unstick();
  b.time->settle();
  // The holder may still be winding up.
  EXPECT_TRUE(b.server->held("r"));
  b.time->advance(50ms);
  EXPECT_FALSE(b.server->held("r"));
}

TEST(Loss, ARenewalConfirmedInTheMarginComesTooLateEvenBeforeTheTimer) {
  lease_bench b;
  auto held = b.acquire({.ttl = 1s, .renew = false}).value();
  b.backend->fails(verb::renew, {.what = fault::kind::slow, .takes = 950ms},
                   memory_backend::once);
  EXPECT_THAT(held.renew(), FailsWith(errc::lease_lost));
  b.time->settle();
  EXPECT_TRUE(held.lost().stop_requested());
  b.time->advance(100ms);
  EXPECT_FALSE(b.server->held("r"));
}

TEST(Loss, ARefusedRenewalLosesAtOnce) {
  lease_bench b;
  auto held = b.acquire({.ttl = 9s}).value();
  b.server->take_over("r", 1h);
  b.time->advance(3s);
  EXPECT_EQ(held.why_lost(), loss_reason::refused);
  EXPECT_EQ(b.backend->calls(verb::renew), 1);
  EXPECT_EQ(b.told->count(event_kind::lost), 1);
  EXPECT_EQ(b.told->count(event_kind::renew_failed), 0);
}

TEST(Loss, X03_AfterAPauseTheFirstCallSaysLostAndNothingIsSent) {
  lease_bench b;
  auto held = b.acquire({.ttl = 1s}).value();
  auto other = b.acquire({.ttl = 1s}, "other").value();
  const int before = b.backend->calls(verb::renew);
  b.time->settle();
  b.time->jump(3s);
  EXPECT_THAT(held.check(), FailsWith(errc::lease_lost));
  EXPECT_THAT(held.renew(), FailsWith(errc::lease_lost));
  EXPECT_THAT(other.release(), FailsWith(errc::lease_lost));
  b.time->settle();
  EXPECT_EQ(b.backend->calls(verb::renew), before);
  EXPECT_EQ(b.backend->calls(verb::release), 0);
  EXPECT_EQ(held.why_lost(), loss_reason::clock_jump);
}

TEST(Loss, AStepBackOfTheClockProvesNothingAnyMore) {
  lease_bench b;
  auto held = b.acquire({.ttl = 10s}).value();
  b.time->advance(5s);
  b.time->jump(-4s);
  EXPECT_THAT(held.check(), FailsWith(errc::lease_lost));
  EXPECT_EQ(held.why_lost(), loss_reason::clock_jump);
  auto next = b.acquire({.ttl = 10s}, "next").value();
  EXPECT_THAT(next.check(), IsOk());
}

TEST(Loss, AStepBackThatOneSawEndsAllLeases) {
  lease_bench b;
  auto held = b.acquire({.ttl = 10s}).value();
  auto idle = b.acquire({.ttl = 10s, .renew = false}, "idle").value();
  b.time->advance(5s);
  EXPECT_THAT(held.check(), IsOk());
  b.time->jump(-4s);
  EXPECT_THAT(held.check(), FailsWith(errc::lease_lost));
  b.time->settle();
  EXPECT_TRUE(idle.lost().stop_requested());
  EXPECT_EQ(idle.why_lost(), loss_reason::clock_jump);
}

TEST(Loss, OvertakenIsFinal) {
  lease_bench b;
  auto held = b.acquire({.ttl = 10s}).value();
  held.overtaken();
  EXPECT_TRUE(held.lost().stop_requested());
  EXPECT_EQ(held.why_lost(), loss_reason::overtaken);
  b.time->advance(1h);
  EXPECT_EQ(b.backend->calls(verb::renew), 0);
}

TEST(Loss, OfOneLeaseLeavesTheOthersAlone) {
  lease_bench b;
  auto a = b.acquire({.ttl = 10s, .renew = false}, "a").value();
  auto c = b.acquire({.ttl = 20s, .renew = false}, "c").value();
  auto d = b.acquire({.ttl = 10s}, "d").value();
  b.time->advance(9s);
  EXPECT_TRUE(a.lost().stop_requested());
  EXPECT_THAT(c.check(), IsOk());
  EXPECT_THAT(d.check(), IsOk());
}

TEST(Loss, ASlowStopCallbackIsNoPauseOfTheProcess) {
  lease_bench b;
  auto a = b.acquire({.ttl = 10s, .renew = false}, "a").value();
  auto c = b.acquire({.ttl = 12s, .renew = false}, "c").value();
  const std::stop_callback slow{a.lost(), [&] { b.time->jump(20s); }};
  b.time->advance(9s);
  EXPECT_EQ(c.why_lost(), loss_reason::not_renewed);
}

TEST(Loss, AStopCallbackMayUseAndDestroyItsLease) {
  lease_bench b;
  std::optional<lease> held = b.acquire({.ttl = 10s, .renew = false}).value();
  const std::stop_token lost = held->lost();
  result<void> released;
  const std::stop_callback ends{lost, [&] {
                                  released = held->release();
                                  held.reset();
                                }};
  b.time->advance(9s);
  EXPECT_THAT(released, FailsWith(errc::lease_lost));
  EXPECT_FALSE(held.has_value());
}

TEST(Renewal, ByHandMovesTheEndOfValidityOnly) {
  lease_bench b;
  auto held = b.acquire({.ttl = 10s, .renew = false}).value();
  const auto token = held.token();
  b.time->advance(8s);
  EXPECT_THAT(held.renew(), IsOk());
  EXPECT_EQ(held.remaining(), 10s);
  EXPECT_EQ(held.token(), token);
  b.time->advance(8s);
  EXPECT_FALSE(held.lost().stop_requested());
  b.time->advance(1s);
  EXPECT_TRUE(held.lost().stop_requested());
}

TEST(Renewal, ByHandThatFailedLeavesTheLeaseHeldUntilItsTimeIsUp) {
  for (const auto what : {fault::kind::error, fault::kind::lost_request}) {
    lease_bench b;
    auto held = b.acquire({.ttl = 10s, .renew = false}).value();
    b.backend->fails(verb::renew, {what}, memory_backend::once);
    EXPECT_FALSE(held.renew().has_value());
    EXPECT_THAT(held.check(), IsOk());
    b.time->advance(9s);
    EXPECT_EQ(held.why_lost(), loss_reason::unconfirmed);
  }
}

TEST(Renewal, NeverPromisesMoreThanTheTtlFromBeforeTheCall) {
  lease_bench b;
  auto held = b.acquire({.ttl = 10s, .renew = false}).value();
  b.time->advance(1s);
  b.backend->fails(verb::renew, {.what = fault::kind::slow, .takes = 2s},
                   memory_backend::once);
  EXPECT_THAT(held.renew(), IsOk());
  EXPECT_EQ(held.remaining(), 8s);
}

TEST(Renewal, X06_ACallIsOverBeforeTheLossIsDue) {
  lease_bench b;
  auto held = b.acquire({.ttl = 1s}).value();
  b.backend->fails(verb::renew, {fault::kind::hang}, held_forever);
  const time_point loss = b.time->now() + 900ms;
  b.time->advance(2s);
  EXPECT_LE(b.backend->last_deadline(verb::renew), loss);
  EXPECT_GE(b.backend->calls(verb::renew), 2);
  EXPECT_EQ(held.why_lost(), loss_reason::unconfirmed);
}

// A call that takes all the time it may, again and again: the holder never
// says "held" while the server says "free".
TEST(Renewal, X06_NoWindowBetweenHolderAndServer) {
  lease_bench b{{.call_timeout = 500ms}};
  auto held = b.acquire({.ttl = 3s, .renew_every = 2s}).value();
  b.backend->fails(verb::renew, {.what = fault::kind::slow, .takes = 499ms},
                   held_forever);
  for (int i = 0; i < 4000; ++i) {
    b.time->advance(5ms);
    const bool says_held = held.check().has_value();
    ASSERT_TRUE(!says_held || b.server->held("r")) << i;
  }
  EXPECT_THAT(held.check(), IsOk());
}

TEST(Renewal, TheLeaseThatEndsFirstIsRenewedFirst) {
  lease_bench b;
  // The long one is due first, the short one ends first.
  auto lasting = b.acquire({.ttl = 1h, .renew_every = 1s}, "long").value();
  b.time->jump(500ms);
  auto brief = b.acquire({.ttl = 10s, .renew_every = 600ms}, "brief").value();
  auto third = b.acquire({.ttl = 30s, .renew_every = 700ms}, "third").value();
  b.time->settle();
  b.backend->fails(verb::renew, {fault::kind::stuck}, memory_backend::once);
  b.time->advance(500ms);  // the long one is stuck in its call
  b.time->advance(300ms);  // both others are due
  ASSERT_EQ(b.backend->calls(verb::renew), 1);
  b.backend->unstick();
  b.time->settle();
  std::vector<std::string> order;
  for (const auto& e : b.told->entries()) {
    if (e.kind == event_kind::renewed)
      order.push_back(e.resource);
  }
  EXPECT_EQ(order, (std::vector<std::string>{"long", "brief", "third"}));
}

TEST(Renewal, OneThatIsBlockedDoesNotStopTheOthersForEver) {
  lease_bench b{{.call_timeout = 500ms}};
  auto a = b.acquire({.ttl = 9s}, "a").value();
  auto c = b.acquire({.ttl = 9s}, "c").value();
  b.backend->fails(verb::renew, {fault::kind::hang}, memory_backend::once);
  b.time->advance(1min);
  EXPECT_THAT(a.check(), IsOk());
  EXPECT_THAT(c.check(), IsOk());
}

TEST(Renewal, ABackendThatThrowsIsAFailedRenewal) {
  lease_bench b;
  auto held = b.acquire({.ttl = 9s}).value();
  b.backend->fails(verb::renew, {fault::kind::throws}, memory_backend::once);
  b.time->advance(1min);
  EXPECT_THAT(held.check(), IsOk());
  EXPECT_EQ(b.told->count(event_kind::renew_failed), 1);
}

TEST(Threads, TakeNoSignals) {
  const auto before = support::threads_that_take(SIGTERM);
  lease_bench b;
  auto held = b.acquire({.ttl = 10s}).value();
  b.time->settle();
  EXPECT_EQ(support::threads_that_take(SIGTERM), before);
}

TEST(Threads, SleepForEverWhenNothingIsHeld) {
  lease_bench b;
  {
    auto held = b.acquire({.ttl = 10s}).value();
    b.time->settle();
  }
  b.time->advance(1h);
  EXPECT_EQ(b.time->next_alarm(), time_point::max());
}

}  // namespace
}  // namespace lastdoor
