// Waiting: fair in the process, polite to the server, interruptible.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lastdoor/testing/matchers.hpp>
#include <list>
#include <vector>

#include "support/lease_bench.hpp"

namespace lastdoor {
namespace {

using namespace std::chrono_literals;
using test_support::acquirer;
using test_support::fault;
using test_support::lease_bench;
using test_support::memory_backend;
using test_support::verb;
using testing::FailsWith;
using testing::IsOk;

const acquire_options patient{.ttl = 10s, .wait_at_most = 1h};

acquire_options waiting(duration how_long) {
  return {.ttl = 10s, .wait_at_most = how_long};
}

// --- the line of one process ------------------------------------------------

TEST(Waiting, R36_OfFiftyWaitersOneTalks) {
  lease_bench b;
  b.server->take_over("r", 1h);
  std::list<acquirer> crowd;
  for (std::size_t i = 1; i <= 50; ++i) {
    crowd.emplace_back(b, waiting(10s));
    b.time->settle(i);
  }
  b.time->advance(10s);
  for (acquirer& a : crowd)
    EXPECT_THAT(a.got(), FailsWith(errc::busy));
  // Capped at 500 ms with full jitter: four a second on average, and the
  // first few come quicker.
  EXPECT_LT(b.backend->calls(verb::acquire), 100);
  EXPECT_EQ(b.backend->most_at_once(), 1);
}

TEST(Waiting, R36_WhileThisProcessHoldsItNobodyTalks) {
  lease_bench b;
  auto held = b.acquire({.ttl = 10s}).value();
  acquirer first{b, patient};
  b.time->settle(3);
  acquirer second{b, patient};
  b.time->settle(4);
  b.time->advance(10min);
  EXPECT_EQ(b.backend->calls(verb::acquire), 1);
  EXPECT_THAT(held.release(), IsOk());
  auto next = std::move(first.got()).value();
  EXPECT_EQ(b.backend->calls(verb::acquire), 2);
  EXPECT_FALSE(second.done());
  EXPECT_THAT(next.release(), IsOk());
  EXPECT_THAT(second.got(), IsOk());
}

// Waits until one of them is done; which one?
std::size_t first_done(const std::vector<std::unique_ptr<acquirer>>& line) {
  for (;;) {
    for (std::size_t i = 0; i < line.size(); ++i) {
      if (line[i] && line[i]->done())
        return i;
    }
    std::this_thread::yield();
  }
}

TEST(Waiting, IsFirstComeFirstServed) {
  lease_bench b;
  std::optional<lease> held = b.acquire({.ttl = 10s}).value();
  std::vector<std::unique_ptr<acquirer>> line;
  for (std::size_t i = 1; i <= 8; ++i) {
    line.push_back(std::make_unique<acquirer>(b, patient));
    b.time->settle(2 + i);
  }
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < line.size(); ++i) {
    held->release().value();
    order.push_back(first_done(line));
    held = std::move(line[order.back()]->got()).value();
    line[order.back()].reset();
  }
  EXPECT_EQ(order, (std::vector<std::size_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

TEST(Waiting, GoesOnWhenTheHoldersValidityEnds) {
  lease_bench b;
  auto held = b.acquire({.ttl = 10s, .renew = false}).value();
  const time_point end = b.time->now() + 10s;
  acquirer next{b, patient};
  b.time->settle(3);
  b.time->advance(10s - 1ns);
  EXPECT_EQ(held.why_lost(), loss_reason::not_renewed);
  EXPECT_EQ(b.backend->calls(verb::acquire), 1);
  b.time->advance(1ns);
  EXPECT_THAT(next.got(), IsOk());
  EXPECT_EQ(next.ended_at(), end);
}

TEST(Waiting, GoesOnAtOnceWhenTheHolderWasRefused) {
  lease_bench b;
  auto held = b.acquire({.ttl = 9s}).value();
  acquirer next{b, patient};
  b.time->settle(3);
  b.server->take_over("r", 1ns);
  b.time->advance(3s);
  EXPECT_EQ(held.why_lost(), loss_reason::refused);
  EXPECT_THAT(next.got(), IsOk());
}

TEST(Waiting, GoesOnWhenTheLeaseIsReleasedByIdentity) {
  lease_bench b;
  // Held by another process, so this one polls, but not again within 1 ms.
  const auto other = b.another();
  const grant g = std::move(*other->acquire({.ttl = 1h})).orphan();
  acquirer next{
      b, {.ttl = 10s, .wait_at_most = 1h, .backoff = {.first = 1h, .cap = 1h}}};
  b.time->settle(3);
  EXPECT_THAT(b.locks->release(g), IsOk());
  EXPECT_THAT(next.got(), IsOk());
}

TEST(Waiting, PollsForAnOrphanedLease) {
  lease_bench b;
  auto held = b.acquire({.ttl = 1h}).value();
  acquirer next{b, patient};
  b.time->settle(3);
  const grant g = std::move(held).orphan();
  b.time->settle(3);
  // Another process lets it go; no end of validity, no local release.
  EXPECT_THAT(b.another()->locks->release(g), IsOk());
  b.time->advance(1s);
  EXPECT_THAT(next.got(), IsOk());
}

TEST(Waiting, AnUnconfirmedReleaseLetsTheNextOneTry) {
  lease_bench b;
  auto held = b.acquire({.ttl = 10s}).value();
  acquirer next{b, patient};
  b.time->settle(3);
  b.backend->fails(verb::release, {fault::kind::lost_reply},
                   memory_backend::once);
  EXPECT_THAT(held.release(), FailsWith(errc::in_doubt));
  EXPECT_THAT(next.got(), IsOk());
}

TEST(Waiting, ByOneResourceDoesNotBlockAnother) {
  lease_bench b;
  auto held = b.acquire({}, "a").value();
  acquirer blocked{b, patient, "a"};
  b.time->settle(3);
  EXPECT_THAT(b.acquire({}, "b"), IsOk());
  EXPECT_THAT(held.release(), IsOk());
  EXPECT_THAT(blocked.got(), IsOk());
}

// --- the end of the wait ----------------------------------------------------

TEST(Waiting, R39_EndsInTime) {
  lease_bench b;
  b.server->take_over("r", 1h);
  const time_point start = b.time->now();
  acquirer a{b, waiting(250ms)};
  b.time->settle(1);
  b.time->advance(250ms - 1ns);
  EXPECT_FALSE(a.done());
  b.time->advance(1ns);
  EXPECT_THAT(a.got(), FailsWith(errc::busy));
  EXPECT_EQ(b.told->entries().at(0).took, 250ms);
  EXPECT_GE(a.ended_at(), start + 250ms);
}

TEST(Waiting, R39_EndsInTimeInTheMiddleOfTheLineToo) {
  lease_bench b;
  b.server->take_over("r", 1h);
  acquirer head{b, waiting(10s)};
  b.time->settle(1);
  acquirer queued{b, waiting(250ms)};
  b.time->settle(2);
  acquirer last{b, waiting(10s)};
  b.time->settle(3);
  b.time->advance(250ms);
  EXPECT_THAT(queued.got(), FailsWith(errc::busy));
  EXPECT_EQ(b.told->entries().at(0).took, 250ms);
  EXPECT_FALSE(head.done());
  b.time->advance(10s);
  EXPECT_THAT(head.got(), FailsWith(errc::busy));
  EXPECT_THAT(last.got(), FailsWith(errc::busy));
}

TEST(Waiting, R39_EndsInTimeWhileThisProcessHoldsIt) {
  lease_bench b;
  auto held = b.acquire({.ttl = 10s}).value();
  acquirer a{b, waiting(250ms)};
  b.time->settle(3);
  b.time->advance(250ms);
  const auto& got = a.got();
  ASSERT_THAT(got, FailsWith(errc::busy));
  EXPECT_EQ(got.error().retry_after_ms(), 9750);
  EXPECT_EQ(b.backend->calls(verb::acquire), 1);
}

TEST(Waiting, R39_MayLastForAges) {
  lease_bench b;
  b.server->take_over("r", 1min);
  acquirer a{b, waiting(any_duration{std::chrono::hours::max()})};
  b.time->settle(1);
  b.time->advance(1min + 1s);
  EXPECT_THAT(a.got(), IsOk());
}

TEST(Waiting, R39_TheImpatientIsBusyAtOnceBehindOthers) {
  lease_bench b;
  b.server->take_over("r", 1h);
  acquirer head{b, waiting(10s)};
  b.time->settle(1);
  const int before = b.backend->calls(verb::acquire);
  EXPECT_THAT(b.acquire(), FailsWith(errc::busy));
  EXPECT_EQ(b.backend->calls(verb::acquire), before);
  b.time->advance(10s);
}

TEST(Waiting, ReturnsTheLastError) {
  lease_bench b;
  b.server->take_over("r", 1h);
  acquirer a{b, waiting(1s)};
  b.time->settle(1);
  b.backend->fails(verb::acquire,
                   {.what = fault::kind::error, .code = errc::no_quorum},
                   memory_backend::for_ever);
  b.time->advance(1s);
  EXPECT_THAT(a.got(), FailsWith(errc::no_quorum));
}

TEST(Waiting, OutlastsWhatPasses) {
  for (const fault f :
       {fault{.what = fault::kind::error, .code = errc::unavailable},
        fault{.what = fault::kind::error, .code = errc::no_quorum},
        fault{.what = fault::kind::error, .code = errc::busy},
        fault{.what = fault::kind::lost_request},
        fault{.what = fault::kind::lost_reply},
        fault{.what = fault::kind::hang}}) {
    lease_bench b;
    b.backend->fails(verb::acquire, f, 2);
    acquirer a{b, waiting(1h)};
    while (!a.done())
      b.time->advance(100ms);
    EXPECT_THAT(a.got(), IsOk());
    EXPECT_EQ(b.backend->calls(verb::acquire), 3);
  }
}

TEST(Waiting, R06_OutlastsATooSlowGrantAndUndoesIt) {
  lease_bench b;
  b.backend->fails(verb::acquire, {.what = fault::kind::slow, .takes = 9s},
                   memory_backend::once);
  acquirer a{b, waiting(1min)};
  b.time->settle(1);
  b.time->advance(1s);
  EXPECT_THAT(a.got(), IsOk());
  EXPECT_EQ(b.server->counter(), 2);
}

TEST(Waiting, EndsAtOnceWhenItCannotHelp) {
  for (const errc code :
       {errc::invalid_argument, errc::misconfigured, errc::damaged,
        errc::token_exhausted, errc::wrong_source, errc::schema_mismatch,
        errc::token_regressed, errc::internal}) {
    lease_bench b;
    b.backend->fails(verb::acquire, {.what = fault::kind::error, .code = code},
                     memory_backend::for_ever);
    EXPECT_THAT(b.acquire(patient), FailsWith(code));
    EXPECT_EQ(b.backend->calls(verb::acquire), 1);
  }
}

TEST(Waiting, AWaiterThatGivesUpLetsTheNextOneTalk) {
  lease_bench b;
  b.server->take_over("r", 1h);
  acquirer head{b, waiting(1s)};
  b.time->settle(1);
  acquirer next{b, waiting(1h)};
  b.time->settle(2);
  b.time->advance(1s);
  EXPECT_THAT(head.got(), FailsWith(errc::busy));
  b.server->let_go("r");
  b.time->advance(1s);
  EXPECT_THAT(next.got(), IsOk());
}

// --- interruption -----------------------------------------------------------

TEST(Cancel, BeforeTheAttemptSendsNothing) {
  lease_bench b;
  std::stop_source stop;
  stop.request_stop();
  acquire_options o = patient;
  o.stop = stop.get_token();
  EXPECT_THAT(b.acquire(o), FailsWith(errc::canceled));
  EXPECT_EQ(b.backend->calls(), 0);
}

TEST(Cancel, EndsAWaitOnTheServer) {
  lease_bench b;
  b.server->take_over("r", 1h);
  std::stop_source stop;
  acquire_options o = patient;
  o.stop = stop.get_token();
  acquirer a{b, o};
  b.time->settle(1);
  stop.request_stop();
  EXPECT_THAT(a.got(), FailsWith(errc::canceled));
}

TEST(Cancel, InTheMiddleOfTheLineLeavesTheOthersInOrder) {
  lease_bench b;
  auto held = b.acquire({.ttl = 10s}).value();
  std::stop_source stop;
  acquire_options o = patient;
  o.stop = stop.get_token();
  acquirer first{b, patient};
  b.time->settle(3);
  acquirer canceled{b, o};
  b.time->settle(4);
  acquirer last{b, patient};
  b.time->settle(5);
  stop.request_stop();
  EXPECT_THAT(canceled.got(), FailsWith(errc::canceled));
  EXPECT_THAT(held.release(), IsOk());
  EXPECT_THAT(std::move(first.got()).value().release(), IsOk());
  EXPECT_THAT(last.got(), IsOk());
}

TEST(Cancel, OfTheHeadLetsTheNextOneTalk) {
  lease_bench b;
  b.server->take_over("r", 1h);
  std::stop_source stop;
  acquire_options o = patient;
  o.stop = stop.get_token();
  acquirer head{b, o};
  b.time->settle(1);
  acquirer next{b, patient};
  b.time->settle(2);
  const int before = b.backend->calls(verb::acquire);
  stop.request_stop();
  EXPECT_THAT(head.got(), FailsWith(errc::canceled));
  b.time->settle(1);
  EXPECT_GT(b.backend->calls(verb::acquire), before);
  b.server->let_go("r");
  b.time->advance(1s);
  EXPECT_THAT(next.got(), IsOk());
}

TEST(Shutdown, InterruptsEveryWait) {
  lease_bench b;
  auto held = b.acquire({.ttl = 10s}).value();
  b.server->take_over("s", 1h);
  acquirer behind_us{b, patient};
  acquirer at_server{b, patient, "s"};
  b.time->settle(4);
  acquirer queued{b, patient, "s"};
  b.time->settle(5);
  b.locks->shutdown();
  EXPECT_THAT(behind_us.got(), FailsWith(errc::canceled));
  EXPECT_THAT(at_server.got(), FailsWith(errc::canceled));
  EXPECT_THAT(queued.got(), FailsWith(errc::canceled));
  EXPECT_THAT(b.acquire(patient), FailsWith(errc::canceled));
}

TEST(Shutdown, AGrantThatArrivesAfterItIsUndone) {
  lease_bench b;
  b.backend->fails(verb::acquire, {fault::kind::stuck}, memory_backend::once);
  acquirer a{b, patient};
  b.time->settle(1);
  b.locks->shutdown();
  b.backend->unstick();
  EXPECT_THAT(a.got(), FailsWith(errc::canceled));
  EXPECT_FALSE(b.server->held("r"));
}

// --- hints ------------------------------------------------------------------

TEST(Hints, WakeTheHead) {
  lease_bench b;
  b.backend->offer_hints();
  b.server->take_over("r", 1h);
  acquirer a{
      b, {.ttl = 10s, .wait_at_most = 1h, .backoff = {.first = 1h, .cap = 1h}}};
  b.time->settle(1);
  EXPECT_EQ(b.backend->watchers(), 1);
  b.server->let_go("r");
  b.backend->hint();
  EXPECT_THAT(a.got(), IsOk());
  EXPECT_EQ(b.backend->watchers(), 0);
}

TEST(Hints, ThatComeForNothingEndNoWait) {
  lease_bench b;
  b.backend->offer_hints();
  b.server->take_over("r", 1h);
  acquirer a{b, waiting(10s)};
  b.time->settle(1);
  for (int i = 0; i < 5; ++i) {
    b.backend->hint();
    b.time->settle(1);
  }
  EXPECT_FALSE(a.done());
  b.time->advance(10s);
  EXPECT_THAT(a.got(), FailsWith(errc::busy));
}

}  // namespace
}  // namespace lastdoor
