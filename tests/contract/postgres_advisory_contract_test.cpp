// The lock contract on advisory locks in Postgres.
#include <lastdoor/locks/postgres.hpp>
#include <lastdoor/migrate.hpp>
#include <lastdoor/testing/lock_contract.hpp>

#include "support/temp_postgres.hpp"

namespace {

using namespace std::chrono_literals;

struct postgres_advisory {
  static constexpr int kill_points = 20;
  static constexpr int leases_of_a_session = 60;
  lastdoor::support::temp_database db;

  postgres_advisory() { lastdoor::postgres::migrate_up(db.url()).value(); }
  // A lease takes a session of its own, so a client that holds several needs
  // as many.
  [[nodiscard]] std::unique_ptr<lastdoor::lock_backend> connect() const {
    return lastdoor::open_postgres_advisory_backend(
               db.url(),
               {.call_timeout = 30s, .connections = leases_of_a_session + 1})
        .value();
  }
};

}  // namespace

LASTDOOR_LOCK_CONTRACT(postgres_advisory, postgres_advisory);
