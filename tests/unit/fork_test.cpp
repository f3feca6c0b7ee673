// What a forked child may do with its parent's leases: nothing.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <lastdoor/testing/matchers.hpp>
#include <optional>

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

// Runs `claims` in a child; the number of the first claim that is false, or 0.
// No GoogleTest in there: its locks may be held by threads that are gone.
template <class F>
int in_child(F&& claims) {
  const pid_t child = ::fork();
  if (child == 0)
    ::_exit(claims());
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool lost(const result<void>& r) {
  return !r.has_value() && r.code() == errc::lease_lost;
}

TEST(Fork, TheChildIsRefusedEverythingWithoutTraffic) {
  lease_bench b;
  auto held = b.acquire().value();
  b.time->settle();
  EXPECT_EQ(in_child([&] {
              if (!lost(held.check()))
                return 1;
              if (!lost(held.renew()))
                return 2;
              if (!lost(held.release()))
                return 3;
              if (held.remaining() != 0ns)
                return 4;
              if (!held.lost().stop_requested())
                return 5;
              if (held.why_lost().has_value())
                return 6;
              const auto again = b.acquire({}, "other");
              if (again || again.code() != errc::lease_lost)
                return 7;
              if (!lost(b.locks->release(held.grant())))
                return 8;
              if (b.locks->inspect("r").has_value())
                return 9;
              if (b.locks->raise_floor(mark{}).has_value())
                return 10;
              if (b.backend->calls() != 1)
                return 11;
              held.overtaken();
              b.locks->shutdown();
              return 0;
            }),
            0);
  EXPECT_THAT(held.check(), IsOk());
  EXPECT_EQ(b.told->count(event_kind::lost), 0);
}

TEST(Fork, TheChildsDestructorsDoNothing) {
  std::optional<lease_bench> b{std::in_place};
  std::optional<lease> held = b->acquire().value();
  b->time->settle();
  auto* const backend = b->backend;
  EXPECT_EQ(in_child([&] {
              held.reset();
              b.reset();  // would join threads that do not exist
              return backend->calls(verb::release);
            }),
            0);
  EXPECT_TRUE(b->server->held("r"));
  EXPECT_THAT(held->release(), IsOk());
}

// A fork at a bad moment: the renewal thread is inside a call, and a waiter
// in the line. Their locks would stay locked in the child for ever.
TEST(Fork, InTheMiddleOfThingsHangsNobody) {
  lease_bench b{{.call_timeout = 10s}};
  auto held = b.acquire({.ttl = 1h}).value();
  acquirer waiter{b, {.ttl = 10s, .wait_at_most = 24h}};
  b.time->settle(3);
  b.backend->fails(verb::renew, {fault::kind::stuck}, memory_backend::once);
  b.time->advance(20min);
  EXPECT_EQ(in_child([&] {
              const lease gone = std::move(held);
              return lost(gone.check()) ? 0 : 1;
            }),
            0);
  b.backend->unstick();
  b.time->settle();
  EXPECT_THAT(held.release(), IsOk());
  EXPECT_THAT(waiter.got(), IsOk());
}

TEST(Fork, TheChildMayOrphanAndPresentTheGrant) {
  lease_bench b;
  auto held = b.acquire().value();
  EXPECT_EQ(in_child([&] {
              const auto token = held.token();
              const grant g = std::move(held).orphan();
              return g.token() == token ? 0 : 1;
            }),
            0);
  EXPECT_THAT(held.check(), IsOk());
}

TEST(Fork, TheChildMayAssignOverTheParentsLease) {
  lease_bench b;
  auto held = b.acquire().value();
  auto other = b.acquire({}, "s").value();
  EXPECT_EQ(in_child([&] {
              held = std::move(other);
              return b.backend->calls(verb::release);
            }),
            0);
  EXPECT_THAT(held.check(), IsOk());
}

TEST(Fork, AServiceOpenedInTheChildWorksThere) {
  lease_bench b;
  auto held = b.acquire().value();
  EXPECT_EQ(in_child([&] {
              lease_bench own;
              return own.acquire({.renew = false}).has_value() ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace lastdoor
