// lock_contract_limits.hpp: odd names, many resources, many threads, and the
// end of the tokens.
#pragma once

#include <gmock/gmock.h>
#include <lastdoor/testing/lock_contract_client.hpp>

#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

namespace lastdoor::testing {

using namespace std::chrono_literals;

template <class Service>
class LockContractLimits : public lock_contract<Service> {};
TYPED_TEST_SUITE_P(LockContractLimits);

// Names that some encoding, quoting or normalisation might mix up.
inline std::vector<std::string> confusable_names() {
  std::string longest(resource_name::max_bytes, 'x');
  std::string also_longest = longest;
  also_longest.back() = 'y';
  return {"a:b",
          "a,b",
          "a/b",
          "a b",
          "a",
          "b",
          "a:b:c",
          "a:bc",
          "ab:c",
          "A",
          "a ",
          " a",
          "a%",
          "%",
          "_",
          "a\n",
          "a\tb",
          "\n",
          "a'b",
          "a\"b",
          "a`b",
          "a\\b",
          "a;b",
          "{a}b",
          "*",
          "?",
          "[a]",
          "$1",
          "?1",
          ":a",
          "'; DROP TABLE lastdoor_leases; --",
          "NULL",
          "0",
          "00",
          "1e0",
          "1",
          "\xC3\xA9",   // e with acute, composed
          "e\xCC\x81",  // the same to the eye, decomposed
          "\xF0\x9F\x94\x92",
          "\xC3\x9F",
          "ss",
          longest,
          also_longest};
}

TYPED_TEST_P(LockContractLimits, R29_NoTwoNamesShareALease) {
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

TYPED_TEST_P(LockContractLimits, ManyResourcesAreHeldAtOnce) {
  auto a = this->connect();
  auto b = this->connect();
  int many = 500;
  bool own_only = false;  // who acquired it releases it
  if constexpr (requires { TypeParam::leases_of_a_session; }) {
    many = TypeParam::leases_of_a_session;
    own_only = true;
  }
  std::vector<grant> held;
  for (int i = 0; i < many; ++i) {
    auto g = (i % 2 == 0 ? a : b).acquire("r" + std::to_string(i), 10min);
    ASSERT_EQ(outcome_of(g), "ok") << i;
    held.push_back(*g);
  }
  for (int i = 0; i < many; ++i) {
    ASSERT_EQ(outcome_of(
                  (i % 2 == 0 ? b : a).acquire("r" + std::to_string(i), 10min)),
              "busy");
    auto& releases = own_only && i % 2 == 0 ? a : b;
    ASSERT_EQ(outcome_of(releases.release(held[static_cast<std::size_t>(i)])),
              "ok");
  }
}

TYPED_TEST_P(LockContractLimits, G8_RaisedFloorIsBelowEveryNewToken) {
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

TYPED_TEST_P(LockContractLimits, R35_NoGrantBeyondTheLastToken) {
  auto a = this->connect();
  const mark last_but_one{fencing_token::from(fencing_token::max - 1).value()};
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

TYPED_TEST_P(LockContractLimits, G1_ThreadsShareOneBackEnd) {
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

REGISTER_TYPED_TEST_SUITE_P(LockContractLimits, R29_NoTwoNamesShareALease,
                            ManyResourcesAreHeldAtOnce,
                            G8_RaisedFloorIsBelowEveryNewToken,
                            R35_NoGrantBeyondTheLastToken,
                            G1_ThreadsShareOneBackEnd);

}  // namespace lastdoor::testing
