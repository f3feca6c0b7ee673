// lock_contract_replies.hpp: requests that are carried out, with the answer
// lost on its way back.
#pragma once

#include <gmock/gmock.h>
#include <lastdoor/testing/lock_contract_client.hpp>

namespace lastdoor::testing {

template <class Service>
class LockContractReplies : public lock_contract<Service> {};
TYPED_TEST_SUITE_P(LockContractReplies);

TYPED_TEST_P(LockContractReplies, R09_LostAcquisitionLeavesNoLastingLease) {
  using namespace std::chrono_literals;
  auto a = this->connect();
  auto b = this->connect();
  this->service().lose_next_reply();
  auto lost = a.acquire("r", 10min);
  if (lost) {
    // Asked again and recognised: a grant like any other.
    EXPECT_EQ(outcome_of(a.release(*lost)), "ok");
  } else {
    EXPECT_THAT(outcome_of(lost),
                ::testing::AnyOf("in_doubt", "unavailable", "no_quorum"));
  }
  // Long before the ten minutes are over.
  result<grant> next = fail(errc::busy, "not yet");
  EXPECT_TRUE(eventually([&] {
    next = b.acquire("r", 10min);
    return next.has_value();
  }));
}

TYPED_TEST_P(LockContractReplies, R24_ReleaseIsRecognisedWhenRepeated) {
  using namespace std::chrono_literals;
  auto a = this->connect();
  auto g = a.acquire("r", 10min);
  ASSERT_EQ(outcome_of(g), "ok");
  this->service().lose_next_reply();
  a.release(*g).ignore();
  EXPECT_EQ(outcome_of(a.release(*g)), "ok");
  EXPECT_FALSE(a.inspect("r").held);
}

TYPED_TEST_P(LockContractReplies, RenewalIsRecognisedWhenRepeated) {
  using namespace std::chrono_literals;
  auto a = this->connect();
  auto g = a.acquire("r", 5min);
  ASSERT_EQ(outcome_of(g), "ok");
  this->service().lose_next_reply();
  a.renew(*g, 10min).ignore();
  EXPECT_EQ(outcome_of(a.renew(*g, 10min)), "ok");
  EXPECT_GT(a.inspect("r").remaining, 5min);
}

REGISTER_TYPED_TEST_SUITE_P(LockContractReplies,
                            R09_LostAcquisitionLeavesNoLastingLease,
                            R24_ReleaseIsRecognisedWhenRepeated,
                            RenewalIsRecognisedWhenRepeated);

}  // namespace lastdoor::testing
