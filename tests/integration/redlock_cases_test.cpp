// Redlock and what other implementations of it got wrong: cases by number.
#include <gtest/gtest.h>

#include <fstream>
#include <future>
#include <lastdoor/stores/redis.hpp>
#include <lastdoor/testing/store_contract_client.hpp>

#include "support/redlock_cluster.hpp"

namespace {

using namespace lastdoor;
using namespace lastdoor::support;
using namespace std::chrono_literals;
using lastdoor::testing::outcome_of;

class RedlockCases : public ::testing::Test {
 protected:
  void SetUp() override { LASTDOOR_NEEDS_REDIS(); }

  static constexpr const char* key = "lastdoor:{default}:redlock:lock:r";
  // The lease of an owner that this client knows nothing of.
  static std::string stranger() { return std::string(40, 'f') + " 7 other"; }
  static void put_stranger(const temp_redis& server) {
    ASSERT_EQ(server.say({"SET", key, stranger(), "PX", "60000"}), "OK");
  }
  static void expect_untouched(const temp_redis& server) {
    EXPECT_EQ(server.say({"GET", key}), stranger());
    EXPECT_GT(server.number({"PTTL", key}), 0);
    EXPECT_LE(server.number({"PTTL", key}), 60'000);
  }
};

// What an attempt left is taken back by its owner value, on those that said
// yes, and on no other.
TEST_F(RedlockCases, R01_AFailedAttemptIsTakenBackByItsOwnOwner) {
  redlock_cluster all{5};
  auto locks = all.patient();
  ASSERT_EQ(outcome_of(locks->inspect(resource_name::parse("r").value())),
            "ok");
  for (const std::size_t k : {2U, 3U, 4U}) {
    put_stranger(all[k]);
  }
  EXPECT_EQ(outcome_of(attempt(*locks, "r", 30s)), "busy");
  for (const std::size_t k : {0U, 1U}) {
    EXPECT_TRUE(eventually([&] {
      return all[k].say({"EXISTS", key}) == "0";
    })) << k;
  }
  for (const std::size_t k : {2U, 3U, 4U}) {
    expect_untouched(all[k]);
  }
}

// The answers that come first do not decide whose it is now.
TEST_F(RedlockCases, R24_ARepeatedReleaseWaitsForWhoeverHoldsIt) {
  redlock_cluster all{5};
  auto locks = all.patient();
  const auto held = attempt(*locks, "r", 10min);
  ASSERT_EQ(outcome_of(held), "ok");
  const auto release = [&] {
    return outcome_of(locks->release(*held, boot_clock()->now() + 60s));
  };
  ASSERT_EQ(release(), "ok");
  for (std::size_t k = 0; k < 5; ++k) {
    ASSERT_TRUE(eventually([&] { return all[k].say({"EXISTS", key}) == "0"; }));
  }
  EXPECT_EQ(release(), "ok") << "nobody has it";
  for (const std::size_t k : {2U, 3U, 4U}) {
    put_stranger(all[k]);
  }
  all[2].pause();
  all[3].pause();
  auto repeated = std::async(std::launch::async, release);
  EXPECT_EQ(repeated.wait_for(300ms), std::future_status::timeout)
      << "three of five do not tell";
  all[2].resume();
  all[3].resume();
  EXPECT_EQ(repeated.get(), "not_owner");
  expect_untouched(all[4]);
}

TEST_F(RedlockCases, R02_ALeaseThatIsGoneOrAnothersIsNotRenewed) {
  redlock_cluster all{5};
  auto locks = all.patient();
  for (const bool taken : {false, true}) {
    auto held = attempt(*locks, "r", 10min);
    ASSERT_EQ(outcome_of(held), "ok");
    for (const std::size_t k : {0U, 1U, 2U, 3U}) {
      all[k].say({"DEL", key});
      if (taken) {
        put_stranger(all[k]);
      }
    }
    const auto renewed = locks->renew(*held, 10min, boot_clock()->now() + 10s);
    EXPECT_EQ(outcome_of(renewed), "not_owner");
    for (const std::size_t k : {0U, 1U, 2U, 3U}) {
      if (taken) {
        expect_untouched(all[k]);
      } else {
        EXPECT_EQ(all[k].say({"EXISTS", key}), "0") << k;
      }
    }
    for (std::size_t k = 0; k < all.size(); ++k) {
      all[k].say({"DEL", key});
    }
  }
}

// Three of five servers believe that an hour has passed, and a second holder
// is granted. Its token is higher, and that is what counts.
TEST_F(RedlockCases, R31_AStepOfTheServersClocksIsCaughtAtTheStore) {
  const temp_folder folder{"lastdoor-clock"};
  const auto file = (folder.path() / "clock").string();
  const auto move_to = [&](std::int64_t ns) {
    std::ofstream out{file, std::ios::binary | std::ios::in | std::ios::out};
    out.write(reinterpret_cast<const char*>(&ns), sizeof ns);
  };
  std::ofstream{file, std::ios::binary} << std::string(8, '\0');
  give_to_server(folder.path());
  redis_options moved;
  moved.launcher = {"/usr/bin/env", "LD_PRELOAD=" LASTDOOR_MOVED_CLOCK,
                    "MOVED_CLOCK_FILE=" + file};
  std::vector<std::unique_ptr<temp_redis>> servers;
  std::vector<std::string> urls;
  for (int k = 0; k < 5; ++k) {
    servers.push_back(
        std::make_unique<temp_redis>(k < 3 ? moved : redis_options{}));
    urls.push_back(servers.back()->url());
  }
  ASSERT_EQ(outcome_of(redlock_init(urls, {}, redlock_cluster::patience())),
            "ok");
  const temp_redis data;
  ASSERT_EQ(outcome_of(create_redis_ledger(data.url())), "ok");
  auto store = open_redis_store(data.url()).value();

  auto locks = open_redlock_backend(urls, redlock_cluster::patience()).value();
  const auto a = attempt(*locks, "r", 50s);
  ASSERT_EQ(outcome_of(a), "ok");
  EXPECT_EQ(outcome_of(store.write(*a, redis_commands{}.set("n", "a"))), "ok");
  EXPECT_EQ(outcome_of(attempt(*locks, "r", 50s)), "busy");
  move_to(std::chrono::nanoseconds{1h}.count());
  const auto b = attempt(*locks, "r", 50s);
  ASSERT_EQ(outcome_of(b), "ok") << "which no lock service can prevent";
  EXPECT_TRUE(a->valid_at(boot_clock()->now())) << "two holders";
  EXPECT_GT(b->token(), a->token());
  EXPECT_EQ(outcome_of(store.write(*b, redis_commands{}.set("n", "b"))), "ok");
  EXPECT_EQ(outcome_of(store.write(*a, redis_commands{}.set("n", "a"))),
            "stale_token");
  EXPECT_EQ(data.say({"GET", "n"}), "b");
}

}  // namespace
