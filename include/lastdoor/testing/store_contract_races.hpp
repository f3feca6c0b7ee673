// store_contract_races.hpp: the store contract between threads and between
// processes. See store_contract.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <lastdoor/testing/processes.hpp>
#include <lastdoor/testing/store_contract_rules.hpp>
#include <latch>
#include <thread>

namespace lastdoor::testing {

/// What a writer was told of one write.
struct told {
  std::int64_t token;
  bool applied;
};

/// How many random pairs of writes race; `pairs` of the type, or this.
template <class Service>
[[nodiscard]] int pairs_of() {
  if (std::getenv("LASTDOOR_TEST_LONG") != nullptr) {
    return 10'000;
  }
  if constexpr (requires { Service::pairs; }) {
    return Service::pairs;
  }
  return 300;
}

template <class Service>
class StoreContractRaces : public ::testing::Test {
 protected:
  // One of two writers of a row; applied, or stale, or the test fails.
  static bool race(store& s, const terms& t, const std::string& id) {
    const auto outcome = outcome_of(s.write(granted(t), put_qty(id, t.token)));
    EXPECT_TRUE(outcome == "ok" || outcome == "stale_token") << outcome;
    return outcome == "ok";
  }

  // `count` writes of one row under random tokens, each its own value.
  static int write_at_random(Service& service, std::uint64_t seed, int count,
                             const child_process<told>::reporter& report) {
    auto s = service.connect();
    std::mt19937_64 random{seed};
    for (int i = 0; i < count; ++i) {
      const auto token = static_cast<std::int64_t>(random() % 1000) + 1;
      // The owner hangs on the token: equal tokens are of one grant.
      const char owner = "0123456789abcdef"[token % 16];
      const auto r = s->write(granted({.token = token, .owner = owner}),
                              put_qty("a", token));
      if (!r && r.code() != errc::stale_token) {
        return 1;
      }
      report({token, r.has_value()});
    }
    return 0;
  }

  Service service_;
};

TYPED_TEST_SUITE_P(StoreContractRaces);

// Two threads, each with a store of its own, write one row at once; the
// higher token's value stands in the end, whoever came first.
TYPED_TEST_P(StoreContractRaces, P12_PairsOfWritersEndAtTheHigherToken) {
  std::mt19937_64 random{test_seed()};
  std::array<std::unique_ptr<store>, 2> stores{this->service_.connect(),
                                               this->service_.connect()};
  const int pairs = pairs_of<TypeParam>();
  for (int i = 0; i < pairs; ++i) {
    const auto id = "row-" + std::to_string(i);
    this->service_.put({id, 0});
    const auto first = static_cast<std::int64_t>(random() % 1000) + 1;
    const auto second = first + 1 + static_cast<std::int64_t>(random() % 9);
    std::array<terms, 2> t{
        terms{.token = first, .resource = id},
        terms{.token = second, .resource = id, .owner = 'b'}};
    if (random() % 2 == 0) {
      std::swap(t[0], t[1]);
    }
    std::latch start{2};
    std::array<bool, 2> applied{};
    std::thread other{[&] {
      start.arrive_and_wait();
      applied[1] = this->race(*stores[1], t[1], id);
    }};
    start.arrive_and_wait();
    applied[0] = this->race(*stores[0], t[0], id);
    other.join();
    const auto row = this->service_.read(id).value();
    ASSERT_EQ(row.fence, second);
    ASSERT_EQ(row.qty, second);
    ASSERT_TRUE(applied[t[0].token == second ? 0 : 1]);
  }
}

TYPED_TEST_P(StoreContractRaces, P12_ProcessesEndAtTheHighestToken) {
  this->service_.put({"a", 0});
  const auto seed = test_seed();
  std::vector<child_process<told>> writers;
  for (std::uint64_t i = 0; i < 4; ++i) {
    writers.emplace_back([&, i](const auto& report) {
      return this->write_at_random(this->service_, seed + i, 60, report);
    });
  }
  std::int64_t highest = 0;
  for (auto& w : writers) {
    std::int64_t own_highest = 0;
    for (const auto& t : w.rest()) {
      // A writer's own lower token comes too late as well.
      if (t.applied) {
        EXPECT_GE(t.token, own_highest);
      }
      own_highest = std::max(own_highest, t.token);
    }
    EXPECT_EQ(w.wait(), 0);
    highest = std::max(highest, own_highest);
  }
  const auto row = this->service_.read("a").value();
  EXPECT_EQ(row.fence, highest);
  EXPECT_EQ(row.qty, highest);
  EXPECT_EQ(
      this->service_.connect()->read_mark(resource("stock")).value().value(),
      highest);
}

// Every writer numbers its writes and sends each of them twice.
TYPED_TEST_P(StoreContractRaces, F08_EachNumberedWriteOfManyTakesEffectOnce) {
  constexpr int writers = 3;
  constexpr int writes = 20;
  this->service_.put({"a", 0});
  std::vector<child_process<told>> all;
  for (int i = 0; i < writers; ++i) {
    all.emplace_back([&, i](const auto&) {
      auto s = this->service_.connect();
      const auto g = granted({.token = 7, .resource = "r" + std::to_string(i)});
      const auto add = update("items").key("id", "a").add("qty", 1);
      for (int n = 1; n <= 2 * writes; ++n) {
        const auto r = s->write(g, add, {.sequence = (n + 1) / 2});
        if (!r || r->already_applied != (n % 2 == 0)) {
          return 1;
        }
      }
      return 0;
    });
  }
  for (auto& w : all) {
    EXPECT_EQ(w.wait(), 0);
  }
  EXPECT_EQ(this->service_.read("a").value().qty, writers * writes);
}

// The threads of a process share one store.
TYPED_TEST_P(StoreContractRaces, OneStoreServesManyThreads) {
  constexpr int threads = 4;
  constexpr int writes = 50;
  auto s = this->service_.connect();
  this->service_.put({"a", 0});
  std::vector<std::thread> all;
  for (int i = 0; i < threads; ++i) {
    all.emplace_back([&, i] {
      const auto g = granted({.token = 7, .resource = "r" + std::to_string(i)});
      for (int n = 0; n < writes; ++n) {
        EXPECT_EQ(outcome_of(s->write(
                      g, update("items").key("id", "a").add("qty", 1))),
                  "ok");
      }
    });
  }
  for (auto& t : all) {
    t.join();
  }
  EXPECT_EQ(this->service_.read("a").value().qty, threads * writes);
}

REGISTER_TYPED_TEST_SUITE_P(StoreContractRaces,
                            P12_PairsOfWritersEndAtTheHigherToken,
                            P12_ProcessesEndAtTheHighestToken,
                            F08_EachNumberedWriteOfManyTakesEffectOnce,
                            OneStoreServesManyThreads);

}  // namespace lastdoor::testing
