// The lock contract on leases in Postgres behind a pooler that gives each
// statement whatever server session is free (P01).
#include <lastdoor/locks/postgres.hpp>
#include <lastdoor/migrate.hpp>
#include <lastdoor/testing/lock_contract.hpp>

#include "support/temp_pgbouncer.hpp"

namespace {

using namespace std::chrono_literals;

struct postgres_pooled {
  static constexpr int kill_points = 20;
  lastdoor::support::temp_database db;
  lastdoor::support::temp_pgbouncer bouncer{db.server(), {.pool_size = 2}};

  postgres_pooled() { lastdoor::postgres::migrate_up(db.url()).value(); }
  [[nodiscard]] std::unique_ptr<lastdoor::lock_backend> connect() const {
    return lastdoor::open_postgres_backend(bouncer.url(db.name()),
                                           {.call_timeout = 30s})
        .value();
  }
};

}  // namespace

LASTDOOR_LOCK_CONTRACT(postgres_pooled, postgres_pooled);
