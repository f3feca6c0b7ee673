// Migrations of an SQLite file, with migrators that die and that compete.
#include <gmock/gmock.h>
#include <sqlite3.h>
#include <lastdoor/migrate.hpp>
#include <lastdoor/testing/lock_contract_client.hpp>

#include <algorithm>
#include <numeric>
#include <thread>

#include "stores/sqlite_migrate.hpp"
#include "support/sqlite_files.hpp"

namespace lastdoor::testing {
namespace {

using sqlite_driver::connection;
using sqlite_driver::open_mode;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string owner(40, 'a');

// A migrator that is killed after its n-th statement; false when it had fewer.
template <class Migrate>
bool killed_after(int n, const std::string& path, const Migrate& migrate) {
  child_process<int> child{[&](const auto& /*report*/) {
    auto db = connection::open(path, open_mode::create).value();
    int statements = 0;
    const auto after = [&] {
      if (++statements == n) {
        ::raise(SIGKILL);
      }
    };
    return migrate(db, after) ? 0 : 1;
  }};
  const int code = child.wait();
  EXPECT_THAT(code, ::testing::AnyOf(0, 128 + SIGKILL));
  return code != 0;
}

// The dumps of a file with 0, 1, 2, ... migrations.
std::vector<std::string> states() {
  std::vector<std::string> all{""};
  temp_folder folder;
  const auto path = folder / "undisturbed.db";
  const auto versions = sqlite::migrate_up(path).value();
  for (auto v = versions.size(); v > 0; --v) {
    all.insert(all.begin() + 1, whole_dump(path));
    sqlite::migrate_down(path, static_cast<int>(v) - 1, true).value();
  }
  return all;
}

TEST(SqliteMigrate, C05_KilledMigratorLeavesTheOldOrTheNewState) {
  const auto all = states();
  int n = 1;
  for (;; ++n) {
    SCOPED_TRACE(n);
    temp_folder folder;
    const auto path = folder / "a.db";
    const bool killed =
        killed_after(n, path, [](connection& db, const auto& after) {
          return sqlite::apply_missing(db, after).has_value();
        });
    const auto found = schema_dump(path).empty() ? "" : whole_dump(path);
    EXPECT_THAT(all, ::testing::Contains(found));
    ASSERT_EQ(outcome_of(sqlite::migrate_up(path)), "ok");
    EXPECT_EQ(whole_dump(path), all.back());
    if (!killed) {
      break;
    }
  }
  EXPECT_GT(n, 10) << "it did die in between";
}

TEST(SqliteMigrate, C05_KilledOnTheWayBackLeavesTheOldOrTheNewState) {
  const auto all = states();
  int n = 1;
  for (;; ++n) {
    SCOPED_TRACE(n);
    temp_folder folder;
    const auto path = folder / "a.db";
    sqlite::migrate_up(path).value();
    const bool killed =
        killed_after(n, path, [](connection& db, const auto& after) {
          return sqlite::take_back(db, 0, false, after).has_value();
        });
    const auto found = schema_dump(path).empty() ? "" : whole_dump(path);
    EXPECT_THAT(found, ::testing::AnyOf(all.front(), all.back()));
    ASSERT_EQ(outcome_of(sqlite::migrate_up(path)), "ok");
    EXPECT_EQ(whole_dump(path), all.back());
    if (!killed) {
      break;
    }
  }
  EXPECT_GT(n, 4) << "it did die in between";
}

// Another is about to write to the new file, as ten migrators are at once: to
// change the journal mode is refused meanwhile, without waiting.
TEST(SqliteMigrate, C06_AFileThatIsBeingMadeIsWaitedFor) {
  temp_folder folder;
  const auto path = folder / "a.db";
  sqlite3* other = nullptr;
  ASSERT_EQ(sqlite3_open(path.c_str(), &other), SQLITE_OK);
  const auto say = [&](const char* sql) {
    return sqlite3_exec(other, sql, nullptr, nullptr, nullptr);
  };
  ASSERT_EQ(say("BEGIN IMMEDIATE"), SQLITE_OK);
  std::thread ends{[&] {
    std::this_thread::sleep_for(std::chrono::milliseconds{200});
    EXPECT_EQ(say("COMMIT"), SQLITE_OK);
  }};
  EXPECT_EQ(outcome_of(sqlite::migrate_up(path)), "ok");
  ends.join();
  sqlite3_close(other);
}

TEST(SqliteMigrate, C06_TenMigratorsDoEachStepOnce) {
  temp_folder folder;
  const auto path = folder / "a.db";
  std::vector<child_process<int>> migrators;
  for (int i = 0; i < 10; ++i) {
    migrators.emplace_back([&](const auto& report) {
      for (const int version : sqlite::migrate_up(path).value()) {
        report(version);
      }
      return 0;
    });
  }
  std::vector<int> steps;
  for (auto& m : migrators) {
    for (const int version : m.rest()) {
      steps.push_back(version);
    }
    EXPECT_EQ(m.wait(), 0);
  }
  std::sort(steps.begin(), steps.end());
  std::vector<int> each_once(steps.size());
  std::iota(each_once.begin(), each_once.end(), 1);
  EXPECT_EQ(steps, each_once);
  EXPECT_THAT(sqlite::migrate_verify(path).value(), IsEmpty());
  EXPECT_EQ(whole_dump(path), states().back());
}

// What is applied was read before the transaction began, and somebody else
// was faster.
TEST(SqliteMigrate, C06_SlowerMigratorSeesWhatTheFasterDid) {
  temp_folder folder;
  const auto path = folder / "a.db";
  auto slow = connection::open(path, open_mode::create).value();
  bool first = true;
  auto steps = sqlite::apply_missing(slow, [&] {
    // After BEGIN of the first step nobody else gets in, so the others are
    // let in between the first step and the second.
    if (!slow.in_transaction() && first) {
      first = false;
      EXPECT_THAT(sqlite::migrate_up(path).value(), ElementsAre(2));
    }
  });
  EXPECT_THAT(steps.value(), ElementsAre(1));
}

TEST(SqliteMigrate, SecondRunChangesNothing) {
  temp_folder folder;
  const auto path = folder / "a.db";
  EXPECT_THAT(sqlite::migrate_up(path).value(), ElementsAre(1, 2));
  const auto before = whole_dump(path);
  EXPECT_THAT(sqlite::migrate_up(path).value(), IsEmpty());
  EXPECT_EQ(whole_dump(path), before);
  for (const auto& m : sqlite::migrate_status(path).value()) {
    EXPECT_TRUE(m.applied) << m.name;
    EXPECT_TRUE(m.checksum_matches) << m.name;
  }
}

// Every way to touch the file refuses, with a text that names the step.
void expect_mismatch(const std::string& path, const std::string& naming) {
  const auto before = whole_dump(path);
  auto up = sqlite::migrate_up(path);
  ASSERT_EQ(outcome_of(up), "schema_mismatch");
  EXPECT_THAT(up.error().message(), HasSubstr(naming));
  auto down = sqlite::migrate_down(path, 0, true);
  ASSERT_EQ(outcome_of(down), "schema_mismatch");
  EXPECT_THAT(down.error().message(), HasSubstr(naming));
  auto db = connection::open(path, open_mode::existing).value();
  EXPECT_EQ(outcome_of(sqlite::check_schema(db, 1)), "schema_mismatch");
  EXPECT_THAT(sqlite::migrate_verify(path).value(),
              ::testing::Contains(HasSubstr(naming)));
  EXPECT_EQ(whole_dump(path), before);
}

TEST(SqliteMigrate, UnknownNewerVersionIsNamedAndLeftAlone) {
  temp_folder folder;
  const auto path = folder / "a.db";
  sqlite::migrate_up(path).value();
  raw_sqlite{path}.run(
      "INSERT INTO lastdoor_migrations (version, name, checksum) "
      "VALUES (99, 'from_the_future', 'x')");
  expect_mismatch(path, "99 'from_the_future'");
  const auto status = sqlite::migrate_status(path).value();
  EXPECT_EQ(status.back().version, 99);
  EXPECT_TRUE(status.back().applied);
  EXPECT_FALSE(status.back().checksum_matches);
}

TEST(SqliteMigrate, ChangedTextIsNamedAndLeftAlone) {
  temp_folder folder;
  const auto path = folder / "a.db";
  sqlite::migrate_up(path).value();
  raw_sqlite{path}.run(
      "UPDATE lastdoor_migrations SET checksum = 'x' WHERE version = 2");
  expect_mismatch(path, "2 'leases'");
  const auto status = sqlite::migrate_status(path).value();
  EXPECT_TRUE(status[0].checksum_matches);
  EXPECT_FALSE(status[1].checksum_matches);
}

TEST(SqliteMigrate, MissingStepIsNamedAndLeftAlone) {
  temp_folder folder;
  const auto path = folder / "a.db";
  sqlite::migrate_up(path).value();
  raw_sqlite{path}.run("DELETE FROM lastdoor_migrations WHERE version = 1");
  expect_mismatch(path, "migration 2 is applied but 1 is not");
}

TEST(SqliteMigrate, StoreIsToldToMigrate) {
  temp_folder folder;
  auto db = connection::open(folder / "a.db", open_mode::create).value();
  auto missing = sqlite::check_schema(db, 1);
  ASSERT_EQ(outcome_of(missing), "schema_mismatch");
  EXPECT_THAT(missing.error().message(), HasSubstr("run lastdoor migrate up"));
  ASSERT_EQ(outcome_of(sqlite::apply_all(db)), "ok");
  EXPECT_EQ(outcome_of(sqlite::check_schema(db, 2)), "ok");
}

TEST(SqliteMigrate, WayBackTakesOnlyWhatIsOurs) {
  temp_folder folder;
  const auto path = folder / "a.db";
  {
    raw_sqlite db{path};
    db.run(
        "CREATE TABLE stock (sku TEXT PRIMARY KEY, qty INTEGER, "
        "fence_token INTEGER NOT NULL DEFAULT 0);"
        "CREATE INDEX by_qty ON stock (qty);"
        "CREATE VIEW low AS SELECT * FROM stock WHERE qty < 3;"
        "CREATE TRIGGER mine AFTER UPDATE ON stock BEGIN SELECT 1; END;"
        "CREATE TABLE lastdoorbell (x);"
        "INSERT INTO stock VALUES ('sku-1', 7, 41)");
  }
  const auto before = schema_dump(path);
  sqlite::migrate_up(path).value();
  raw_sqlite{path}.run(
      "CREATE TRIGGER \"lastdoor_guard_a\"\"b\" BEFORE UPDATE ON stock "
      "BEGIN SELECT token FROM lastdoor_marks; END");
  EXPECT_THAT(sqlite::migrate_down(path, 1, false).value(), ElementsAre(2));
  EXPECT_THAT(schema_dump(path), HasSubstr("lastdoor_guard_"));
  EXPECT_THAT(sqlite::migrate_down(path, 0, false).value(), ElementsAre(1));
  EXPECT_EQ(schema_dump(path), before);
  raw_sqlite db{path};
  db.run("UPDATE stock SET qty = 6");
  EXPECT_EQ(db.text("SELECT * FROM stock"), "sku-1|6|41|");
}

TEST(SqliteMigrate, WayBackRefusesToForgetMarks) {
  temp_folder folder;
  const auto path = folder / "a.db";
  sqlite::migrate_up(path).value();
  raw_sqlite{path}.run(
      "INSERT INTO lastdoor_marks (resource, token, owner, source) "
      "VALUES ('r', 7, '" +
      owner + "', 'sqlite/default')");
  const auto before = whole_dump(path);
  EXPECT_EQ(outcome_of(sqlite::migrate_down(path, 0, false)),
            "precondition_failed");
  EXPECT_EQ(whole_dump(path), before) << "no half way";
  EXPECT_EQ(raw_sqlite{path}.text("SELECT token FROM lastdoor_marks"), "7|");
  EXPECT_THAT(sqlite::migrate_down(path, 1, false).value(), ElementsAre(2))
      << "the marks stay, so this step may go";
  EXPECT_THAT(sqlite::migrate_down(path, 0, true).value(), ElementsAre(1));
  EXPECT_EQ(schema_dump(path), "");
}

TEST(SqliteMigrate, WayBackRefusesToForgetTokens) {
  temp_folder folder;
  const auto path = folder / "a.db";
  sqlite::migrate_up(path).value();
  raw_sqlite{path}.run(
      "INSERT INTO lastdoor_counters VALUES ('default', 1, 1000, 'boot')");
  EXPECT_EQ(outcome_of(sqlite::migrate_down(path, 1, false)),
            "precondition_failed");
  EXPECT_EQ(raw_sqlite{path}.text("SELECT value FROM lastdoor_counters"), "1|");
  EXPECT_THAT(sqlite::migrate_down(path, 1, true).value(), ElementsAre(2));
}

TEST(SqliteMigrate, WayBackNeedsAVersionThatExists) {
  temp_folder folder;
  const auto path = folder / "a.db";
  sqlite::migrate_up(path).value();
  EXPECT_EQ(outcome_of(sqlite::migrate_down(path, -1, true)),
            "invalid_argument");
  EXPECT_EQ(outcome_of(sqlite::migrate_down(path, 3, true)),
            "invalid_argument");
  EXPECT_THAT(sqlite::migrate_down(path, 2, true).value(), IsEmpty());
}

TEST(SqliteMigrate, UpDownUpEndsInTheSameSchema) {
  temp_folder folder;
  const auto path = folder / "a.db";
  sqlite::migrate_up(path).value();
  const auto before = whole_dump(path);
  EXPECT_THAT(sqlite::migrate_down(path, 0, false).value(), ElementsAre(2, 1));
  EXPECT_EQ(schema_dump(path), "");
  EXPECT_THAT(sqlite::migrate_up(path).value(), ElementsAre(1, 2));
  EXPECT_EQ(whole_dump(path), before);
}

TEST(SqliteMigrate, VerifyNamesEachDifference) {
  temp_folder folder;
  const auto path = folder / "a.db";
  EXPECT_EQ(outcome_of(sqlite::migrate_verify(path)), "misconfigured")
      << "verifying makes no file";
  sqlite::migrate_up(path).value();
  EXPECT_THAT(sqlite::migrate_verify(path).value(), IsEmpty());
  raw_sqlite{path}.run(
      "DROP TRIGGER lastdoor_counters_delete;"
      "DROP TRIGGER lastdoor_counters_update;"
      "CREATE TRIGGER lastdoor_counters_update BEFORE UPDATE ON "
      "lastdoor_counters BEGIN SELECT 1; END;"
      "CREATE INDEX lastdoor_extra ON lastdoor_leases (holder);"
      "ALTER TABLE lastdoor_leases ADD COLUMN note");
  EXPECT_THAT(sqlite::migrate_verify(path).value(),
              ::testing::UnorderedElementsAre(
                  "trigger lastdoor_counters_delete is missing",
                  HasSubstr("trigger lastdoor_counters_update is "),
                  "index lastdoor_extra is not of this release",
                  HasSubstr("table lastdoor_leases is ")));
}

TEST(SqliteMigrate, NoFileIsMadeByLooking) {
  temp_folder folder;
  const auto path = folder / "a.db";
  EXPECT_EQ(outcome_of(sqlite::migrate_status(path)), "misconfigured");
  EXPECT_EQ(outcome_of(sqlite::migrate_down(path, 0, true)), "misconfigured");
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(SqliteMigrate, BusyFileIsWaitedForWithABound) {
  temp_folder folder;
  const auto path = folder / "a.db";
  raw_sqlite other{path};
  other.run("PRAGMA journal_mode = WAL; CREATE TABLE t (x); BEGIN IMMEDIATE");
  auto db = connection::open(path, open_mode::existing).value();
  db.busy_timeout(std::chrono::milliseconds{50});
  EXPECT_EQ(outcome_of(sqlite::apply_missing(db)), "unavailable");
  other.run("COMMIT");
  EXPECT_EQ(outcome_of(sqlite::apply_missing(db)), "ok");
}

TEST(SqliteMigrate, NoDatabaseIsSaidSoAndLeftAlone) {
  temp_folder folder;
  const auto path = folder / "letter.txt";
  std::ofstream{path} << std::string(5000, 'x');
  EXPECT_EQ(outcome_of(sqlite::migrate_up(path)), "misconfigured");
  EXPECT_EQ(std::filesystem::file_size(path), 5000U);
}

}  // namespace
}  // namespace lastdoor::testing
