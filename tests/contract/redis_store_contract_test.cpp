// The store contract on a Redis server.
#include <lastdoor/stores/redis.hpp>
#include <lastdoor/testing/store_contract.hpp>

#include "support/temp_redis.hpp"

namespace lastdoor::testing {
namespace {

using support::redis_session;
using support::temp_redis;

struct items_on_redis {
  static constexpr bool tables = false;

  items_on_redis() { create_redis_ledger(server.url(), options()).value(); }

  static redis_store_options options(
      std::shared_ptr<clock> time = boot_clock()) {
    redis_store_options o;
    o.adopt_existing = true;                    // `put` knows nothing of marks
    o.call_timeout = std::chrono::seconds{20};  // a busy machine is slow
    o.time = std::move(time);
    return o;
  }

  std::unique_ptr<store> connect(std::shared_ptr<clock> time = boot_clock()) {
    return std::make_unique<redis_store>(
        open_redis_store(server.url(), options(std::move(time))).value());
  }

  std::optional<item> read(std::string_view id) {
    redis_session s{server.socket()};
    const auto key = key_of(id);
    if (s.say({"EXISTS", key}) == "0") {
      return std::nullopt;
    }
    const auto field = [&](const char* name) {
      const auto text = s.say({"HGET", key, name});
      return text == "<nil>" ? std::string{} : text;
    };
    const auto fence = field("fence_token");
    return item{std::string{id}, std::stoll(field("qty")), field("note"),
                fence.empty() ? 0 : std::stoll(fence)};
  }

  void put(const item& i) {
    redis_session s{server.socket()};
    s.say({"HSET", key_of(i.id), "id", i.id, "qty", std::to_string(i.qty),
           "note", i.note});
  }

  static std::string key_of(std::string_view id) {
    return "{default}:items:" + std::string{id};
  }

  temp_redis server;
};

const auto* const environment =
    ::testing::AddGlobalTestEnvironment(new support::needs_redis);

}  // namespace
}  // namespace lastdoor::testing

LASTDOOR_STORE_CONTRACT(redis, items_on_redis);
