// Migrations on a real server: many migrators, killed migrators, the way back.
#include "stores/postgres_migrate.hpp"

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <lastdoor/migrate.hpp>
#include <thread>

#include "stores/postgres_schema_text.hpp"
#include "support/temp_pgbouncer.hpp"
#include "support/temp_postgres.hpp"

namespace lastdoor::postgres {
namespace {

using namespace std::chrono_literals;
using postgres_driver::connection;
using support::eventually;
using support::sql_session;
using support::temp_database;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr const char* owner = "0123456789012345678901234567890123456789";

connection open(const temp_database& db) {
  return connection::open(postgres_driver::parse_endpoint(db.url()).value(), {},
                          boot_clock()->now() + 30s)
      .value();
}

schema_text schema_of(const temp_database& db) {
  auto c = open(db);
  return read_schema(c, "lastdoor", boot_clock()->now() + 30s).value();
}

void add_lease(const temp_database& db) {
  db.query(std::string{"INSERT INTO lastdoor.leases "
                       "VALUES ('default', 'r', '"} +
           owner + "', 1, clock_timestamp(), 'somebody')");
}

TEST(PostgresMigrate, GoesUpDownAndUpToTheSameSchema) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  EXPECT_FALSE(migrate_status(db.url()).value()[0].applied);
  EXPECT_THAT(migrate_up(db.url()).value(), ElementsAre(1, 2));
  const auto first = schema_of(db);
  EXPECT_GE(first.size(), 20U);
  EXPECT_THAT(migrate_up(db.url()).value(), IsEmpty());
  EXPECT_THAT(migrate_verify(db.url()).value(), IsEmpty());
  for (const auto& m : migrate_status(db.url()).value()) {
    EXPECT_TRUE(m.applied && m.checksum_matches) << m.name;
  }
  EXPECT_THAT(migrate_down(db.url(), 1, false).value(), ElementsAre(2));
  EXPECT_THAT(migrate_down(db.url(), 0, false).value(), ElementsAre(1));
  EXPECT_THAT(schema_of(db), IsEmpty());
  EXPECT_THAT(migrate_up(db.url()).value(), ElementsAre(1, 2));
  EXPECT_EQ(schema_of(db), first);
}

TEST(PostgresMigrate, C06_TenMigratorsAtOnceDoEachStepOnce) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  std::vector<std::thread> migrators;
  std::vector<std::vector<int>> done(10);
  for (auto& mine : done) {
    migrators.emplace_back([&] {
      auto up = migrate_up(db.url());
      ASSERT_TRUE(up) << up.error().message();
      mine = *up;
    });
  }
  std::vector<int> all;
  for (std::size_t i = 0; i < done.size(); ++i) {
    migrators[i].join();
    all.insert(all.end(), done[i].begin(), done[i].end());
  }
  EXPECT_THAT(all, ::testing::UnorderedElementsAre(1, 2));
  EXPECT_EQ(db.value("SELECT count(*) FROM pg_locks "
                     "WHERE locktype = 'advisory'"),
            "0");
}

TEST(PostgresMigrate, P25_TheWaitForAnotherMigratorHoldsNothing) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  db.query("CREATE TABLE t (i int)");
  sql_session other{db.url()};
  other.query(
      "SELECT pg_advisory_lock(hashtextextended('lastdoor/migrate', 0))");
  std::thread migrator{[&] { EXPECT_TRUE(migrate_up(db.url())); }};
  EXPECT_TRUE(eventually([&] {
    return db.value(
               "SELECT count(*) FROM pg_stat_activity WHERE "
               "datname = current_database() AND query LIKE "
               "'%pg_try_advisory_lock%' AND state = 'idle'") == "1";
  }));
  // Waits for every snapshot older than itself; a migrator that waited inside
  // a statement would hold one, and neither would ever go on.
  sql_session builder{db.url()};
  builder.query("SET statement_timeout = '30s'");
  builder.query("CREATE INDEX CONCURRENTLY t_i ON t (i)");
  EXPECT_EQ(db.value("SELECT to_regclass('lastdoor.leases') IS NULL"), "t");
  other.query("SELECT pg_advisory_unlock_all()");
  migrator.join();
}

TEST(PostgresMigrate, GivesUpWaitingAndNamesTheOther) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  sql_session other{db.url()};
  other.query(
      "SELECT pg_advisory_lock(hashtextextended('lastdoor/migrate', 0))");
  auto c = open(db);
  const auto refused = apply_missing(c, {}, 200ms);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), errc::unavailable);
  EXPECT_THAT(refused.error().message(),
              HasSubstr(std::to_string(other.backend_pid())));
}

// Runs `work` in a child that is killed after its n-th request. False: it
// came to its end before.
bool killed_after(int n, const std::function<void(after_request)>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    int left = n;
    work([&left] {
      if (--left == 0) {
        ::kill(::getpid(), SIGKILL);
      }
    });
    ::_exit(0);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WIFSIGNALED(status);
}

TEST(PostgresMigrate, C05_AKilledMigratorLeavesTheOldOrTheNewState) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database model;
  ASSERT_TRUE(migrate_up(model.url()));
  const auto whole = schema_of(model);
  int n = 1;
  for (;; ++n) {
    const temp_database db;
    const bool killed = killed_after(n, [&](const after_request& after) {
      auto c = open(db);
      apply_missing(c, after).ignore();
    });
    ASSERT_TRUE(migrate_up(db.url()));
    EXPECT_EQ(schema_of(db), whole) << "killed after request " << n;
    if (!killed) {
      break;
    }
  }
  // Begin, up, record, commit; and the one that was not killed.
  const auto migrations = migrate_status(model.url()).value().size();
  EXPECT_EQ(n, 4 * static_cast<int>(migrations) + 1);
}

TEST(PostgresMigrate, C05_AKilledWayBackLeavesTheOldOrTheNewState) {
  LASTDOOR_NEEDS_POSTGRES();
  for (int n = 1;; ++n) {
    const temp_database db;
    ASSERT_TRUE(migrate_up(db.url()));
    const auto whole = schema_of(db);
    const bool killed = killed_after(n, [&](const after_request& after) {
      auto c = open(db);
      take_back(c, 0, false, after).ignore();
    });
    ASSERT_TRUE(eventually([&] {
      return db.value(
                 "SELECT count(*) FROM pg_locks "
                 "WHERE locktype = 'advisory'") == "0";
    }));
    const auto left = schema_of(db);
    EXPECT_TRUE(left.empty() || left == whole) << "killed after " << n;
    ASSERT_TRUE(migrate_down(db.url(), 0, false));
    if (!killed) {
      break;
    }
  }
}

TEST(PostgresMigrate, TheWayBackForgetsNothingByAccident) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  db.query("CREATE TABLE mine (i int, fence_token bigint)");
  ASSERT_TRUE(migrate_up(db.url()));
  add_lease(db);
  const auto refused = migrate_down(db.url(), 0, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), errc::precondition_failed);
  EXPECT_THAT(migrate_verify(db.url()).value(), IsEmpty());
  EXPECT_THAT(migrate_down(db.url(), 0, true).value(), ElementsAre(2, 1));
  EXPECT_EQ(db.value("SELECT count(*) FROM pg_attribute WHERE "
                     "attrelid = 'mine'::regclass AND attnum > 0"),
            "2");
  const auto no_such = migrate_down(db.url(), 99, true);
  ASSERT_FALSE(no_such);
  EXPECT_EQ(no_such.code(), errc::invalid_argument);
}

TEST(PostgresMigrate, LeavesADatabaseOfAnotherReleaseAlone) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database newer;
  ASSERT_TRUE(migrate_up(newer.url()));
  newer.query("INSERT INTO lastdoor.migrations VALUES (999, 'later', 'x')");
  const temp_database changed;
  ASSERT_TRUE(migrate_up(changed.url()));
  changed.query(
      "UPDATE lastdoor.migrations SET checksum = 'x' "
      "WHERE version = 1");
  for (const auto* db : {&newer, &changed}) {
    EXPECT_EQ(migrate_up(db->url()).code(), errc::schema_mismatch);
    EXPECT_EQ(migrate_down(db->url(), 0, true).code(), errc::schema_mismatch);
    auto c = open(*db);
    EXPECT_EQ(check_schema(c, 1, boot_clock()->now() + 30s).has_value(),
              db == &newer);
    EXPECT_THAT(migrate_verify(db->url()).value(), ::testing::SizeIs(1));
  }
  EXPECT_EQ(migrate_status(newer.url()).value().back().name, "later");
  EXPECT_FALSE(migrate_status(changed.url()).value()[0].checksum_matches);
}

TEST(PostgresMigrate, VerifyNamesWhatWasTamperedWith) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  EXPECT_FALSE(migrate_verify(db.url()).value().empty());
  ASSERT_TRUE(migrate_up(db.url()));
  db.query("ALTER SEQUENCE lastdoor.token CACHE 10");
  db.query("ALTER TABLE lastdoor.leases DROP CONSTRAINT leases_token_range");
  db.query("CREATE TABLE lastdoor.guest (i int)");
  const auto found = migrate_verify(db.url()).value();
  EXPECT_THAT(found, Contains(HasSubstr("cache 10")));
  EXPECT_THAT(found, Contains(HasSubstr("leases_token_range is missing")));
  EXPECT_THAT(found, Contains(HasSubstr("relation guest is not lastdoor's")));
  // Looking changed nothing.
  EXPECT_EQ(db.value("SELECT count(*) FROM lastdoor.guest"), "0");
  EXPECT_EQ(db.value("SELECT to_regnamespace('lastdoor_as_it_is') IS NULL"),
            "t");
}

TEST(PostgresMigrate, RefusesToWorkThroughAPooler) {
  LASTDOOR_NEEDS_PGBOUNCER();
  const temp_database db;
  const support::temp_pgbouncer bouncer{db.server()};
  const auto refused = migrate_up(bouncer.url(db.name()));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), errc::misconfigured);
}

}  // namespace
}  // namespace lastdoor::postgres
