// The test servers themselves: they start, crash, recover, change timeline.
#include "support/temp_postgres.hpp"

#include "support/temp_pgbouncer.hpp"

namespace lastdoor::support {
namespace {

TEST(TempPostgres, GivesEachTestADatabaseOfItsOwn) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database a;
  const temp_database b;
  a.query("CREATE TABLE t (i int)");
  EXPECT_EQ(a.value("SELECT count(*) FROM pg_tables WHERE tablename = 't'"),
            "1");
  EXPECT_EQ(b.value("SELECT count(*) FROM pg_tables WHERE tablename = 't'"),
            "0");
  EXPECT_EQ(sql_session{a.tcp_url()}.value("SELECT 1"), "1");
}

TEST(TempPostgres, KeepsWhatWasCommittedWhenItIsKilled) {
  LASTDOOR_NEEDS_POSTGRES();
  temp_postgres server;
  const temp_database db{server};
  db.query("CREATE TABLE t (i int)");
  db.query("INSERT INTO t VALUES (7)");
  server.kill_hard();
  EXPECT_THROW(sql_session{db.url()}, std::runtime_error);
  server.start();
  EXPECT_EQ(db.value("SELECT i FROM t"), "7");
}

TEST(TempPostgres, RestartsOnANewTimeline) {
  LASTDOOR_NEEDS_POSTGRES();
  temp_postgres server;
  const temp_database db{server};
  const std::string timeline =
      "SELECT substr(pg_walfile_name(pg_current_wal_insert_lsn()), 1, 8)";
  EXPECT_EQ(db.value(timeline), "00000001");
  server.restart();
  EXPECT_EQ(db.value(timeline), "00000001");
  server.restart_on_new_timeline();
  EXPECT_EQ(db.value(timeline), "00000002");
}

TEST(TempPgbouncer, PoolsByTransaction) {
  LASTDOOR_NEEDS_PGBOUNCER();
  const temp_database db;
  const temp_pgbouncer bouncer{db.server(), {.pool_size = 1}};
  sql_session a{bouncer.url(db.name())};
  sql_session b{bouncer.url(db.name())};
  // One server session behind two clients.
  EXPECT_EQ(a.value("SELECT pg_backend_pid()"),
            b.value("SELECT pg_backend_pid()"));
}

}  // namespace
}  // namespace lastdoor::support
