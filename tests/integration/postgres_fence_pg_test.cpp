// add_fence and plan_fence: which tables, and by which steps.
#include <gmock/gmock.h>

#include <lastdoor/testing/matchers.hpp>
#include <thread>

#include "support/pg_fence.hpp"

namespace lastdoor::support {
namespace {

using namespace std::chrono_literals;
using lastdoor::testing::FailsWith;
using lastdoor::testing::IsOk;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

using PostgresFence = fence_test;

TEST_F(PostgresFence, AddsColumnThenGuardsAndSwitchesAndTakesThemAway) {
  db_->run("CREATE TABLE t (id integer PRIMARY KEY)");
  db_->run("INSERT INTO t SELECT generate_series(1, 10)");
  ASSERT_THAT(add({.table = "t"}), IsOk());
  EXPECT_EQ(fence_of("t"), fenced_only);
  EXPECT_EQ(db_->value("SELECT sum(fence_token) FROM t"), "0");
  ASSERT_THAT(add({.table = "t", .guard = guard_mode::strict}), IsOk());
  EXPECT_EQ(fence_of("t"), strictly);
  ASSERT_THAT(add({.table = "t", .guard = guard_mode::audit}), IsOk());
  EXPECT_THAT(fence_of("t"), HasSubstr("audit\\000fence_token"));
  ASSERT_THAT(add({.table = "t", .guard = guard_mode::none}), IsOk());
  EXPECT_EQ(fence_of("t"), fenced_only);
}

TEST_F(PostgresFence, F13_AGuardIsNotTakenOffBySilence) {
  db_->run("CREATE TABLE t (id integer PRIMARY KEY)");
  ASSERT_THAT(add({.table = "t"}), IsOk());
  ASSERT_THAT(add({.table = "t"}), IsOk());
  ASSERT_THAT(add({.table = "t", .guard = guard_mode::strict}), IsOk());
  EXPECT_THAT(add({.table = "t"}), FailsWith(errc::invalid_argument));
  EXPECT_EQ(fence_of("t"), strictly);
}

TEST_F(PostgresFence, APlanWritesNothingAndIsEmptyOnceApplied) {
  db_->run("CREATE TABLE t (id integer PRIMARY KEY)");
  const fence_request strict{.table = "t", .guard = guard_mode::strict};
  const auto first = plan(strict).value();
  EXPECT_GE(first.statements.size(), 4U);
  EXPECT_THAT(first.notes, Contains(HasSubstr("ACCESS EXCLUSIVE")));
  EXPECT_EQ(db_->value("SELECT count(*) FROM pg_trigger WHERE tgrelid = "
                       "'t'::regclass"),
            "0");
  // The SQL may be pasted into any other tool.
  for (const auto& sql : first.statements) {
    db_->run(sql);
  }
  EXPECT_EQ(fence_of("t"), strictly);
  EXPECT_THAT(plan(strict).value().statements, IsEmpty());
  EXPECT_THAT(add(strict).value().statements, IsEmpty());
}

TEST_F(PostgresFence, C05_ARunThatStoppedAnywhereIsCompletedByTheNext) {
  const fence_request strict{.table = "t", .guard = guard_mode::strict};
  db_->run("CREATE TABLE t (id integer PRIMARY KEY)");
  const auto steps = plan(strict).value().statements.size();
  for (std::size_t stop = 0; stop <= steps; ++stop) {
    db_->run("DROP TABLE t");
    db_->run("CREATE TABLE t (id integer PRIMARY KEY)");
    const auto all = plan(strict).value().statements;
    for (std::size_t i = 0; i < stop; ++i) {
      db_->run(all[i]);
    }
    ASSERT_THAT(add(strict), IsOk()) << "after " << stop;
    EXPECT_EQ(fence_of("t"), strictly) << "after " << stop;
  }
}

TEST_F(PostgresFence, C06_TenAtOnceEndInTheSameTable) {
  db_->run("CREATE TABLE t (id integer PRIMARY KEY)");
  std::vector<std::thread> all;
  for (int i = 0; i < 10; ++i) {
    all.emplace_back([&] {
      EXPECT_THAT(add({.table = "t", .guard = guard_mode::strict}), IsOk());
    });
  }
  for (auto& t : all) {
    t.join();
  }
  EXPECT_EQ(fence_of("t"), strictly);
}

TEST_F(PostgresFence, C08_NamesAreQuotedAndResolvedToOneTable) {
  db_->run("CREATE SCHEMA s1");
  db_->run("CREATE SCHEMA \"S 2\"");
  for (const char* table :
       {"\"Order\"", "\"a b\"", "\"x\"\"y\"", "\"t; DROP TABLE u; --\"",
        "\"it's\"", "s1.t", "\"S 2\".t", "u"}) {
    db_->run(std::string{"CREATE TABLE "} + table +
             " (id integer PRIMARY KEY)");
  }
  const auto strict = [](std::string table, std::string schema = "") {
    return fence_request{.table = std::move(table),
                         .schema = std::move(schema),
                         .guard = guard_mode::strict};
  };
  for (const char* table :
       {"Order", "a b", "x\"y", "t; DROP TABLE u; --", "it's"}) {
    EXPECT_THAT(add(strict(table)), IsOk()) << table;
  }
  const auto second = add(strict("t", "S 2"));
  ASSERT_THAT(second, IsOk());
  EXPECT_THAT(second->notes, Contains(HasSubstr("\"S 2\".\"t\" (oid ")));
  EXPECT_EQ(fence_of("\"S 2\".t"), strictly);
  EXPECT_EQ(fence_of("\"it''s\""), strictly);
  EXPECT_EQ(db_->value("SELECT count(*) FROM pg_attribute WHERE attname = "
                       "'fence_token' AND attrelid IN ('s1.t'::regclass, "
                       "'u'::regclass)"),
            "0");
  // Folding is psql's, not ours: the name is taken as it is.
  EXPECT_THAT(add(strict("order")), FailsWith(errc::schema_mismatch));
  EXPECT_THAT(add(strict("s1.t")), FailsWith(errc::schema_mismatch));
  EXPECT_THAT(add(strict("")), FailsWith(errc::invalid_argument));
  EXPECT_THAT(psql(db_->url(),
                   "UPDATE \"it's\" SET id = 1; INSERT INTO "
                   "\"it's\" VALUES (1);")
                  .text,
              HasSubstr("LD002"));
}

TEST_F(PostgresFence, C08_WhatIsNoOrdinaryTableIsRefusedWithTheReason) {
  db_->run("CREATE TABLE t (id integer PRIMARY KEY)");
  db_->run("CREATE VIEW v AS SELECT * FROM t");
  db_->run("CREATE MATERIALIZED VIEW m AS SELECT * FROM t");
  db_->run("CREATE SEQUENCE q");
  db_->run("CREATE EXTENSION file_fdw");
  db_->run("CREATE SERVER files FOREIGN DATA WRAPPER file_fdw");
  db_->run(
      "CREATE FOREIGN TABLE f (id integer) SERVER files "
      "OPTIONS (filename '/dev/null')");
  db_->run("CREATE TABLE p (id integer) PARTITION BY LIST (id)");
  db_->run("CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1)");
  const auto why = [&](fence_request r) {
    r.guard = guard_mode::strict;
    const auto refused = plan(r);
    EXPECT_THAT(refused, FailsWith(errc::invalid_argument)) << r.table;
    return refused ? std::string{} : refused.error().text();
  };
  EXPECT_THAT(why({.table = "v"}), HasSubstr("view"));
  EXPECT_THAT(why({.table = "m"}), HasSubstr("view"));
  EXPECT_THAT(why({.table = "f"}), HasSubstr("foreign"));
  EXPECT_THAT(why({.table = "q"}), HasSubstr("no table"));
  EXPECT_THAT(why({.table = "t_pkey"}), HasSubstr("no table"));
  EXPECT_THAT(why({.table = "p1"}), HasSubstr("partitioned table"));
  EXPECT_THAT(why({.table = "pg_class"}), HasSubstr("belongs"));
  EXPECT_THAT(why({.table = "tables", .schema = "information_schema"}),
              HasSubstr("belongs"));
  EXPECT_THAT(why({.table = "marks", .schema = "lastdoor"}),
              HasSubstr("belongs"));
}

TEST_F(PostgresFence, P27_AColumnOfTheWrongKindIsRefusedWithWhatToDo) {
  struct sample {
    const char* column;
    const char* says;
  };
  for (const auto& [column, says] : {
           sample{"integer NOT NULL DEFAULT 0", "TYPE bigint"},
           sample{"smallint", "TYPE bigint"},
           sample{"text NOT NULL DEFAULT '0'", "TYPE bigint"},
           sample{"numeric NOT NULL DEFAULT 0", "TYPE bigint"},
           sample{"bigint DEFAULT 0", "SET NOT NULL"},
           sample{"bigserial", "SET DEFAULT 0"},
           sample{"bigint NOT NULL DEFAULT 7", "SET DEFAULT 0"},
           sample{"bigint GENERATED ALWAYS AS IDENTITY", "generated"},
           sample{"bigint GENERATED ALWAYS AS (id + 1) STORED", "generated"},
       }) {
    db_->run("DROP TABLE IF EXISTS t");
    db_->run(
        std::string{"CREATE TABLE t (id integer PRIMARY KEY, fence_token "} +
        column + ")");
    const auto refused = add({.table = "t"});
    EXPECT_THAT(refused, FailsWith(errc::schema_mismatch)) << column;
    if (!refused) {
      EXPECT_THAT(refused.error().text(), HasSubstr(says)) << column;
    }
  }
  db_->run("DROP TABLE t");
  db_->run(
      "CREATE TABLE t (id integer PRIMARY KEY, fence_token bigint NOT NULL)");
  EXPECT_THAT(add({.table = "t"}), IsOk());
  EXPECT_EQ(fence_of("t"), fenced_only);
}

TEST_F(PostgresFence, ACustomColumnIsGuardedTheSame) {
  db_->run("CREATE TABLE t (id integer PRIMARY KEY, v jsonb, b bytea)");
  ASSERT_THAT(
      add({.table = "t", .column = "The Fence", .guard = guard_mode::strict}),
      IsOk());
  EXPECT_EQ(psql(db_->url(), "INSERT INTO t VALUES (1);").status, 3);
  EXPECT_EQ(db_->shell_as({.token = 7},
                          "INSERT INTO t VALUES (1, '{\"a\": 1}', '\\x00ff');"
                          "UPDATE t SET v = v || '{\"b\": null}';")
                .status,
            0);
  EXPECT_EQ(db_->query("SELECT v, b, \"The Fence\" FROM t"),
            (rows{{"{\"a\": 1, \"b\": null}", "\\x00ff", "7"}}));
  const testing::terms other{.token = 3, .resource = "other"};
  EXPECT_THAT(db_->shell_as(other, "DELETE FROM t;").text, HasSubstr("LD001"));
  EXPECT_THAT(postgres::migrate_verify(db_->url()).value(), IsEmpty());
}

TEST_F(PostgresFence, P19_PartitionedTablesAreGuardedThroughout) {
  db_->run(
      "CREATE TABLE t (id integer, region integer, v text, PRIMARY KEY (id, "
      "region)) PARTITION BY LIST (region)");
  db_->run("CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1)");
  db_->run(
      "CREATE TABLE t2 PARTITION OF t FOR VALUES IN (2) PARTITION BY LIST "
      "(id)");
  db_->run("CREATE TABLE t21 PARTITION OF t2 DEFAULT");
  const fence_request strict{.table = "t", .guard = guard_mode::strict};
  ASSERT_THAT(add(strict), IsOk());
  EXPECT_THAT(plan(strict).value().statements, IsEmpty());
  EXPECT_THAT(postgres::migrate_verify(db_->url()).value(), IsEmpty());
  ASSERT_EQ(
      db_->shell_as({.token = 5}, "INSERT INTO t VALUES (1, 1, 'a');").status,
      0);
  // A move is a delete and an insert to Postgres, and one write to us.
  const auto move = "UPDATE t SET region = 3 - region;";
  EXPECT_THAT(db_->shell(move).text, HasSubstr("LD002"));
  EXPECT_THAT(db_->shell_as({.token = 3, .resource = "other"}, move).text,
              HasSubstr("LD001"));
  EXPECT_EQ(db_->shell_as({.token = 6, .owner = 'b'}, move).status, 0);
  EXPECT_EQ(db_->value("SELECT tableoid::regclass || '/' || fence_token "
                       "FROM t"),
            "t21/6");
  for (const char* sql :
       {"UPDATE t21 SET v = 'x';", "INSERT INTO t1 VALUES (9, 1, 'x');",
        "TRUNCATE t21;", "TRUNCATE t2;", "TRUNCATE t;",
        "SET session_replication_role = replica; DELETE FROM t21;"}) {
    EXPECT_THAT(db_->shell(sql).text, HasSubstr("LD00")) << sql;
  }
  EXPECT_EQ(db_->value("SELECT count(*) FROM t"), "1");
}

TEST_F(PostgresFence, P19_APartitionMadeLaterIsGuarded) {
  db_->run("CREATE TABLE t (id integer, v text) PARTITION BY LIST (id)");
  const fence_request strict{.table = "t", .guard = guard_mode::strict};
  ASSERT_THAT(add(strict), IsOk());
  db_->run("CREATE TABLE t1 PARTITION OF t FOR VALUES IN (1)");
  db_->run(
      "CREATE TABLE t2 (id integer, v text, fence_token bigint NOT NULL "
      "DEFAULT 0)");
  db_->run(
      "ALTER TABLE t2 ADD CONSTRAINT lastdoor_fence_range CHECK "
      "(fence_token BETWEEN 0 AND 9007199254740991)");
  db_->run("ALTER TABLE t ATTACH PARTITION t2 FOR VALUES IN (2)");
  for (const char* table : {"t1", "t2"}) {
    const std::string name{table};
    const auto id = name.substr(1);
    EXPECT_THAT(
        db_->shell("INSERT INTO " + name + " VALUES (" + id + ");").text,
        HasSubstr("LD002"));
    EXPECT_THAT(db_->shell("SET session_replication_role = replica; "
                           "INSERT INTO " +
                           name + " VALUES (" + id + ");")
                    .text,
                HasSubstr("LD002"));
    EXPECT_EQ(
        db_->shell_as({.token = 5}, "INSERT INTO t VALUES (" + id + ", 'a');")
            .status,
        0);
  }
  // TRUNCATE triggers are not copied: that is said, and repaired by a rerun.
  EXPECT_THAT(postgres::migrate_verify(db_->url()).value(),
              Contains(HasSubstr("TRUNCATE")));
  ASSERT_THAT(add(strict), IsOk());
  EXPECT_THAT(postgres::migrate_verify(db_->url()).value(), IsEmpty());
  EXPECT_THAT(db_->shell("TRUNCATE t1;").text, HasSubstr("LD003"));
}

TEST_F(PostgresFence, P19_OldStyleHeirsAreReported) {
  db_->run("CREATE TABLE t (id integer PRIMARY KEY)");
  db_->run("CREATE TABLE heir () INHERITS (t)");
  const auto done = add({.table = "t", .guard = guard_mode::strict});
  ASSERT_THAT(done, IsOk());
  EXPECT_THAT(done->notes, Contains(HasSubstr("heir")));
  EXPECT_THAT(postgres::migrate_verify(db_->url()).value(),
              Contains(HasSubstr("heir")));
  ASSERT_THAT(add({.table = "heir", .guard = guard_mode::strict}), IsOk());
  EXPECT_THAT(postgres::migrate_verify(db_->url()).value(), IsEmpty());
  EXPECT_THAT(db_->shell("INSERT INTO heir VALUES (1);").text,
              HasSubstr("LD002"));
}

TEST_F(PostgresFence, NeedsTheTablesOfLastdoorAndTheRightsOfTheOwner) {
  const temp_database bare{db_->server()};
  (void)bare.query("CREATE TABLE t (id integer)");
  EXPECT_THAT(postgres::add_fence(bare.url(), {.table = "t"}),
              FailsWith(errc::schema_mismatch));
  EXPECT_THAT(add({.table = "nowhere"}), FailsWith(errc::schema_mismatch));
}

TEST_F(PostgresFence, DownTakesGuardsAwayAndLeavesTheFence) {
  db_->run("CREATE TABLE t (id integer PRIMARY KEY)");
  db_->run("CREATE TABLE p (id integer) PARTITION BY LIST (id)");
  db_->run("CREATE TABLE p1 PARTITION OF p FOR VALUES IN (1)");
  db_->fence("t", guard_mode::strict);
  db_->fence("p", guard_mode::strict);
  ASSERT_THAT(postgres::migrate_down(db_->url(), 0, true), IsOk());
  EXPECT_EQ(fence_of("t"), fenced_only);
  EXPECT_EQ(fence_of("p1"), fenced_only);
  db_->run("INSERT INTO t VALUES (1)");
  ASSERT_THAT(postgres::migrate_up(db_->url()), IsOk());
}

}  // namespace
}  // namespace lastdoor::support
