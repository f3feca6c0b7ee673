#include "locks/turnstile.hpp"

#include <gmock/gmock.h>
#include <lastdoor/testing/lock_contract_client.hpp>

#include <atomic>
#include <thread>
#include <vector>

namespace lastdoor {
namespace {

using namespace std::chrono_literals;

TEST(Turnstile, OneAtATimeAndNotForEver) {
  turnstile gate;
  ASSERT_TRUE(gate.enter(0s));
  EXPECT_FALSE(gate.enter(1ms));
  EXPECT_FALSE(gate.enter(-1s));
  gate.leave();
  EXPECT_TRUE(gate.enter(duration::max()));
  gate.leave();
}

TEST(Turnstile, ThoseWhoGaveUpAreForgotten) {
  turnstile gate;
  ASSERT_TRUE(gate.enter(0s));
  std::thread{[&] { EXPECT_FALSE(gate.enter(1ms)); }}.join();
  gate.leave();
  EXPECT_TRUE(gate.enter(0s)) << "the turn was not handed to a gone thread";
}

TEST(Turnstile, FirstComeFirstServed) {
  turnstile gate;
  ASSERT_TRUE(gate.enter(0s));
  std::vector<int> order;
  std::vector<std::thread> threads;
  for (int i = 0; i < 5; ++i) {
    threads.emplace_back([&, i] {
      if (gate.enter(1h)) {
        order.push_back(i);
        gate.leave();
      }
    });
    const auto waiting = static_cast<std::size_t>(i) + 1;
    ASSERT_TRUE(testing::eventually([&] { return gate.queued() == waiting; }));
  }
  gate.leave();
  for (auto& t : threads) {
    t.join();
  }
  EXPECT_THAT(order, ::testing::ElementsAre(0, 1, 2, 3, 4));
}

TEST(Turnstile, NobodyIsInsideTogether) {
  turnstile gate;
  int inside = 0;  // not atomic: the thread sanitizer watches as well
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      for (int n = 0; n < 500; ++n) {
        // Some give up at just the moment at which their turn comes.
        if (gate.enter(i == 0 ? duration{20us} : duration{1h})) {
          EXPECT_EQ(++inside, 1);
          --inside;
          gate.leave();
        }
      }
    });
  }
  for (auto& t : threads) {
    t.join();
  }
  EXPECT_EQ(gate.queued(), 0U);
  EXPECT_TRUE(gate.enter(0s));
}

}  // namespace
}  // namespace lastdoor
