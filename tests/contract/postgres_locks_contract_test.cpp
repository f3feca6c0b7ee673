// The lock contract on leases in Postgres: directly, and with answers that are
// lost.
#include <lastdoor/locks/postgres.hpp>
#include <lastdoor/migrate.hpp>
#include <lastdoor/testing/lock_contract.hpp>

#include "support/tcp_proxy.hpp"
#include "support/temp_postgres.hpp"

namespace {

using namespace std::chrono_literals;
using lastdoor::lock_backend;
using lastdoor::support::temp_database;

struct migrated {
  temp_database db;
  migrated() { lastdoor::postgres::migrate_up(db.url()).value(); }
};

struct postgres_direct : migrated {
  static constexpr int kill_points = 20;

  [[nodiscard]] std::unique_ptr<lock_backend> connect() const {
    return lastdoor::open_postgres_backend(db.url(), {.call_timeout = 30s})
        .value();
  }
};

// One connection per back end, on which every statement has been prepared: so
// the next request is the one that counts.
struct postgres_relayed : migrated {
  lastdoor::support::tcp_proxy between{db.server().port()};

  [[nodiscard]] std::unique_ptr<lock_backend> connect() const {
    auto backend = lastdoor::open_postgres_backend(
                       db.tcp_url(between.port()),
                       {.call_timeout = 30s, .connections = 1, .notify = false})
                       .value();
    const auto name = lastdoor::resource_name::parse("warm up").value();
    const auto owner = lastdoor::owner_id::generate().value();
    const auto until = lastdoor::boot_clock()->now() + 30s;
    const auto got =
        backend->try_acquire({name, owner, 10s, "warm up", until}).value();
    const lastdoor::grant g{name, owner, got.token, backend->source(),
                            got.valid_until};
    (void)backend->renew(g, 10s, until).value();
    backend->release(g, until).value();
    (void)backend->inspect(name).value();
    return backend;
  }
  void lose_next_reply() { between.lose_next_reply(); }
};

}  // namespace

LASTDOOR_LOCK_CONTRACT(postgres, postgres_direct);
LASTDOOR_LOCK_CONTRACT_REPLIES(postgres, postgres_relayed);
