// The end of a lease: release, destruction, shutdown, orphans.
#include <gtest/gtest.h>

#include <lastdoor/testing/matchers.hpp>
#include <stdexcept>

#include "support/lease_bench.hpp"

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

TEST(Release, FreesTheResourceAndEndsTheGrant) {
  lease_bench b;
  auto held = b.acquire().value();
  const grant copy = held.grant();
  EXPECT_THAT(held.release(), IsOk());
  EXPECT_FALSE(b.server->held("r"));
  EXPECT_FALSE(copy.valid_at(b.time->now()));
  EXPECT_THAT(held.check(), FailsWith(errc::lease_lost));
  EXPECT_THAT(held.renew(), FailsWith(errc::lease_lost));
  EXPECT_EQ(held.why_lost(), std::nullopt);
  EXPECT_FALSE(held.lost().stop_requested());
}

TEST(Release, TwiceIsHarmlessAndSendsNothing) {
  lease_bench b;
  auto held = b.acquire().value();
  EXPECT_THAT(held.release(), IsOk());
  EXPECT_THAT(held.release(), IsOk());
  EXPECT_EQ(b.backend->calls(verb::release), 1);
  EXPECT_EQ(b.told->count(event_kind::released), 1);
}

TEST(Release, StopsTheRenewals) {
  lease_bench b;
  auto held = b.acquire().value();
  EXPECT_THAT(held.release(), IsOk());
  b.time->advance(1h);
  EXPECT_EQ(b.backend->calls(verb::renew), 0);
  EXPECT_EQ(b.told->count(event_kind::lost), 0);
}

TEST(Release, R24_OfALostLeaseReturnsAtOnceAndFreesNobodyElse) {
  lease_bench b;
  auto a = b.acquire({.ttl = 1s, .renew = false}).value();
  b.time->advance(1s);
  auto other = b.acquire().value();
  EXPECT_THAT(a.release(), FailsWith(errc::lease_lost));
  EXPECT_EQ(b.backend->calls(verb::release), 0);
  EXPECT_THAT(other.check(), IsOk());
  EXPECT_TRUE(b.server->held("r"));
}

TEST(Release, R24_OfAForeignLeaseSaysNotOwner) {
  lease_bench b;
  auto held = b.acquire().value();
  const bell_counter bell{held.lost()};
  b.server->take_over("r", 1h);
  EXPECT_THAT(held.release(), FailsWith(errc::not_owner));
  EXPECT_TRUE(b.server->held("r"));
  EXPECT_EQ(held.why_lost(), loss_reason::refused);
  EXPECT_EQ(bell.count(), 1);
  EXPECT_EQ(b.told->count(event_kind::lost), 1);
}

TEST(Release, R24_MayBeRepeatedUntilItIsConfirmed) {
  for (const auto what : {fault::kind::error, fault::kind::lost_request,
                          fault::kind::lost_reply}) {
    for (const bool forgetful : {false, true}) {
      lease_bench b;
      if (forgetful)
        b.server->forget_owners();
      auto held = b.acquire().value();
      b.backend->fails(verb::release, {what}, 2);
      EXPECT_FALSE(held.release().has_value());
      EXPECT_THAT(held.check(), FailsWith(errc::lease_lost));
      EXPECT_FALSE(held.release().has_value());
      EXPECT_THAT(held.release(), IsOk());
      EXPECT_FALSE(b.server->held("r"));
      EXPECT_EQ(b.backend->calls(verb::release), 3);
      EXPECT_THAT(held.release(), IsOk());
      EXPECT_EQ(b.backend->calls(verb::release), 3);
      EXPECT_EQ(held.why_lost(), std::nullopt);
    }
  }
}

TEST(Release, ThatProvablyDidNotHappenDoesNotExcuseAForeignHolder) {
  lease_bench b;
  auto held = b.acquire().value();
  b.backend->fails(verb::release, {fault::kind::error}, memory_backend::once);
  EXPECT_THAT(held.release(), FailsWith(errc::unavailable));
  b.server->take_over("r", 1h);
  EXPECT_THAT(held.release(), FailsWith(errc::not_owner));
  EXPECT_EQ(held.why_lost(), loss_reason::refused);
}

TEST(Release, AfterARenewalThatWasStuckIsNotUndoneByIt) {
  lease_bench b;
  auto held = b.acquire({.ttl = 9s}).value();
  b.backend->fails(verb::renew, {fault::kind::stuck}, memory_backend::once);
  b.time->advance(3s);
  EXPECT_THAT(held.release(), IsOk());
  b.backend->unstick();
  b.time->settle();
  EXPECT_FALSE(b.server->held("r"));
  EXPECT_EQ(b.told->count(event_kind::lost), 0);
}

TEST(Release, ByIdentityTellsTheObserver) {
  lease_bench b;
  const grant g = std::move(*b.acquire()).orphan();
  EXPECT_THAT(b.locks->release(g), IsOk());
  EXPECT_FALSE(b.server->held("r"));
  EXPECT_EQ(b.told->count(event_kind::released), 1);
}

// --- destruction ------------------------------------------------------------

TEST(Destructor, ReleasesQuietly) {
  lease_bench b;
  { auto held = b.acquire().value(); }
  EXPECT_FALSE(b.server->held("r"));
  EXPECT_EQ(b.told->count(event_kind::released), 1);
}

TEST(Destructor, R25_ReportsAFailureOnceAndDoesNotThrow) {
  for (const auto what :
       {fault::kind::error, fault::kind::lost_reply, fault::kind::throws}) {
    lease_bench b;
    b.backend->fails(verb::release, {what}, memory_backend::for_ever);
    { auto held = b.acquire().value(); }
    EXPECT_EQ(b.backend->calls(verb::release), 1);
    EXPECT_EQ(b.told->count(event_kind::release_failed), 1);
  }
}

TEST(Destructor, R25_WorksWhileAnExceptionUnwinds) {
  lease_bench b;
  b.backend->fails(verb::release, {fault::kind::throws},
                   memory_backend::for_ever);
  const auto unwind = [&] {
    auto held = b.acquire().value();
    throw std::runtime_error{"of the caller"};
  };
  EXPECT_THROW(unwind(), std::runtime_error);
  EXPECT_EQ(b.told->count(event_kind::release_failed), 1);
}

TEST(Destructor, R25_AfterExpirySendsNothing) {
  lease_bench b;
  {
    auto held = b.acquire({.ttl = 1s, .renew = false}).value();
    b.time->settle();
    b.time->jump(1s);
  }
  b.time->settle();
  EXPECT_EQ(b.backend->calls(verb::release), 0);
  EXPECT_EQ(b.told->count(event_kind::lost), 1);
  EXPECT_EQ(b.told->count(event_kind::release_failed), 0);
}

TEST(Destructor, R25_HasACallTimeoutAtMost) {
  lease_bench b{{.call_timeout = 300ms}};
  const time_point start = b.time->now();
  { auto held = b.acquire().value(); }
  EXPECT_EQ(b.backend->last_deadline(verb::release), start + 300ms);
}

TEST(Destructor, AfterAnUnconfirmedReleaseTriesOnceMoreAndReportsNothing) {
  lease_bench b;
  b.backend->fails(verb::release, {fault::kind::error}, 2);
  {
    auto held = b.acquire().value();
    EXPECT_THAT(held.release(), FailsWith(errc::unavailable));
  }
  EXPECT_EQ(b.backend->calls(verb::release), 2);
  EXPECT_EQ(b.told->count(event_kind::release_failed), 1);
}

// --- moves and orphans ------------------------------------------------------

TEST(Move, LeavesALeaseThatIsOver) {
  lease_bench b;
  auto from = b.acquire().value();
  auto to = std::move(from);
  // NOLINTBEGIN(bugprone-use-after-move): that is what is tested.
  EXPECT_THAT(from.check(), FailsWith(errc::lease_lost));
  EXPECT_THAT(from.renew(), FailsWith(errc::lease_lost));
  EXPECT_THAT(from.release(), FailsWith(errc::lease_lost));
  EXPECT_TRUE(from.lost().stop_requested());
  EXPECT_EQ(from.remaining(), 0ns);
  EXPECT_EQ(from.why_lost(), std::nullopt);
  from.overtaken();
  EXPECT_THROW(static_cast<void>(from.grant()), failure);
  EXPECT_THROW(static_cast<void>(std::move(from).orphan()), failure);
  // NOLINTEND(bugprone-use-after-move)
  EXPECT_THAT(to.check(), IsOk());
}

TEST(Move, AssignmentReleasesWhatWasHeld) {
  lease_bench b;
  auto a = b.acquire({}, "a").value();
  a = b.acquire({}, "b").value();
  EXPECT_FALSE(b.server->held("a"));
  EXPECT_TRUE(b.server->held("b"));
  auto& same = a;
  a = std::move(same);
  EXPECT_THAT(a.check(), IsOk());
}

TEST(Orphan, IsNeitherRenewedNorReleased) {
  lease_bench b;
  auto held = b.acquire({.ttl = 10s}).value();
  const grant g = std::move(held).orphan();
  EXPECT_TRUE(g.valid_at(b.time->now()));
  EXPECT_TRUE(b.server->held("r"));
  b.time->advance(10s);
  EXPECT_EQ(b.backend->calls(verb::renew), 0);
  EXPECT_EQ(b.backend->calls(verb::release), 0);
  EXPECT_FALSE(b.server->held("r"));
  EXPECT_EQ(b.told->count(event_kind::lost), 0);
}

// --- the end of the service -------------------------------------------------

TEST(Shutdown, LosesEveryLease) {
  lease_bench b;
  auto a = b.acquire({}, "a").value();
  auto c = b.acquire({.renew = false}, "c").value();
  b.locks->shutdown();
  for (lease* l : {&a, &c}) {
    EXPECT_TRUE(l->lost().stop_requested());
    EXPECT_EQ(l->why_lost(), loss_reason::shutdown);
    EXPECT_THAT(l->check(), FailsWith(errc::lease_lost));
    EXPECT_THAT(l->release(), FailsWith(errc::lease_lost));
  }
  b.locks->shutdown();
  EXPECT_EQ(b.told->count(event_kind::lost), 2);
}

TEST(Shutdown, HappensWhenTheLastHandleIsGone) {
  lease_bench b;
  auto held = b.acquire().value();
  {
    const lock_service copy = *b.locks;
    b.locks.reset();
    EXPECT_THAT(held.check(), IsOk());
  }
  EXPECT_EQ(held.why_lost(), loss_reason::shutdown);
}

TEST(Shutdown, MayComeFromAStopCallback) {
  lease_bench b;
  auto held = b.acquire({.ttl = 10s, .renew = false}).value();
  std::atomic<bool> gone{false};
  const std::stop_callback drops{held.lost(), [&] {
                                   b.locks.reset();
                                   gone = true;
                                 }};
  b.time->jump(9s);
  while (!gone)
    std::this_thread::yield();
  EXPECT_EQ(held.why_lost(), loss_reason::not_renewed);
}

TEST(Shutdown, ARenewalUnderWayRevivesNothing) {
  lease_bench b;
  auto held = b.acquire({.ttl = 9s}).value();
  b.backend->fails(verb::renew, {fault::kind::stuck}, memory_backend::once);
  b.time->advance(3s);
  b.locks->shutdown();
  b.backend->unstick();
  b.locks.reset();
  EXPECT_THAT(held.check(), FailsWith(errc::lease_lost));
  EXPECT_EQ(held.why_lost(), loss_reason::shutdown);
}

TEST(Shutdown, OfAServiceThatNeverHeldAnythingIsQuick) {
  lease_bench b;
  b.locks->shutdown();
}

// Many threads, one resource, real interleavings for the sanitizers; exact
// mutual exclusion, since the fake clock stands still.
TEST(Service, ManyThreadsTakeTurns) {
  lease_bench b;
  std::atomic<int> inside{0};
  std::atomic<int> grants{0};
  {
    std::vector<std::jthread> crowd;
    for (int i = 0; i < 8; ++i) {
      crowd.emplace_back([&] {
        for (int n = 0; n < 60; ++n) {
          auto held = b.acquire({.ttl = 10s, .wait_at_most = 1h}).value();
          EXPECT_EQ(++inside, 1);
          EXPECT_THAT(held.check(), IsOk());
          if (n % 3 == 0)
            held.renew().value();
          --inside;
          if (n % 2 == 0)
            held.release().value();
          ++grants;
        }
      });
    }
  }
  EXPECT_EQ(grants, 480);
  EXPECT_EQ(b.server->counter(), 480);
  EXPECT_EQ(b.backend->calls(verb::acquire), 480);
}

TEST(Service, ReleasesAndRenewalsMayCollide) {
  for (int i = 0; i < 100; ++i) {
    lease_bench b;
    auto held = b.acquire({.ttl = 9s}).value();
    b.time->settle();
    std::jthread time_passes{[&] { b.time->jump(3s); }};
    std::jthread renews{[&] { held.renew().ignore(); }};
    std::jthread loses{[&] {
      if (i % 3 == 0)
        held.overtaken();
    }};
    held.release().ignore();
    EXPECT_THAT(held.check(), FailsWith(errc::lease_lost));
  }
}

}  // namespace
}  // namespace lastdoor
