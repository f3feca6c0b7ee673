// lock_contract_rules.hpp: what a back end answers, to one process.
#pragma once

#include <gmock/gmock.h>
#include <lastdoor/testing/lock_contract_client.hpp>

#include <algorithm>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

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
  EXPECT_EQ(outcome_of(b.renew(*g, 60s)), "ok") << "identity, not connection";
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

// Names that some encoding, quoting or normalisation might mix up.
inline std::vector<std::string> confusable_names() {
  std::string longest(resource_name::max_bytes, 'x');
  std::string also_longest = longest;
  also_longest.back() = 'y';
  return {"a:b", "a,b", "a/b", "a b", "a", "b", "a:b:c", "a:bc", "ab:c",
          "A", "a ", " a", "a%", "%", "_", "a\n", "a\tb", "\n", "a'b", "a\"b",
          "a`b", "a\\b", "a;b", "{a}b", "*", "?", "[a]", "$1", "?1", ":a",
          "'; DROP TABLE lastdoor_leases; --", "NULL", "0", "00", "1e0", "1",
          "\xC3\xA9",   // e with acute, composed
          "e\xCC\x81",  // the same to the eye, decomposed
          "\xF0\x9F\x94\x92", "\xC3\x9F", "ss", longest, also_longest};
}

TYPED_TEST_P(LockContract, R29_NoTwoNamesShareALease) {
  auto a = this->connect();
  const auto names = confusable_names();
  std::vector<grant> held;
  for (const auto& name : names) {
    SCOPED_TRACE(name);
    auto g = a.acquire(name, 10min);
    ASSERT_EQ(outcome_of(g), "ok");
    held.push_back(*g);
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    SCOPED_TRACE(names[i]);
    ASSERT_EQ(outcome_of(a.acquire(names[i], 10min)), "busy");
    EXPECT_TRUE(a.inspect(names[i]).held);
    EXPECT_EQ(outcome_of(a.release(held[i])), "ok");
    EXPECT_FALSE(a.inspect(names[i]).held);
    if (i + 1 < names.size()) {
      EXPECT_TRUE(a.inspect(names[i + 1]).held);
    }
  }
}

TYPED_TEST_P(LockContract, ManyResourcesAreHeldAtOnce) {
  auto a = this->connect();
  auto b = this->connect();
  std::vector<grant> held;
  for (int i = 0; i < 500; ++i) {
    auto g = (i % 2 == 0 ? a : b).acquire("r" + std::to_string(i), 10min);
    ASSERT_EQ(outcome_of(g), "ok") << i;
    held.push_back(*g);
  }
  for (int i = 0; i < 500; ++i) {
    ASSERT_EQ(outcome_of((i % 2 == 0 ? b : a).acquire(
                  "r" + std::to_string(i), 10min)),
              "busy");
    ASSERT_EQ(outcome_of(b.release(held[static_cast<std::size_t>(i)])), "ok");
  }
}

TYPED_TEST_P(LockContract, G8_RaisedFloorIsBelowEveryNewToken) {
  auto a = this->connect();
  auto b = this->connect();
  auto first = a.acquire("r", 60s);
  ASSERT_EQ(outcome_of(first), "ok");
  const mark high{fencing_token::from(1'000'000'000'000).value()};
  ASSERT_EQ(outcome_of(a.backend().raise_floor(high)), "ok");
  EXPECT_EQ(outcome_of(a.renew(*first, 60s)), "ok") << "leases are untouched";
  auto above = b.acquire("s", 60s);
  ASSERT_EQ(outcome_of(above), "ok");
  EXPECT_GT(mark{above->token()}, high);

  for (const auto low : {mark{}, mark{fencing_token::from(5).value()}, high})
    ASSERT_EQ(outcome_of(b.backend().raise_floor(low)), "ok");
  auto later = a.acquire("t", 60s);
  ASSERT_EQ(outcome_of(later), "ok");
  EXPECT_GT(later->token(), above->token()) << "nothing was lowered";
}

TYPED_TEST_P(LockContract, R35_NoGrantBeyondTheLastToken) {
  auto a = this->connect();
  const mark last_but_one{
      fencing_token::from(fencing_token::max - 1).value()};
  ASSERT_EQ(outcome_of(a.backend().raise_floor(last_but_one)), "ok");
  // A service whose tokens have gaps may be at its end already.
  auto last = a.acquire("last", 60s);
  if (last) {
    EXPECT_EQ(last->token().value(), fencing_token::max);
  } else {
    EXPECT_EQ(outcome_of(last), "token_exhausted");
  }
  EXPECT_EQ(outcome_of(a.acquire("beyond", 60s)), "token_exhausted");
  EXPECT_FALSE(a.inspect("beyond").held) << "no lease is left behind";
  EXPECT_EQ(outcome_of(a.acquire("beyond", 60s)), "token_exhausted");
}

TYPED_TEST_P(LockContract, G1_ThreadsShareOneBackEnd) {
  auto a = this->connect();
  std::mutex guard;
  std::set<std::int64_t> tokens;
  std::vector<std::string> wrong;
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([&, t] {
      for (int i = 0; i < 50; ++i) {
        auto g = a.acquire("r" + std::to_string(t), 60s);
        const auto freed = g ? outcome_of(a.release(*g)) : outcome_of(g);
        const std::lock_guard lock{guard};
        if (freed != "ok" || !tokens.insert(g->token().value()).second)
          wrong.push_back(freed);
      }
    });
  for (auto& thread : threads)
    thread.join();
  EXPECT_THAT(wrong, ::testing::IsEmpty());
  EXPECT_EQ(tokens.size(), 400U);
}

REGISTER_TYPED_TEST_SUITE_P(
    LockContract, G2_TokensRiseFromGrantToGrant,
    R37_BusyTellsTheHolderAndTheTimeLeft, InspectTellsWhatTheServiceKnows,
    R05_ValidityEndsBeforeTheServicesOwnExpiry, PassedDeadlineGrantsNothing,
    R24_ForeignReleaseChangesNothing, R04_ForeignRenewalNeverProlongs,
    R03_RenewalDoesNotReviveAnExpiredLease, R03_RenewalDoesNotTakeALeaseBack,
    R03_RenewalAfterReleaseIsRefused, RepeatedRenewalNeverShortens,
    ReleaseFreesAtOnceAndNothingElse, X07_TheHoldersTtlDecides,
    R29_NoTwoNamesShareALease, ManyResourcesAreHeldAtOnce,
    G8_RaisedFloorIsBelowEveryNewToken, R35_NoGrantBeyondTheLastToken,
    G1_ThreadsShareOneBackEnd);

}  // namespace lastdoor::testing
