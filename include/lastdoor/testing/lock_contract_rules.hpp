// lock_contract_rules.hpp: what a back end answers, to one process.
#pragma once

#include <gmock/gmock.h>
#include <lastdoor/testing/lock_contract_client.hpp>

namespace lastdoor::testing {

using namespace std::chrono_literals;

template <class Service>
class LockContract : public lock_contract<Service> {};
TYPED_TEST_SUITE_P(LockContract);

TYPED_TEST_P(LockContract, G2_TokensRiseFromGrantToGrant) {
  auto a = this->connect();
  auto b = this->connect();
  std::int64_t last = 0;
  for (int i = 0; i < 20; ++i) {
    auto& next = i % 2 == 0 ? a : b;
    auto g = next.acquire("r" + std::to_string(i % 3), 60s);
    ASSERT_EQ(outcome_of(g), "ok");
    EXPECT_GT(g->token().value(), last);
    last = g->token().value();
    EXPECT_EQ(outcome_of(next.release(*g)), "ok");
  }
}

TYPED_TEST_P(LockContract, R37_BusyTellsTheHolderAndTheTimeLeft) {
  auto a = this->connect("host-a:1");
  auto b = this->connect("host-b:2");
  auto held = a.acquire("r", 60s);
  ASSERT_EQ(outcome_of(held), "ok");
  auto refused = b.acquire("r", 60s);
  ASSERT_EQ(outcome_of(refused), "busy");
  EXPECT_EQ(refused.error().resource(), "r");
  EXPECT_THAT(refused.error().message(), ::testing::HasSubstr("host-a:1"));
  EXPECT_GT(refused.error().retry_after_ms(), 0);
  EXPECT_LE(refused.error().retry_after_ms(), 60'000);
  EXPECT_EQ(outcome_of(a.acquire("r", 60s)), "busy") << "not re-entrant";
  EXPECT_EQ(outcome_of(a.renew(*held, 60s)), "ok") << "still its holder's";
}

TYPED_TEST_P(LockContract, InspectTellsWhatTheServiceKnows) {
  auto a = this->connect("host-a:1");
  EXPECT_FALSE(a.inspect("r").held);
  auto g = a.acquire("r", 60s);
  ASSERT_EQ(outcome_of(g), "ok");
  const auto held = a.inspect("r");
  EXPECT_TRUE(held.held);
  EXPECT_EQ(held.holder, "host-a:1");
  EXPECT_GT(held.remaining, 0s);
  EXPECT_LE(held.remaining, 60s);
  EXPECT_TRUE(held.last_token.none() || held.last_token == mark{g->token()});
  ASSERT_EQ(outcome_of(a.release(*g)), "ok");
  EXPECT_FALSE(a.inspect("r").held);
  EXPECT_EQ(a.inspect("r").holder, "");
}

// The service may hold a lease longer than its holder believes, never the
// other way round.
TYPED_TEST_P(LockContract, R05_ValidityEndsBeforeTheServicesOwnExpiry) {
  auto a = this->connect();
  for (const duration ttl : {duration{1s}, duration{1234567891ns}}) {
    const auto before = boot_clock()->now();
    auto g = a.acquire("r", ttl);
    ASSERT_EQ(outcome_of(g), "ok");
    EXPECT_GE(g->valid_until(), before);
    EXPECT_LE(g->valid_until(), boot_clock()->now() + ttl);
    const auto left = a.inspect("r").remaining;
    EXPECT_GE(boot_clock()->now() + left, g->valid_until());
    ASSERT_EQ(outcome_of(a.release(*g)), "ok");
  }
}

TYPED_TEST_P(LockContract, PassedDeadlineGrantsNothing) {
  auto a = this->connect();
  const auto name = resource_name::parse("r").value();
  const auto owner = owner_id::generate().value();
  auto late = a.backend().try_acquire(
      {name, owner, 60s, "a", boot_clock()->now() - 1ms});
  EXPECT_FALSE(late.has_value());
  EXPECT_FALSE(a.inspect("r").held);
}

TYPED_TEST_P(LockContract, R24_ForeignReleaseChangesNothing) {
  auto a = this->connect();
  auto b = this->connect();
  auto g = a.acquire("r", 60s);
  ASSERT_EQ(outcome_of(g), "ok");
  const grant other_owner{g->resource(), owner_id::generate().value(),
                          g->token(), g->source(), g->valid_until()};
  EXPECT_EQ(outcome_of(b.release(other_owner)), "not_owner");
  EXPECT_EQ(outcome_of(b.renew(other_owner, 60s)), "not_owner");
  EXPECT_TRUE(a.inspect("r").held);
  EXPECT_EQ(outcome_of(b.acquire("r", 60s)), "busy");
  EXPECT_EQ(outcome_of(a.renew(*g, 60s)), "ok");
  EXPECT_EQ(outcome_of(a.release(*g)), "ok");
}

TYPED_TEST_P(LockContract, R04_ForeignRenewalNeverProlongs) {
  auto a = this->connect();
  auto b = this->connect();
  auto g = a.acquire("r", 30s);
  ASSERT_EQ(outcome_of(g), "ok");
  const grant other_owner{g->resource(), owner_id::generate().value(),
                          g->token(), g->source(), g->valid_until()};
  EXPECT_EQ(outcome_of(b.renew(other_owner, 60s)), "not_owner");
  EXPECT_LE(a.inspect("r").remaining, 30s);
  if constexpr (requires { TypeParam::leases_of_a_session; }) {
    EXPECT_EQ(outcome_of(b.renew(*g, 60s)), "not_owner");
    EXPECT_EQ(outcome_of(a.renew(*g, 60s)), "ok");
  } else {
    EXPECT_EQ(outcome_of(b.renew(*g, 60s)), "ok") << "identity, not connection";
  }
  EXPECT_GT(a.inspect("r").remaining, 30s);
}

TYPED_TEST_P(LockContract, R03_RenewalDoesNotReviveAnExpiredLease) {
  auto a = this->connect();
  auto g = a.acquire_briefly("r");
  ASSERT_EQ(outcome_of(g), "ok");
  ASSERT_TRUE(eventually([&] { return !a.inspect("r").held; }));
  EXPECT_EQ(outcome_of(a.renew(*g, 60s)), "not_owner");
  EXPECT_FALSE(a.inspect("r").held);
  EXPECT_EQ(outcome_of(a.release(*g)), "not_owner");
}

TYPED_TEST_P(LockContract, R03_RenewalDoesNotTakeALeaseBack) {
  auto a = this->connect("host-a:1");
  auto b = this->connect("host-b:2");
  auto old = a.acquire_briefly("r");
  ASSERT_EQ(outcome_of(old), "ok");
  result<grant> taken = fail(errc::busy, "not yet");
  ASSERT_TRUE(eventually([&] {
    taken = b.acquire("r", 30s);
    return taken.has_value();
  }));
  EXPECT_GT(taken->token(), old->token());
  EXPECT_EQ(outcome_of(a.renew(*old, 60s)), "not_owner");
  EXPECT_EQ(outcome_of(a.release(*old)), "not_owner");
  const auto status = a.inspect("r");
  EXPECT_EQ(status.holder, "host-b:2");
  EXPECT_LE(status.remaining, 30s);
  EXPECT_EQ(outcome_of(b.renew(*taken, 30s)), "ok");
}

TYPED_TEST_P(LockContract, R03_RenewalAfterReleaseIsRefused) {
  auto a = this->connect();
  auto g = a.acquire("r", 60s);
  ASSERT_EQ(outcome_of(g), "ok");
  ASSERT_EQ(outcome_of(a.release(*g)), "ok");
  EXPECT_EQ(outcome_of(a.renew(*g, 60s)), "not_owner");
  EXPECT_FALSE(a.inspect("r").held);
}

TYPED_TEST_P(LockContract, RepeatedRenewalNeverShortens) {
  auto a = this->connect();
  auto g = a.acquire("r", 30s);
  ASSERT_EQ(outcome_of(g), "ok");
  auto first = a.renew(*g, 60s);
  auto second = a.renew(*g, 60s);
  ASSERT_EQ(outcome_of(first), "ok");
  ASSERT_EQ(outcome_of(second), "ok");
  EXPECT_GT(*first, g->valid_until());
  EXPECT_GE(*second, *first);
  ASSERT_EQ(outcome_of(a.renew(*g, 1s)), "ok");
  EXPECT_GE(boot_clock()->now() + a.inspect("r").remaining, *second)
      << "a promise that was made stands";
}

TYPED_TEST_P(LockContract, R24_RepeatedReleaseIsRecognised) {
  auto a = this->connect();
  auto g = a.acquire("r", 60s);
  ASSERT_EQ(outcome_of(g), "ok");
  EXPECT_EQ(outcome_of(a.release(*g)), "ok");
  EXPECT_EQ(outcome_of(a.release(*g)), "ok") << "it was this owner's release";
  const grant other_owner{g->resource(), owner_id::generate().value(),
                          g->token(), g->source(), g->valid_until()};
  EXPECT_EQ(outcome_of(a.release(other_owner)), "not_owner");
}

TYPED_TEST_P(LockContract, ReleaseFreesAtOnceAndNothingElse) {
  auto a = this->connect();
  auto b = this->connect();
  auto one = a.acquire("one", 60s);
  auto two = a.acquire("two", 60s);
  ASSERT_EQ(outcome_of(one), "ok");
  ASSERT_EQ(outcome_of(two), "ok");
  ASSERT_EQ(outcome_of(a.release(*one)), "ok");
  EXPECT_EQ(outcome_of(b.acquire("two", 60s)), "busy");
  auto next = b.acquire("one", 60s);
  ASSERT_EQ(outcome_of(next), "ok");
  EXPECT_GT(next->token(), two->token());
  EXPECT_EQ(outcome_of(a.release(*one)), "not_owner") << "it is b's now";
  EXPECT_TRUE(b.inspect("one").held);
}

TYPED_TEST_P(LockContract, X07_TheHoldersTtlDecides) {
  auto a = this->connect();
  auto b = this->connect();
  auto longer = a.acquire("long", 60s);
  ASSERT_EQ(outcome_of(longer), "ok");
  const auto until = boot_clock()->now() + 50ms;
  while (boot_clock()->now() < until)
    ASSERT_EQ(outcome_of(b.acquire("long", 1ms)), "busy");

  auto shorter = a.acquire_briefly("short");
  ASSERT_EQ(outcome_of(shorter), "ok");
  result<grant> next = fail(errc::busy, "not yet");
  ASSERT_TRUE(eventually([&] {
    next = b.acquire("short", 60s);
    return next.has_value();
  }));
  EXPECT_GE(boot_clock()->now(), shorter->valid_until());
}

REGISTER_TYPED_TEST_SUITE_P(
    LockContract, G2_TokensRiseFromGrantToGrant,
    R37_BusyTellsTheHolderAndTheTimeLeft, InspectTellsWhatTheServiceKnows,
    R05_ValidityEndsBeforeTheServicesOwnExpiry, PassedDeadlineGrantsNothing,
    R24_ForeignReleaseChangesNothing, R04_ForeignRenewalNeverProlongs,
    R03_RenewalDoesNotReviveAnExpiredLease, R03_RenewalDoesNotTakeALeaseBack,
    R03_RenewalAfterReleaseIsRefused, RepeatedRenewalNeverShortens,
    R24_RepeatedReleaseIsRecognised, ReleaseFreesAtOnceAndNothingElse,
    X07_TheHoldersTtlDecides);

}  // namespace lastdoor::testing
