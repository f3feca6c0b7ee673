// The lock contract on a Redis server.
#include <lastdoor/locks/redis.hpp>
#include <lastdoor/testing/lock_contract.hpp>

#include "support/tcp_proxy.hpp"
#include "support/temp_redis.hpp"

namespace {

using lastdoor::support::tcp_proxy;
using lastdoor::support::temp_redis;

std::unique_ptr<lastdoor::lock_backend> patient(const std::string& url) {
  lastdoor::redis_locks_options options;
  options.call_timeout = std::chrono::seconds{20};  // a busy machine is slow
  return lastdoor::open_redis_backend(url, options).value();
}

struct redis_server {
  temp_redis server;
  std::unique_ptr<lastdoor::lock_backend> connect() {
    return patient(server.url());
  }
};

struct redis_behind_a_relay {
  temp_redis server;
  tcp_proxy between{server.port()};
  std::unique_ptr<lastdoor::lock_backend> connect() {
    auto backend = patient(between.redis_url());
    // Connected, so that the answer that gets lost is one to a verb.
    (void)backend->inspect(lastdoor::resource_name::parse("x").value());
    return backend;
  }
  void lose_next_reply() { between.lose_next_reply(); }
};

const auto* const environment =
    ::testing::AddGlobalTestEnvironment(new lastdoor::support::needs_redis);

}  // namespace

LASTDOOR_LOCK_CONTRACT(redis, redis_server);
LASTDOOR_LOCK_CONTRACT_REPLIES(redis, redis_behind_a_relay);
