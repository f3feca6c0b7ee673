#include "stores/postgres_migrate.hpp"

#include <fmt/format.h>

#include <lastdoor/migrate.hpp>
#include <string_view>

#include "embedded_postgres_migrations.hpp"
#include "locks/backoff.hpp"
#include "locks/entropy.hpp"
#include "stores/migration_plan.hpp"
#include "stores/postgres_guard.hpp"
#include "stores/postgres_schema_text.hpp"

namespace lastdoor::postgres {

namespace {

using namespace std::chrono_literals;
using detail::applied_migration;
using detail::embedded_migration;
using postgres_driver::answer;
using postgres_driver::connection;
using postgres_driver::effect;

constexpr std::string_view reading = "reading the migrations";
constexpr std::string_view migrating = "migrating";

constexpr duration question_timeout = 30s;
// A step may have to rewrite something large one day.
constexpr duration step_timeout = 1h;

// The one table that no migration makes: it says which ones were applied.
// `applied_at` is for people; nothing is decided by it.
constexpr std::string_view bookkeeping = R"(
CREATE TABLE IF NOT EXISTS lastdoor.migrations (
  version    integer     NOT NULL CONSTRAINT migrations_pkey PRIMARY KEY,
  name       text        NOT NULL,
  checksum   text        NOT NULL,
  applied_at timestamptz NOT NULL DEFAULT clock_timestamp()
);
)";

// Objects of lastdoor's are found in its schema and those of Postgres in
// theirs, whatever the session's path. Users' tables are waited for shorter.
constexpr std::string_view begin =
    "BEGIN; SET LOCAL search_path = pg_catalog, pg_temp; "
    "SET LOCAL lock_timeout = '5s'";

// Among all advisory locks of a database. Part of the name is what it is for.
constexpr std::string_view lock_key =
    "pg_catalog.hashtextextended('lastdoor/migrate', 0)";

// Tables whose rows must not be lost by accident, with the version that made
// them. Without its marks a store lets an old token pass; without its leases
// a lock service does not know which tokens it has handed out.
struct memory {
  int version;
  std::string_view table;
  std::string_view what;
};
constexpr memory memories[] = {
    {ledger_version, "lastdoor.marks", "marks"},
    {leases_version, "lastdoor.leases", "leases"},
};

std::span<const embedded_migration> known() noexcept {
  return detail::embedded_migrations();
}

time_point in(const connection& db, duration d) { return db.time()->now() + d; }

result<answer> ask(connection& db, std::string_view sql,
                   std::string_view doing) {
  return db.script({sql, doing, effect::reads, in(db, question_timeout)});
}

result<bool> truth(connection& db, std::string_view sql,
                   std::string_view doing) {
  auto told = ask(db, sql, doing);
  if (!told) {
    return told.error();
  }
  return told->rows() == 1 && told->truth(0, 0);
}

result<void> act(connection& db, const std::string& sql, std::string_view doing,
                 const after_request& after) {
  auto done = db.script({sql, doing, effect::writes, in(db, step_timeout)});
  if (!done) {
    return done.error();
  }
  if (after) {
    after();
  }
  return {};
}

// Rolls back at the end of the scope unless committed.
class open_transaction {
 public:
  static result<open_transaction> start(connection& db, std::string_view doing,
                                        const after_request& after) {
    if (auto ok = act(db, std::string{begin}, doing, after); !ok) {
      return ok.error();
    }
    return open_transaction{db};
  }
  open_transaction(open_transaction&& other) noexcept
      : db_{std::exchange(other.db_, nullptr)} {}
  open_transaction& operator=(open_transaction&&) = delete;
  ~open_transaction() {
    if (db_ != nullptr && db_->raw() != nullptr) {
      ask(*db_, "ROLLBACK", "rolling back").ignore();
    }
  }
  result<void> commit(std::string_view doing, const after_request& after) {
    auto* db = std::exchange(db_, nullptr);
    return act(*db, "COMMIT", doing, after);
  }

 private:
  explicit open_transaction(connection& db) noexcept : db_{&db} {}
  connection* db_;
};

// The right to migrate this database, until the end of the scope.
class migrator_lock {
 public:
  static result<migrator_lock> take(connection& db, duration patience);
  migrator_lock(migrator_lock&& other) noexcept
      : db_{std::exchange(other.db_, nullptr)} {}
  migrator_lock& operator=(migrator_lock&&) = delete;
  ~migrator_lock() {
    // A connection that was lost has taken the lock with it.
    if (db_ != nullptr && db_->raw() != nullptr) {
      ask(*db_, fmt::format("SELECT pg_advisory_unlock({})", lock_key),
          "ending the migration")
          .ignore();
    }
  }

 private:
  explicit migrator_lock(connection& db) noexcept : db_{&db} {}
  connection* db_;
};

error other_migrator(connection& db, duration patience) {
  auto who = ask(db,
                 fmt::format("SELECT string_agg(pid::text, ', ') FROM pg_locks "
                             "WHERE locktype = 'advisory' AND granted AND "
                             "objsubid = 1 AND database = (SELECT oid FROM "
                             "pg_database WHERE datname = current_database()) "
                             "AND ((classid::bigint << 32) | objid::bigint) = "
                             "{}",
                             lock_key),
                 reading);
  const auto pid = who && who->rows() == 1 ? who->text(0, 0) : "";
  return fail(
      errc::unavailable,
      fmt::format("another migrator is at work (server process {}); gave up "
                  "after {} s",
                  pid,
                  std::chrono::ceil<std::chrono::seconds>(patience).count()));
}

result<migrator_lock> migrator_lock::take(connection& db, duration patience) {
  if (db.pooled()) {
    return fail(errc::misconfigured,
                "migrations need a connection of their own to the server, "
                "not one through a pooler");
  }
  const auto give_up_at = in(db, patience);
  detail::backoff pauses{{.first = 20ms, .cap = 500ms}, detail::random_seed()};
  const auto bell = db.time()->make_alarm();
  for (;;) {
    auto mine =
        truth(db, fmt::format("SELECT pg_try_advisory_lock({})", lock_key),
              migrating);
    if (!mine) {
      return mine.error();
    }
    if (*mine) {
      return migrator_lock{db};
    }
    if (db.time()->now() >= give_up_at) {
      return other_migrator(db, patience);
    }
    (void)bell->wait_until(db.time()->now() + pauses.next());
  }
}

result<std::vector<applied_migration>> read_applied(connection& db) {
  std::vector<applied_migration> rows;
  auto there = truth(
      db, "SELECT to_regclass('lastdoor.migrations') IS NOT NULL", reading);
  if (!there) {
    return there.error();
  }
  if (!*there) {
    return rows;
  }
  auto all = ask(db,
                 "SELECT version, name, checksum FROM lastdoor.migrations "
                 "ORDER BY version",
                 reading);
  if (!all) {
    return all.error();
  }
  for (int i = 0; i < all->rows(); ++i) {
    rows.push_back({all->integer(i, 0), std::string{all->text(i, 1)},
                    std::string{all->text(i, 2)}});
  }
  return rows;
}

result<int> count_applied(connection& db) {
  auto rows = read_applied(db);
  if (!rows) {
    return rows.error();
  }
  return detail::applied_count(*rows, known());
}

result<void> apply(connection& db, const embedded_migration& m,
                   const after_request& after) {
  const auto doing =
      fmt::format("applying migration {} '{}'", m.version, m.name);
  auto tx = open_transaction::start(db, doing, after);
  if (!tx) {
    return tx.error();
  }
  if (auto ok = act(db, std::string{m.up}, doing, after); !ok) {
    return ok.error();
  }
  // After the first migration, which makes the schema. Names and checksums
  // come from the program text and hold nothing that needs quoting.
  const auto record = fmt::format(
      "{}INSERT INTO lastdoor.migrations (version, name, checksum) "
      "VALUES ({}, '{}', '{}')",
      bookkeeping, m.version, m.name, m.checksum);
  if (auto ok = act(db, record, doing, after); !ok) {
    return ok.error();
  }
  return tx->commit(doing, after);
}

result<void> refuse_to_forget(connection& db, int to_version) {
  for (const auto& m : memories) {
    if (m.version <= to_version) {
      continue;
    }
    auto there =
        truth(db, fmt::format("SELECT to_regclass('{}') IS NOT NULL", m.table),
              reading);
    if (!there) {
      return there.error();
    }
    if (!*there) {
      continue;
    }
    auto any = truth(db, fmt::format("SELECT EXISTS (SELECT FROM {})", m.table),
                     reading);
    if (!any) {
      return any.error();
    }
    if (*any) {
      return fail(errc::precondition_failed,
                  fmt::format("the database has {}; without them an old token "
                              "would pass, so taking them away has to be "
                              "asked for by name (discard marks)",
                              m.what));
    }
  }
  return {};
}

result<void> forget(connection& db, const embedded_migration& m,
                    const after_request& after) {
  const auto doing =
      fmt::format("taking back migration {} '{}'", m.version, m.name);
  // The table of migrations goes before the schema that it is in.
  const auto record = m.version == 1
                          ? std::string{"DROP TABLE lastdoor.migrations"}
                          : fmt::format(
                                "DELETE FROM lastdoor.migrations "
                                "WHERE version = {}",
                                m.version);
  if (auto ok = act(db, record, doing, after); !ok) {
    return ok.error();
  }
  return act(db, std::string{m.down}, doing, after);
}

result<connection> open(const std::string& url) {
  auto where = postgres_driver::parse_endpoint(url);
  return where ? connection::open(*where, {},
                                  boot_clock()->now() + question_timeout)
               : where.error();
}

}  // namespace

result<std::vector<int>> apply_missing(connection& db,
                                       const after_request& after,
                                       duration patience) {
  std::vector<int> done;
  const auto last = static_cast<int>(known().size());
  auto count = count_applied(db);
  if (!count) {
    return count.error();
  }
  if (*count == last) {
    return done;
  }
  auto mine = migrator_lock::take(db, patience);
  if (!mine) {
    return mine.error();
  }
  // Again, now that nobody else changes it.
  count = count_applied(db);
  if (!count) {
    return count.error();
  }
  for (int version = *count + 1; version <= last; ++version) {
    const auto& m = known()[static_cast<std::size_t>(version - 1)];
    if (auto ok = apply(db, m, after); !ok) {
      return ok.error();
    }
    done.push_back(version);
  }
  return done;
}

result<std::vector<int>> take_back(connection& db, int to_version,
                                   bool discard_marks,
                                   const after_request& after) {
  if (auto ok = detail::check_target(to_version, known()); !ok) {
    return ok.error();
  }
  auto mine = migrator_lock::take(db, migrator_patience);
  if (!mine) {
    return mine.error();
  }
  std::vector<int> done;
  auto count = count_applied(db);
  if (!count) {
    return count.error();
  }
  if (*count <= to_version) {
    return done;
  }
  auto tx = open_transaction::start(db, migrating, after);
  if (!tx) {
    return tx.error();
  }
  if (!discard_marks) {
    if (auto ok = refuse_to_forget(db, to_version); !ok) {
      return ok.error();
    }
  }
  for (int version = *count; version > to_version; --version) {
    const auto& m = known()[static_cast<std::size_t>(version - 1)];
    if (auto ok = forget(db, m, after); !ok) {
      return ok.error();
    }
    done.push_back(version);
  }
  if (auto ok = tx->commit(migrating, after); !ok) {
    return ok.error();
  }
  return done;
}

result<void> check_schema(connection& db, int required, time_point deadline) {
  // One question, so that opening a service costs one round trip; only a
  // database that is not right is asked again.
  std::string sql = "SELECT count(*) FROM (VALUES ";
  for (int version = 1; version <= required; ++version) {
    const auto& m = known()[static_cast<std::size_t>(version - 1)];
    sql += fmt::format("{}({}, '{}')", version == 1 ? "" : ", ", m.version,
                       m.checksum);
  }
  sql +=
      ") AS wanted (version, checksum) "
      "JOIN lastdoor.migrations USING (version, checksum)";
  auto found = db.script({sql, reading, effect::reads, deadline});
  if (found && found->integer(0, 0) == required) {
    return {};
  }
  if (!found && found.code() != errc::schema_mismatch) {
    return found.error();
  }
  auto count = count_applied(db);
  if (!count) {
    return count.error();
  }
  return fail(errc::schema_mismatch,
              fmt::format("the database has lastdoor's migrations up to {}, "
                          "{} is needed: run lastdoor migrate up",
                          *count, required));
}

result<std::vector<std::string>> own_differences(connection& db) {
  constexpr std::string_view doing = "comparing the schema";
  // The present schema steps aside, for this transaction only: others see
  // nothing of it, since it is rolled back.
  constexpr std::string_view aside = "lastdoor_as_it_is";
  auto tx = open_transaction::start(db, doing, {});
  if (!tx) {
    return tx.error();
  }
  auto there =
      truth(db, "SELECT to_regnamespace('lastdoor') IS NOT NULL", doing);
  if (!there) {
    return there.error();
  }
  if (*there) {
    auto ok = act(db, fmt::format("ALTER SCHEMA lastdoor RENAME TO {}", aside),
                  doing, {});
    if (!ok) {
      return ok.error();
    }
  }
  for (const auto& m : known()) {
    const auto up = std::string{m.up} + std::string{bookkeeping};
    if (auto ok = act(db, up, doing, {}); !ok) {
      return ok.error();
    }
  }
  const auto deadline = in(db, question_timeout);
  auto want = read_schema(db, "lastdoor", deadline);
  if (!want) {
    return want.error();
  }
  auto have = read_schema(db, aside, deadline);
  if (!have) {
    return have.error();
  }
  return differences(*want, *have);
}

result<std::vector<int>> migrate_up(const std::string& url) {
  auto db = open(url);
  return db ? apply_missing(*db) : db.error();
}

result<std::vector<int>> migrate_down(const std::string& url, int to_version,
                                      bool discard_marks) {
  auto db = open(url);
  if (!db) {
    return db.error();
  }
  const auto give_up_at = in(*db, migrator_patience);
  detail::backoff pauses{{.first = 100ms, .cap = 2s}, detail::random_seed()};
  const auto bell = db->time()->make_alarm();
  for (;; (void)bell->wait_until(db->time()->now() + pauses.next())) {
    auto done = take_back(*db, to_version, discard_marks);
    // A table in use was not waited for.
    if (done || done.error().backend() != "55P03" ||
        db->time()->now() >= give_up_at) {
      return done;
    }
  }
}

result<std::vector<migration_status>> migrate_status(const std::string& url) {
  auto db = open(url);
  auto rows = db ? read_applied(*db) : db.error();
  if (!rows) {
    return rows.error();
  }
  return detail::status_of(*rows, known());
}

result<std::vector<std::string>> migrate_verify(const std::string& url) {
  auto db = open(url);
  if (!db) {
    return db.error();
  }
  auto found = own_differences(*db);
  if (!found) {
    return found.error();
  }
  auto guards = inspect_guards(*db, in(*db, question_timeout));
  if (!guards) {
    return guards.error();
  }
  found->insert(found->end(), guards->begin(), guards->end());
  auto count = count_applied(*db);
  if (!count && count.code() != errc::schema_mismatch) {
    return count.error();
  }
  if (!count) {
    found->push_back(count.error().text());
  }
  return found;
}

}  // namespace lastdoor::postgres
