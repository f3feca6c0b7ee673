// The lock contract on five independent Redis servers.
#include <lastdoor/locks/redlock.hpp>
#include <lastdoor/testing/lock_contract.hpp>

#include "support/redlock_cluster.hpp"

namespace {

struct five_servers {
  lastdoor::support::redlock_cluster cluster{5};
  // Each kill leaves locks on five servers that only the TTL ends.
  static constexpr int kill_points = 20;
  std::unique_ptr<lastdoor::lock_backend> connect() {
    return cluster.patient();
  }
};

const auto* const environment =
    ::testing::AddGlobalTestEnvironment(new lastdoor::support::needs_redis);

}  // namespace

LASTDOOR_LOCK_CONTRACT(redlock, five_servers);
