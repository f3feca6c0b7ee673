// G8: servers that forget. Whatever happens to the memory of a server, no
// token comes back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <fstream>
#include <mutex>
#include <set>
#include <thread>

#include "support/redis_client.hpp"
#include "support/tcp_proxy.hpp"
#include "support/temp_redis.hpp"

namespace {

using namespace std::chrono_literals;
using namespace lastdoor::support;
using lastdoor::errc;
using lastdoor::fencing_token;
using lastdoor::mark;

class RedisForgetting : public ::testing::Test {
 protected:
  void SetUp() override { LASTDOOR_NEEDS_REDIS(); }
  // A client that has seen no token: it must rely on the server alone.
  static std::int64_t fresh_token(const std::string& url) {
    redis_client client{url};
    std::int64_t token = 0;
    EXPECT_TRUE(eventually([&] {
      token = client.token_of("r");
      return token != 0;
    }));
    return token;
  }
};

TEST_F(RedisForgetting, G8_BlankServerStartsAtItsClock) {
  temp_redis server;
  const auto time = server.say({"TIME"});
  const auto seconds = std::stoll(time.substr(0, time.find(',')));
  const auto token = fresh_token(server.url());
  EXPECT_GT(token, seconds * 1'000'000);
  EXPECT_LT(token, (seconds + 3600) * 1'000'000);
  EXPECT_EQ(fresh_token(server.url()), token + 1) << "and then counts";
}

TEST_F(RedisForgetting, G8_RestartWithoutData) {
  temp_redis server;
  redis_client client{server.url()};
  std::int64_t last = client.token_of("r");
  for (int i = 0; i < 3; ++i) {
    server.restart_empty();
    const auto fresh = fresh_token(server.url());
    EXPECT_GT(fresh, last);
    last = client.token_of("r");
    EXPECT_GT(last, fresh) << "over the connection that broke";
  }
}

TEST_F(RedisForgetting, G8_RestartWithDataKeepsTheLeaseAndRaisesTheCounter) {
  temp_redis server{{.persistent = true}};
  redis_client client{server.url()};
  auto held = client.acquire("held", 10min);
  ASSERT_EQ(outcome_of(held), "ok");
  server.restart();
  EXPECT_TRUE(
      eventually([&] { return outcome_of(client.renew(*held)) == "ok"; }));
  EXPECT_EQ(outcome_of(client.acquire("held")), "busy");
  // One would be enough had nothing been lost, but who can know.
  EXPECT_GT(fresh_token(server.url()), held->token().value() + 1);
  EXPECT_EQ(outcome_of(client.release(*held)), "ok");
}

TEST_F(RedisForgetting, G8_FlushUnderALiveConnection) {
  temp_redis server;
  tcp_proxy between{server.port()};
  redis_client client{between.redis_url()};
  std::int64_t last = client.token_of("r");
  for (const auto* flush : {"FLUSHALL", "FLUSHDB"}) {
    auto held = client.acquire("held");
    ASSERT_EQ(outcome_of(held), "ok");
    last = held->token().value();
    server.say({flush});
    EXPECT_EQ(outcome_of(client.renew(*held)), "not_owner");
    const auto next = client.token_of("r");
    EXPECT_GT(next, last);
    last = next;
  }
  EXPECT_EQ(between.connections(), 1);
}

// What this client never saw is gone with the flush: only the clock is above.
TEST_F(RedisForgetting, G8_FlushForgetsTokensOfOthersToo) {
  temp_redis server;
  redis_client idle{server.url()};
  ASSERT_NE(idle.token_of("r"), 0);
  std::int64_t highest = 0;
  for (int i = 0; i < 20; ++i) {
    highest = fresh_token(server.url());
  }
  server.say({"FLUSHALL"});
  EXPECT_GT(idle.token_of("r"), highest);
}

TEST_F(RedisForgetting, G8_MarkerOrCounterGoneAlone) {
  temp_redis server;
  redis_client client{server.url()};
  auto last = client.token_of("r");
  for (const auto& key : {marker_key, counter_key}) {
    server.say({"DEL", key});
    const auto next = fresh_token(server.url());
    EXPECT_GT(next, last + 1) << key;
    last = next;
  }
  server.say({"SET", marker_key, "another server's"});
  EXPECT_GT(client.token_of("r"), last + 1);
}

// The marker cannot tell, but the client can: it remembers.
TEST_F(RedisForgetting, G8_CounterSetBackByHand) {
  temp_redis server;
  redis_client client{server.url()};
  const auto last = client.token_of("r");
  server.say({"SET", counter_key, "10"});
  const auto next = client.token_of("r");
  EXPECT_GT(next, last);
  EXPECT_EQ(server.say({"EXISTS", lock_key("r")}), "0");
}

// R14: the replica had not heard of the last tokens.
TEST_F(RedisForgetting, R14_PromotedReplicaThatLagged) {
  temp_redis primary;
  temp_redis replica;
  tcp_proxy service{primary.port()};  // the address that moves
  redis_client client{service.redis_url()};
  ASSERT_NE(client.token_of("r"), 0);
  replica.follow(primary);
  replica.promote();
  std::int64_t last = 0;
  for (int i = 0; i < 5; ++i) {
    last = fresh_token(primary.url());
  }
  ASSERT_LT(replica.number({"GET", counter_key}), last);
  service.lead_to(replica.port());
  service.cut();
  EXPECT_GT(fresh_token(service.redis_url()), last);
  EXPECT_GT(client.token_of("r"), last);
}

// There and back before any client has spoken to the replica: the marker
// still names the first server, which has the replica's old data now.
TEST_F(RedisForgetting, R14_FailoverThereAndBackUnseen) {
  temp_redis first;
  temp_redis second;
  ASSERT_NE(fresh_token(first.url()), 0);
  second.follow(first);
  second.promote();
  std::int64_t last = 0;
  for (int i = 0; i < 5; ++i) {
    last = fresh_token(first.url());
  }
  first.follow(second);
  ASSERT_LT(first.number({"GET", counter_key}), last);
  first.promote();
  EXPECT_GT(fresh_token(first.url()), last);
}

TEST_F(RedisForgetting, G8_OldBackupPutBack) {
  temp_redis server;
  const auto dump = server.folder() / "dump.rdb";
  ASSERT_NE(fresh_token(server.url()), 0);
  ASSERT_EQ(server.say({"SAVE"}), "OK");
  const auto backup = text_of(dump);
  std::int64_t last = 0;
  for (int i = 0; i < 5; ++i) {
    last = fresh_token(server.url());
  }
  server.kill_hard();
  std::ofstream{dump, std::ios::binary} << backup;
  server.start();
  ASSERT_LT(server.number({"GET", counter_key}), last);
  EXPECT_GT(fresh_token(server.url()), last);
}

// R12: lost scripts are no lost memory; each verb finds its way.
TEST_F(RedisForgetting, R12_ScriptsGoneBetweenTheVerbs) {
  temp_redis server{{.persistent = true}};
  redis_client client{server.url()};
  for (const bool restart : {false, true}) {
    const auto forget = [&] {
      if (restart) {
        server.restart();
      } else {
        server.say({"SCRIPT", "FLUSH"});
      }
    };
    SCOPED_TRACE(restart ? "restart" : "flush");
    lastdoor::result<lastdoor::grant> g = lastdoor::fail(errc::busy, "");
    forget();
    ASSERT_TRUE(eventually([&] {
      g = client.acquire("r", 10min);
      return g.has_value();
    }));
    forget();
    EXPECT_EQ(outcome_of(client.renew(*g, 20min)), "ok");
    EXPECT_GT(server.number({"PTTL", lock_key("r")}), 600'000);
    forget();
    EXPECT_EQ(outcome_of(client.inspect("r")), "ok");
    forget();
    EXPECT_EQ(outcome_of(client.backend().raise_floor(mark{g->token()})), "ok");
    forget();
    EXPECT_EQ(outcome_of(client.release(*g)), "ok");
    EXPECT_EQ(server.say({"EXISTS", lock_key("r")}), "0");
  }
}

TEST_F(RedisForgetting, G8_RaisedFloorOutlivesAFlush) {
  temp_redis server;
  redis_client client{server.url()};
  const auto floor = fencing_token::from(5'000'000'000'000'000).value();
  ASSERT_EQ(outcome_of(client.backend().raise_floor(mark{floor})), "ok");
  EXPECT_GT(client.token_of("r"), floor.value());
  server.say({"FLUSHALL"});
  EXPECT_GT(client.token_of("r"), floor.value());
}

// G1 and G2 while the memory is taken away again and again.
TEST_F(RedisForgetting, G1_G2_HoldWhileTheServerIsFlushed) {
  temp_redis server;
  std::atomic<bool> stop{false};
  std::mutex guard;
  std::int64_t highest = 0;
  int wrong = 0;
  std::set<std::int64_t> tokens;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      redis_client client{server.url()};
      while (!stop) {
        std::int64_t before = 0;
        {
          const std::lock_guard lock{guard};
          before = highest;
        }
        auto g = client.acquire("r" + std::to_string(t));
        if (!g) {
          continue;
        }
        client.release(*g).ignore();
        const std::lock_guard lock{guard};
        // Granted after `before` was returned to somebody: G2.
        wrong += g->token().value() > before ? 0 : 1;
        wrong += tokens.insert(g->token().value()).second ? 0 : 1;
        highest = std::max(highest, g->token().value());
      }
    });
  }
  for (int i = 0; i < 30; ++i) {
    const auto then = lastdoor::boot_clock()->now() + 10ms;
    (void)eventually([&] { return lastdoor::boot_clock()->now() > then; });
    server.say({i % 3 == 0   ? "FLUSHALL"
                : i % 3 == 1 ? "SCRIPT"
                             : "DEL",
                i % 3 == 0   ? "ASYNC"
                : i % 3 == 1 ? "FLUSH"
                             : counter_key});
  }
  stop = true;
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(tokens.size(), 50U);
}

}  // namespace
