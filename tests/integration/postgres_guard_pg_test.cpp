// Guards: what the database itself refuses, to the stock psql as to anybody.
#include <gmock/gmock.h>

#include <chrono>
#include <lastdoor/locks/postgres.hpp>

#include "support/pg_guarded_table.hpp"

namespace lastdoor::support {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using PostgresGuard = guarded_table;

TEST_F(PostgresGuard, F13_AStatementWithoutATokenIsRefused) {
  for (const char* sql : {
           "UPDATE t SET v = 'x' WHERE id = 1;",
           "UPDATE t SET fence_token = fence_token;",
           "UPDATE t SET fence_token = 99;",
           "UPDATE t SET id = 2;",
           "INSERT INTO t VALUES (2, 'x');",
           "INSERT INTO t (id, v, fence_token) VALUES (2, 'x', 99);",
           "INSERT INTO t VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET "
           "v = 'x';",
           "DELETE FROM t;",
           "COPY t FROM STDIN;\n2\tx\t0\n\\.",
           "MERGE INTO t USING (VALUES (1)) n (id) ON t.id = n.id "
           "WHEN MATCHED THEN UPDATE SET v = 'x';",
           "MERGE INTO t USING (VALUES (1)) n (id) ON t.id = n.id "
           "WHEN MATCHED THEN DELETE;",
       }) {
    EXPECT_THAT(db_->shell(sql), fails_with("LD002")) << sql;
    EXPECT_EQ(rows(), "1a/9") << sql;
  }
}

TEST_F(PostgresGuard, G4_AStaleTokenIsRefusedWhateverTheStatement) {
  // The claim itself is refused, so the token comes in by settings.
  const std::string stale =
      "BEGIN; SET LOCAL lastdoor.resource = 'stock'; "
      "SET LOCAL lastdoor.token = 8;\n";
  for (const char* sql : {
           "UPDATE t SET v = 'x';",
           "INSERT INTO t VALUES (2, 'x');",
           "INSERT INTO t VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET "
           "v = 'x';",
           "DELETE FROM t;",
           "COPY t FROM STDIN;\n2\tx\t0\n\\.",
           "MERGE INTO t USING (VALUES (1)) n (id) ON t.id = n.id "
           "WHEN MATCHED THEN DELETE;",
       }) {
    const auto told = db_->shell(stale + sql + "\nCOMMIT;");
    EXPECT_THAT(told, fails_with("LD001")) << sql;
    EXPECT_THAT(told.text, HasSubstr("9")) << sql;
    EXPECT_EQ(rows(), "1a/9") << sql;
  }
  EXPECT_THAT(db_->shell_as(eight, ""), fails_with("LD001"));
}

// A token that is the newest of its own resource, but older than the row's.
TEST_F(PostgresGuard, ARowOfANewerTokenIsKept) {
  const testing::terms other{.token = 3, .resource = "other"};
  EXPECT_THAT(db_->shell_as(other, "UPDATE t SET v = 'x';"),
              fails_with("LD001"));
  EXPECT_THAT(db_->shell_as(other, "DELETE FROM t;"), fails_with("LD001"));
  EXPECT_EQ(rows(), "1a/9");
}

TEST_F(PostgresGuard, TheFenceIsStampedWhateverTheStatementSays) {
  EXPECT_THAT(db_->shell_as(nine, "UPDATE t SET fence_token = 1000;"),
              passes());
  EXPECT_EQ(rows(), "1a/9");
  EXPECT_THAT(db_->shell_as({.token = 10, .owner = 'b'},
                            "UPDATE t SET v = 'b', fence_token = 0;"
                            "INSERT INTO t VALUES (2, 'c', 7);"),
              passes());
  EXPECT_EQ(rows(), "1b/10 2c/10");
}

TEST_F(PostgresGuard, OtherTriggersDoNotChangeTheStamp) {
  db_->run(
      "CREATE FUNCTION meddle() RETURNS trigger LANGUAGE plpgsql AS "
      "$$ BEGIN NEW.fence_token := 0; RETURN NEW; END $$");
  db_->run(
      "CREATE TRIGGER zz_meddle BEFORE UPDATE ON t FOR EACH ROW "
      "EXECUTE FUNCTION meddle()");
  EXPECT_THAT(db_->shell_as(nine, "UPDATE t SET v = 'b';"), passes());
  EXPECT_EQ(rows(), "1b/9");
}

TEST_F(PostgresGuard, F11_ANullFenceCannotComeBack) {
  EXPECT_THAT(db_->shell("UPDATE t SET fence_token = NULL;"),
              fails_with("LD002"));
  EXPECT_THAT(db_->shell_as(nine, "UPDATE t SET fence_token = NULL;"),
              passes());
  EXPECT_EQ(rows(), "1a/9");
}

TEST_F(PostgresGuard, P17_TruncateIsRefusedToEverybody) {
  EXPECT_THAT(db_->shell("TRUNCATE t;"), fails_with("LD003"));
  EXPECT_THAT(db_->shell_as(nine, "TRUNCATE t;"), fails_with("LD003"));
  db_->run("CREATE TABLE parent (id integer PRIMARY KEY)");
  db_->run("ALTER TABLE t ADD FOREIGN KEY (id) REFERENCES parent NOT VALID");
  EXPECT_THAT(db_->shell_as(nine, "TRUNCATE parent CASCADE;"),
              fails_with("LD003"));
  EXPECT_EQ(rows(), "1a/9");
}

TEST_F(PostgresGuard, P17_F05_ADeletedRowDoesNotComeBackByCopy) {
  ASSERT_THAT(db_->shell_as({.token = 10, .owner = 'b'}, "DELETE FROM t;"),
              passes());
  EXPECT_THAT(db_->shell("BEGIN; SET LOCAL lastdoor.resource = 'stock'; "
                         "SET LOCAL lastdoor.token = 9;\n"
                         "COPY t FROM STDIN;\n1\ta\t9\n\\.\nCOMMIT;"),
              fails_with("LD001"));
  EXPECT_EQ(rows(), "none");
}

TEST_F(PostgresGuard, F14_AKeyChangeIsAWriteLikeAnyOther) {
  EXPECT_THAT(db_->shell("UPDATE t SET id = 2;"), fails_with("LD002"));
  const testing::terms other{.token = 4, .resource = "other"};
  ASSERT_THAT(db_->shell_as(other, "INSERT INTO t VALUES (5, 'e');"), passes());
  // Onto the key of a row with a higher fence: the row stays.
  EXPECT_THAT(db_->shell_as(other, "UPDATE t SET id = 1 WHERE id = 5;"),
              fails_with("23505"));
  EXPECT_THAT(db_->shell_as(other, "UPDATE t SET id = 6 WHERE id = 1;"),
              fails_with("LD001"));
  EXPECT_EQ(rows(), "1a/9 5e/4");
}

TEST_F(PostgresGuard, ACascadeIntoAGuardedTableNeedsATokenToo) {
  db_->run("CREATE TABLE parent (id integer PRIMARY KEY)");
  db_->run("INSERT INTO parent VALUES (1)");
  db_->run(
      "ALTER TABLE t ADD FOREIGN KEY (id) REFERENCES parent "
      "ON DELETE CASCADE");
  EXPECT_THAT(db_->shell("DELETE FROM parent;"), fails_with("LD002"));
  const testing::terms other{.token = 3, .resource = "other"};
  EXPECT_THAT(db_->shell_as(other, "DELETE FROM parent;"), fails_with("LD001"));
  EXPECT_EQ(rows(), "1a/9");
  EXPECT_THAT(db_->shell_as(nine, "DELETE FROM parent;"), passes());
  EXPECT_EQ(rows(), "none");
}

TEST_F(PostgresGuard, SetLocalCountsWhileItsTokenIsTheMark) {
  const std::string local =
      "BEGIN; SET LOCAL lastdoor.resource = 'stock'; "
      "SET LOCAL lastdoor.token = ";
  EXPECT_THAT(db_->shell(local + "9; UPDATE t SET v = 'b'; COMMIT;"), passes());
  EXPECT_EQ(rows(), "1b/9");
  EXPECT_THAT(db_->shell(local + "10; UPDATE t SET v = 'c'; COMMIT;"),
              fails_with("LD002"))
      << "a number that nobody was granted must not raise the mark";
  for (const char* bad : {"0", "-1", "''", "'abc'", "'9 '", "'+9'", "'09'",
                          "99999999999999999999", "NULL"}) {
    const auto set = std::string{bad} == "NULL"
                         ? std::string{"BEGIN; SET LOCAL lastdoor.resource = "
                                       "'stock';"}
                         : local + bad + ";";
    EXPECT_THAT(db_->shell(set + " UPDATE t SET v = 'c'; COMMIT;"),
                fails_with("LD002"))
        << bad;
  }
  EXPECT_EQ(rows(), "1b/9");
}

TEST_F(PostgresGuard, SettingsInFullAreAClaim) {
  const std::string set =
      "BEGIN; SET LOCAL lastdoor.resource = 'stock'; "
      "SET LOCAL lastdoor.token = 10; SET LOCAL lastdoor.source = 'test/one'; "
      "SET LOCAL lastdoor.owner = '" +
      std::string(40, 'b') + "'; ";
  EXPECT_THAT(db_->shell(set + "UPDATE t SET v = 'b'; COMMIT;"), passes());
  EXPECT_EQ(rows(), "1b/10");
  EXPECT_EQ(db_->value("SELECT token FROM lastdoor.marks"), "10");
  // The same token of another owner.
  EXPECT_THAT(
      db_->shell("BEGIN; SET LOCAL lastdoor.resource = 'stock'; "
                 "SET LOCAL lastdoor.token = 10; SET LOCAL "
                 "lastdoor.source = 'test/one'; SET LOCAL "
                 "lastdoor.owner = '" +
                 std::string(40, 'c') + "'; UPDATE t SET v = 'c'; COMMIT;"),
      fails_with("LD001"));
}

// What is left in a pooled session must not open the door for strangers.
TEST_F(PostgresGuard, ASessionWideSettingOpensNoLaterTransaction) {
  EXPECT_THAT(db_->shell("SET lastdoor.resource = 'stock';"
                         "SET lastdoor.token = 9;"
                         "UPDATE t SET v = 'b';"
                         "UPDATE t SET v = 'c';"),
              fails_with("LD002"));
  EXPECT_EQ(rows(), "1b/9");
  // A claim ends with its transaction, also when it was rolled back.
  const auto present = "SELECT lastdoor.present(" + arguments_of(nine) + ");";
  EXPECT_THAT(db_->shell("BEGIN;" + present + "COMMIT; UPDATE t SET v = 'd';"),
              fails_with("LD002"));
  EXPECT_THAT(
      db_->shell("BEGIN;" + present + "ROLLBACK; UPDATE t SET v = 'd';"),
      fails_with("LD002"));
  EXPECT_THAT(db_->shell("BEGIN; SAVEPOINT s;" + present +
                         "ROLLBACK TO s; UPDATE t SET v = 'd'; COMMIT;"),
              fails_with("LD002"));
  // Evidence of another transaction, set by hand.
  EXPECT_THAT(db_->shell("SET lastdoor.evidence = '1 9 stock';"
                         "UPDATE t SET v = 'd';"),
              fails_with("LD002"));
  EXPECT_EQ(rows(), "1b/9");
}

TEST_F(PostgresGuard, ARefusedClaimTakesTheEvidenceAway) {
  EXPECT_THAT(db_->shell_as(nine, "SELECT verdict FROM lastdoor.claim(" +
                                      arguments_of(eight) +
                                      ");\nUPDATE t SET v = 'b';"),
              fails_with("LD002"));
  EXPECT_EQ(rows(), "1a/9");
}

TEST_F(PostgresGuard, P18_TheReplicaRoleDoesNotGetAroundIt) {
  const std::string replica = "SET session_replication_role = replica;";
  EXPECT_THAT(db_->shell(replica + "UPDATE t SET v = 'x';"),
              fails_with("LD002"));
  EXPECT_THAT(db_->shell(replica + "TRUNCATE t;"), fails_with("LD003"));
  EXPECT_EQ(rows(), "1a/9");
}

TEST_F(PostgresGuard, P18_AGuardThatIsOffOrNotAlwaysIsReported) {
  EXPECT_THAT(postgres::migrate_verify(db_->url()).value(), IsEmpty());
  db_->run("ALTER TABLE t DISABLE TRIGGER zzz_lastdoor_guard");
  db_->run("ALTER TABLE t ENABLE TRIGGER zzz_lastdoor_truncate");
  const auto found = postgres::migrate_verify(db_->url()).value();
  ASSERT_EQ(found.size(), 2U);
  EXPECT_THAT(found[0], AllOf(HasSubstr("zzz_lastdoor_guard"),
                              HasSubstr("public.t"), HasSubstr("off")));
  EXPECT_THAT(found[1],
              AllOf(HasSubstr("zzz_lastdoor_truncate"), HasSubstr("ALWAYS")));
  // The next run repairs it.
  db_->fence("t", guard_mode::strict);
  EXPECT_THAT(postgres::migrate_verify(db_->url()).value(), IsEmpty());
}

TEST_F(PostgresGuard, P21_SearchPathAndLookAlikesChangeNothing) {
  const std::string hostile =
      "SET search_path = '';"
      "CREATE TEMP TABLE marks (resource text, token bigint, owner text, "
      "source text);"
      "CREATE FUNCTION pg_temp.split_part(text, text, integer) RETURNS text "
      "LANGUAGE sql AS 'SELECT ''9''';"
      "SET search_path = pg_temp, public, pg_catalog;";
  EXPECT_THAT(db_->shell(hostile + "UPDATE public.t SET v = 'x';"),
              fails_with("LD002"));
  EXPECT_THAT(db_->shell(hostile + "BEGIN; SELECT lastdoor.present(" +
                         arguments_of(nine) +
                         "); UPDATE public.t SET v = 'b'; COMMIT;"),
              passes());
  EXPECT_EQ(rows(), "1b/9");
}

TEST_F(PostgresGuard, P21_ADumpCanBeRestored) {
  const auto token = [&] {
    auto locks = open_postgres_locks(db_->url()).value();
    return locks.acquire("stock", {.ttl = 10s}).value().token().value();
  }();
  const temp_folder folder{"dump"};
  const auto file = (folder.path() / "dump.sql").string();
  run_program({"/usr/bin/pg_dump", "--file=" + file, "--dbname=" + db_->url()},
              folder.path() / "log");
  const temp_database copy{db_->server()};
  EXPECT_THAT(psql(copy.url(), text_of(file)), passes());
  EXPECT_EQ(copy.value("SELECT v || fence_token FROM t"), "a9");
  EXPECT_EQ(copy.value("SELECT token FROM lastdoor.marks"), "9");
  EXPECT_THAT(psql(copy.url(), "UPDATE t SET v = 'x';"), fails_with("LD002"));
  EXPECT_THAT(postgres::migrate_verify(copy.url()).value(), IsEmpty());
  EXPECT_THAT(postgres::migrate_up(copy.url()).value(), IsEmpty());
  // It goes on where the original was: older tokens are stale, and the next
  // one is higher than the last.
  auto store = open_postgres_store(copy.url()).value();
  EXPECT_THAT(store.claim(testing::granted(eight)),
              testing::FailsWith(errc::stale_token));
  auto locks = open_postgres_locks(copy.url()).value();
  const auto lease = locks.acquire("stock", {.ttl = 10s}).value();
  EXPECT_GT(lease.token().value(), token);
}

TEST_F(PostgresGuard, APlainRoleNeedsOneRightAndCannotTouchMarks) {
  db_->run("DROP ROLE IF EXISTS clerk");
  db_->run("CREATE ROLE clerk LOGIN");
  db_->run("GRANT SELECT, INSERT, UPDATE, DELETE ON t TO clerk");
  const std::string clerk = "SET ROLE clerk;";
  // Without the right: refused with the guard's own words.
  EXPECT_THAT(db_->shell(clerk + "UPDATE t SET v = 'x';"), fails_with("LD002"));
  db_->run("GRANT USAGE ON SCHEMA lastdoor TO clerk");
  EXPECT_THAT(
      db_->shell(clerk + "BEGIN; SELECT lastdoor.present(" +
                 arguments_of(nine) + "); UPDATE t SET v = 'b'; COMMIT;"),
      passes());
  for (const char* sql :
       {"UPDATE lastdoor.marks SET token = 99;",
        "INSERT INTO lastdoor.marks VALUES ('x', 1, 'a', 'b');",
        "DELETE FROM lastdoor.marks;", "TRUNCATE lastdoor.marks;",
        "INSERT INTO lastdoor.sources VALUES ('x');",
        "SELECT lastdoor.hand_over('test/one', 'test/two');"}) {
    EXPECT_THAT(db_->shell(clerk + sql), fails_with("42501")) << sql;
  }
  db_->run("DROP OWNED BY clerk");
  db_->run("DROP ROLE clerk");
}

TEST_F(PostgresGuard, AuditRecordsAndLetsPass) {
  db_->fence("t", guard_mode::audit);
  db_->run("UPDATE t SET v = 'b' WHERE id = 1");
  EXPECT_EQ(rows(), "1b/9");
  EXPECT_THAT(db_->shell("BEGIN; SET LOCAL application_name = 'old job';"
                         "INSERT INTO t SELECT g, 'x' FROM "
                         "generate_series(2, 50) g;"
                         "UPDATE t SET v = 'y' WHERE id > 1;"
                         "UPDATE t SET v = 'z' WHERE id > 1;"
                         "COMMIT; TRUNCATE t;"),
              passes());
  EXPECT_EQ(
      db_->query("SELECT operation, reason, table_name FROM lastdoor.audit "
                 "ORDER BY id"),
      (support::rows{{"UPDATE", "LD002", "public.t"},
                     {"INSERT", "LD002", "public.t"},
                     {"UPDATE", "LD002", "public.t"},
                     {"TRUNCATE", "LD003", "public.t"}}));
  EXPECT_EQ(db_->value("SELECT application FROM lastdoor.audit WHERE "
                       "operation = 'INSERT'"),
            "old job");
  EXPECT_THAT(db_->value("SELECT query FROM lastdoor.audit ORDER BY id "
                         "LIMIT 1"),
              HasSubstr("UPDATE t SET v = 'b'"));
  // A stale token passes too, and is told apart.
  ASSERT_THAT(db_->shell_as(nine, "INSERT INTO t VALUES (1, 'a');"), passes());
  EXPECT_THAT(
      db_->shell_as({.token = 3, .resource = "other"}, "UPDATE t SET v = 'b';"),
      passes());
  EXPECT_EQ(db_->value("SELECT reason FROM lastdoor.audit ORDER BY id DESC "
                       "LIMIT 1"),
            "LD001");
  EXPECT_EQ(rows(), "1b/9") << "the fence does not fall in audit mode";
}

TEST_F(PostgresGuard, G3_NoHandLowersAMark) {
  const std::string owner(40, 'a');
  for (const std::string role :
       {"", "SET session_replication_role = replica;"}) {
    for (const std::string& sql : {
             std::string{"UPDATE lastdoor.marks SET token = 1;"},
             std::string{"UPDATE lastdoor.marks SET token = token - 1;"},
             std::string{"UPDATE lastdoor.marks SET resource = 'moved';"},
             std::string{"UPDATE lastdoor.marks SET source = 'moved';"},
             "UPDATE lastdoor.marks SET owner = '" + std::string(40, 'b') +
                 "';",
             std::string{"DELETE FROM lastdoor.marks;"},
             std::string{"TRUNCATE lastdoor.marks;"},
             std::string{"TRUNCATE lastdoor.sources CASCADE;"},
             std::string{"DELETE FROM lastdoor.sources;"},
             "INSERT INTO lastdoor.marks VALUES ('stock', 1, '" + owner +
                 "', 'test/one') ON CONFLICT (resource) DO UPDATE SET "
                 "token = 1;",
             std::string{"MERGE INTO lastdoor.marks m USING (VALUES (1)) n ON "
                         "true WHEN MATCHED THEN DELETE;"},
         }) {
      EXPECT_THAT(db_->shell(role + sql), fails_with("LD003")) << role << sql;
    }
  }
  EXPECT_EQ(db_->value("SELECT token FROM lastdoor.marks"), "9");
}

TEST_F(PostgresGuard, F03_TokensThatAreNoneAreRefusedByTheLedger) {
  for (const char* token : {"0", "-1", "NULL", "9007199254740992"}) {
    EXPECT_EQ(db_->value("SELECT verdict FROM lastdoor.claim('stock', " +
                         std::string{token} + ", '" + std::string(40, 'a') +
                         "', 'test/one')"),
              "invalid");
    EXPECT_THAT(
        db_->shell("SELECT lastdoor.present('stock', " + std::string{token} +
                   ", '" + std::string(40, 'a') + "', 'test/one');"),
        fails_with("LD002"));
  }
  for (const char* words :
       {"'', 1, 'OWNER', 's'", "NULL, 1, 'OWNER', 's'", "'r', 1, '', 's'",
        "'r', 1, 'x', 's'", "'r', 1, NULL, 's'", "'r', 1, 'OWNER', ''",
        "'r', 1, 'OWNER', NULL"}) {
    std::string text{words};
    if (const auto at = text.find("OWNER"); at != std::string::npos) {
      text.replace(at, 5, std::string(40, 'a'));
    }
    EXPECT_EQ(db_->value("SELECT verdict FROM lastdoor.claim(" + text + ")"),
              "invalid")
        << text;
  }
  EXPECT_EQ(db_->value("SELECT count(*) FROM lastdoor.marks"), "1");
}

}  // namespace
}  // namespace lastdoor::support
