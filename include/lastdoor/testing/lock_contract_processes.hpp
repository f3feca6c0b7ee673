// lock_contract_processes.hpp: what a back end keeps among processes, some of
// which die.
#pragma once

#include <gmock/gmock.h>
#include <lastdoor/testing/lock_contract_client.hpp>
#include <lastdoor/testing/lock_history.hpp>

#include <algorithm>
#include <iterator>
#include <vector>

namespace lastdoor::testing {

template <class Service>
class LockContractProcesses : public lock_contract<Service> {};
TYPED_TEST_SUITE_P(LockContractProcesses);

[[nodiscard]] inline std::int64_t monotonic_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

/// What one of the processes does: `count` grants and releases on random
/// ones of a few resources, over a new connection now and then.
template <class Service>
int collect_grants(Service& service, std::int32_t process, std::uint64_t seed,
                   int count,
                   const child_process<grant_record>::reporter& report) {
  std::mt19937_64 random{seed + static_cast<std::uint64_t>(process)};
  std::vector<grant_record> grants;
  auto self = std::make_unique<contender>(service.connect());
  while (std::cmp_less(grants.size(), count)) {
    const auto resource = static_cast<std::int32_t>(random() % 5);
    const auto name = "resource-" + std::to_string(resource);
    grant_record r{monotonic_ns(), 0, 0, 0, resource, process};
    auto g = self->acquire(name, std::chrono::minutes{10});
    r.answered_ns = monotonic_ns();
    if (!g && g.code() == errc::busy)
      continue;
    if (!g)
      throw failure{g.error()};
    r.token = g->token().value();
    r.given_up_ns = monotonic_ns();
    self->release(*g).value();
    grants.push_back(r);
    if (random() % 400 == 0)
      self = std::make_unique<contender>(service.connect());
  }
  self.reset();
  for (const auto& r : grants)
    report(r);
  return 0;
}

TYPED_TEST_P(LockContractProcesses, F04_TenThousandGrantsAreInOrder) {
  constexpr int processes = 8;
  constexpr int grants_each = 1250;
  const auto seed = test_seed();
  std::vector<child_process<grant_record>> children;
  for (std::int32_t p = 0; p < processes; ++p)
    children.emplace_back([&, p](const auto& report) {
      return collect_grants(this->service(), p, seed, grants_each, report);
    });
  std::vector<grant_record> history;
  for (auto& child : children) {
    const auto part = child.rest();
    EXPECT_EQ(child.wait(), 0);
    history.insert(history.end(), part.begin(), part.end());
  }
  ASSERT_EQ(history.size(), std::size_t{processes} * grants_each);
  EXPECT_EQ(find_repeated(history), std::nullopt);
  EXPECT_EQ(find_disorder(history), std::nullopt);
  EXPECT_EQ(find_overlap(history), std::nullopt);
}

TYPED_TEST_P(LockContractProcesses, KilledHoldersLeaseRunsOut) {
  child_process<std::int64_t> holder{[&](const auto& report) {
    auto self = this->connect("the killed one");
    report(self.acquire_briefly("r").value().token().value());
    ::pause();
    return 0;
  }};
  const auto token = holder.next();
  ASSERT_TRUE(token.has_value());
  holder.kill();
  auto heir = this->connect();
  const auto left = heir.inspect("r");
  EXPECT_LE(left.remaining, contender::longest_brief);
  result<grant> next = fail(errc::busy, "not yet");
  ASSERT_TRUE(eventually([&] {
    next = heir.acquire("r", std::chrono::seconds{60});
    return next.has_value();
  }));
  EXPECT_GT(next->token().value(), *token);
}

TYPED_TEST_P(LockContractProcesses, X01_StoppedHolderFindsItsLeaseGone) {
  struct word {
    std::int64_t token;
    bool refused;
  };
  child_process<word> holder{[&](const auto& report) {
    auto self = this->connect("the stopped one");
    const auto mine = self.acquire_briefly("r").value();
    report({mine.token().value(), false});
    ::raise(SIGSTOP);
    auto renewed = self.renew(mine, std::chrono::seconds{60});
    report(
        {mine.token().value(), !renewed && renewed.code() == errc::not_owner});
    return 0;
  }};
  const auto before = holder.next();
  ASSERT_TRUE(before.has_value());
  siginfo_t info{};
  ASSERT_EQ(::waitid(P_PID, static_cast<id_t>(holder.pid()), &info,
                     WSTOPPED | WNOWAIT),
            0);
  ASSERT_EQ(info.si_code, CLD_STOPPED);
  {
    auto heir = this->connect();
    result<grant> next = fail(errc::busy, "not yet");
    ASSERT_TRUE(eventually([&] {
      next = heir.acquire("r", std::chrono::seconds{60});
      return next.has_value();
    }));
    EXPECT_GT(next->token().value(), before->token);
    holder.signal(SIGCONT);
    const auto after = holder.next();
    ASSERT_TRUE(after.has_value());
    EXPECT_TRUE(after->refused);
    EXPECT_EQ(outcome_of(heir.renew(*next, std::chrono::seconds{60})), "ok");
  }
  EXPECT_EQ(holder.wait(), 0);
}

/// How often R26 kills; a service may say `kill_points` itself.
template <class Service>
constexpr int kill_points() {
  if constexpr (requires { Service::kill_points; })
    return Service::kill_points;
  else
    return 50;
}

TYPED_TEST_P(LockContractProcesses, R26_KilledAnywhereLeavesNoLastingLease) {
  const auto seed = test_seed();
  std::mt19937_64 random{seed};
  std::int64_t highest = 0;
  for (int point = 0; point < kill_points<TypeParam>(); ++point) {
    SCOPED_TRACE("kill " + std::to_string(point));
    child_process<std::int64_t> client{[&](const auto& report) {
      auto self = this->connect();
      for (;;) {
        auto g = self.acquire("r", contender::shortest_brief);
        if (!g)
          continue;
        report(g->token().value());
        self.renew(*g, contender::shortest_brief).ignore();
        self.release(*g).ignore();
      }
      return 0;
    }};
    ASSERT_TRUE(client.next().has_value());
    pause_for(std::chrono::microseconds{random() % 3000});
    client.signal(SIGKILL);
    for (const auto token : client.rest())
      highest = std::max(highest, token);
    ASSERT_EQ(client.wait(), 128 + SIGKILL);

    auto heir = this->connect();
    EXPECT_LE(heir.inspect("r").remaining, contender::shortest_brief);
    result<grant> next = fail(errc::busy, "not yet");
    ASSERT_TRUE(eventually([&] {
      next = heir.acquire("r", std::chrono::seconds{60});
      return next.has_value();
    })) << next.error().message();
    ASSERT_GT(next->token().value(), highest);
    highest = next->token().value();
    ASSERT_EQ(outcome_of(heir.release(*next)), "ok");
  }
}

REGISTER_TYPED_TEST_SUITE_P(LockContractProcesses,
                            F04_TenThousandGrantsAreInOrder,
                            KilledHoldersLeaseRunsOut,
                            X01_StoppedHolderFindsItsLeaseGone,
                            R26_KilledAnywhereLeavesNoLastingLease);

}  // namespace lastdoor::testing
