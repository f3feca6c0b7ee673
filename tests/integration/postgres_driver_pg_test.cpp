// The driver layer on a real server: bounded calls, truthful errors.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <limits>
#include <pqxx/nontransaction>
#include <pqxx/result>
#include <thread>

#include "drivers/postgres.hpp"
#include "drivers/postgres_pool.hpp"
#include "drivers/pqxx_loan.hpp"
#include "support/temp_pgbouncer.hpp"
#include "support/temp_postgres.hpp"

namespace lastdoor::postgres_driver {
namespace {

using namespace std::chrono_literals;
using support::eventually;
using support::sql_session;
using support::temp_database;
using ::testing::HasSubstr;
using ::testing::Not;

time_point in(duration d) { return boot_clock()->now() + d; }

connection open(const std::string& url) {
  return connection::open(parse_endpoint(url).value(), {}, in(30s)).value();
}

call write(std::string_view sql, duration limit = 30s) {
  return {sql, "testing", effect::writes, in(limit)};
}
call read(std::string_view sql, duration limit = 30s) {
  return {sql, "testing", effect::reads, in(limit)};
}

std::string sessions_of(const temp_database& db) {
  return sql_session{db.server().url("postgres")}.value(
      "SELECT count(*) FROM pg_stat_activity WHERE datname = '" + db.name() +
      "'");
}

TEST(PostgresEndpoint, ShowsNoPassword) {
  const auto e =
      parse_endpoint("postgresql://u:s3cret@h:1/db?connect_timeout=3");
  ASSERT_TRUE(e);
  EXPECT_EQ(e->shown, "postgres host=h port=1 dbname=db user=u");
  for (const char* bad : {"postgresql://u:s3cret@h:1:2:3/db?nonsense=1",
                          "s3cret", "postgresql://u:pass@s3cret@h/db",
                          "postgresql://u:s3cret", "host=h password='s3cret"}) {
    const auto refused = parse_endpoint(bad);
    if (refused) {
      EXPECT_THAT(refused->shown, Not(HasSubstr("s3cret"))) << bad;
    } else {
      EXPECT_EQ(refused.code(), errc::invalid_argument);
      EXPECT_THAT(refused.error().message(), Not(HasSubstr("s3cret")));
    }
  }
}

TEST(PostgresErrors, RetryableAndFinalOnesAreNeverMixedUp) {
  EXPECT_EQ(code_of("40001"), errc::unavailable);
  EXPECT_EQ(code_of("40P01"), errc::unavailable);
  EXPECT_EQ(code_of("57014"), errc::unavailable);
  EXPECT_EQ(code_of("53300"), errc::unavailable);
  EXPECT_EQ(code_of("55P03"), errc::unavailable);
  EXPECT_EQ(code_of("25006"), errc::unavailable);
  EXPECT_EQ(code_of("2200H"), errc::token_exhausted);
  EXPECT_EQ(code_of("22003"), errc::invalid_argument);
  EXPECT_EQ(code_of("23505"), errc::precondition_failed);
  EXPECT_EQ(code_of("42P01"), errc::schema_mismatch);
  EXPECT_EQ(code_of("42501"), errc::misconfigured);
  EXPECT_EQ(code_of("28P01"), errc::misconfigured);
  EXPECT_EQ(code_of("42601"), errc::invalid_argument);
  EXPECT_EQ(code_of("XX001"), errc::damaged);
  EXPECT_EQ(code_of("LD999"), errc::internal);
}

TEST(PostgresDriver, CarriesEveryKindOfValue) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  auto c = open(db.url());
  arguments with;
  with.add(std::numeric_limits<std::int64_t>::min())
      .add("it's \"\xC3\xA9\" \\")
      .add(value{0.1})
      .add(value{blob{std::byte{0}, std::byte{255}}})
      .add(value{nullptr});
  const auto a =
      c.run(read("SELECT $1::bigint, $2::text, $3::float8, $4::bytea, $5::int"),
            with)
          .value();
  EXPECT_EQ(a.integer(0, 0), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(a.text(0, 1), "it's \"\xC3\xA9\" \\");
  EXPECT_EQ(a.text(0, 2), "0.1");
  EXPECT_EQ(a.text(0, 3), "\\x00ff");
  EXPECT_TRUE(a.is_null(0, 4));
  const auto refused = c.run(read("SELECT $1::text"),
                             arguments{}.add(std::string_view{"a\0b", 3}));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), errc::invalid_argument);
}

TEST(PostgresDriver, NamesTheCauseOfAConnectionThatFails) {
  LASTDOOR_NEEDS_POSTGRES();
  support::temp_postgres server;
  const auto absent = parse_endpoint(server.url("absent")).value();
  const auto no_database = connection::open(absent, {}, in(30s));
  ASSERT_FALSE(no_database);
  EXPECT_EQ(no_database.code(), errc::misconfigured);
  server.stop();
  const auto down = connection::open(absent, {}, in(30s));
  ASSERT_FALSE(down);
  EXPECT_EQ(down.code(), errc::unavailable);
}

TEST(PostgresDriver, AnErrorAtTheCommitIsNoSuccess) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  db.query("CREATE TABLE t (i int UNIQUE DEFERRABLE INITIALLY DEFERRED)");
  auto c = open(db.url());
  ASSERT_TRUE(c.run(write("INSERT INTO t VALUES (1)")));
  // The statement itself succeeds and answers a row; its commit fails.
  const auto again = c.run(write("INSERT INTO t VALUES (1) RETURNING i"));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.code(), errc::precondition_failed);
  EXPECT_EQ(again.error().backend(), "23505");
}

TEST(PostgresDriver, ALostAnswerLeavesADoubtOnlyAfterAWrite) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  for (const bool writes : {true, false}) {
    auto c = open(db.url());
    const auto pid = std::to_string(c.backend_pid());
    std::thread killer{[&] {
      sql_session s{db.url()};
      ASSERT_TRUE(eventually([&] {
        return s.value("SELECT count(*) FROM pg_stat_activity WHERE pid = " +
                       pid + " AND wait_event = 'PgSleep'") == "1";
      }));
      s.query("SELECT pg_terminate_backend(" + pid + ")");
    }};
    const char* sql = "SELECT pg_sleep(60)";
    const auto cut = c.run(writes ? write(sql) : read(sql));
    killer.join();
    ASSERT_FALSE(cut);
    EXPECT_EQ(cut.code(), writes ? errc::in_doubt : errc::unavailable);
    EXPECT_EQ(cut.error().backend(), "57P01");
    EXPECT_FALSE(c.usable());
  }
}

TEST(PostgresDriver, NoticesThatAnIdleSessionWasEnded) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  auto c = open(db.url());
  EXPECT_TRUE(c.usable());
  db.query("SELECT pg_terminate_backend(" + std::to_string(c.backend_pid()) +
           ", 30000)");
  EXPECT_TRUE(eventually([&] { return !c.usable(); }));
  const auto refused = c.run(write("SELECT 1"));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.code(), errc::unavailable);
}

TEST(PostgresDriver, P03_AfterATimeoutNothingRunsOnAndNoSessionStays) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  auto c = open(db.url());
  const auto late = c.run(write("SELECT pg_sleep(600)", 300ms));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.code(), errc::in_doubt);
  EXPECT_EQ(c.raw(), nullptr);
  EXPECT_TRUE(eventually([&] { return sessions_of(db) == "0"; }));
}

TEST(PostgresDriver, ReturnsByItsDeadlineWhenTheServerIsFrozen) {
  LASTDOOR_NEEDS_POSTGRES();
  support::temp_postgres server;
  const temp_database db{server};
  auto c = open(db.url());
  server.pause();
  const auto begin = boot_clock()->now();
  const auto asked = c.run(read("SELECT 1", 300ms));
  const auto connected =
      connection::open(parse_endpoint(db.url()).value(), {}, in(300ms));
  EXPECT_LT(boot_clock()->now() - begin, 20s);
  server.resume();
  ASSERT_FALSE(asked);
  EXPECT_EQ(asked.code(), errc::unavailable);
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.code(), errc::unavailable);
}

TEST(PostgresDriver, PreparesOnceAndSurvivesTheLossOfIt) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  db.query("CREATE TABLE t (i int)");
  auto c = open(db.url());
  const auto prepared = [&] {
    return c.script(read("SELECT count(*) FROM pg_prepared_statements"))
        .value()
        .integer(0, 0);
  };
  ASSERT_TRUE(c.run(read("SELECT * FROM t")));
  ASSERT_TRUE(c.run(read("SELECT * FROM t")));
  EXPECT_EQ(prepared(), 1);
  db.query("ALTER TABLE t ADD k int");  // the cached plan has other columns
  EXPECT_EQ(c.run(read("SELECT * FROM t")).value().columns(), 2);
  ASSERT_TRUE(c.script(write("DISCARD ALL")));
  EXPECT_TRUE(c.run(read("SELECT * FROM t")));
  // Ever new texts do not fill the server's memory.
  auto other = open(db.url());
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(other.run(read("SELECT " + std::to_string(i))));
  }
  EXPECT_EQ(other.script(read("SELECT count(*) FROM pg_prepared_statements"))
                .value()
                .integer(0, 0),
            256);
}

TEST(PostgresDriver, P26_LeavesNothingBehindInAPooledSession) {
  LASTDOOR_NEEDS_PGBOUNCER();
  const temp_database db;
  const support::temp_pgbouncer bouncer{db.server(), {.pool_size = 1}};
  const auto where = parse_endpoint(bouncer.url(db.name())).value();
  const open_options options{.settings = {{"statement_timeout", "7s"}}};
  auto direct =
      connection::open(parse_endpoint(db.url()).value(), options, in(30s))
          .value();
  EXPECT_FALSE(direct.pooled());
  EXPECT_EQ(direct.run(read("SHOW statement_timeout")).value().text(0, 0),
            "7s");
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      auto c = connection::open(where, options, in(30s)).value();
      EXPECT_TRUE(c.pooled());
      EXPECT_EQ(c.backend_pid(), 0);
      for (int k = 0; k < 250; ++k) {
        const auto a =
            c.run(read("SELECT $1::bigint"), arguments{}.add(std::int64_t{k}));
        ASSERT_TRUE(a) << a.error().message();
        EXPECT_EQ(a->integer(0, 0), k);
      }
    });
  }
  for (auto& client : clients) {
    client.join();
  }
  sql_session after{bouncer.url(db.name())};
  EXPECT_EQ(after.value("SHOW statement_timeout"), "0");
  EXPECT_EQ(after.value("SELECT count(*) FROM pg_prepared_statements"), "0");
}

TEST(PostgresDriver, AChildLeavesTheSessionOfItsParentAlone) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  auto parents = std::make_unique<connection>(open(db.url()));
  const pid_t child = ::fork();
  if (child == 0) {
    const auto refused = parents->run(read("SELECT 1"));
    const bool good = !parents->usable() && !refused;
    parents.reset();
    ::_exit(good ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(parents->usable());
  EXPECT_TRUE(parents->run(read("SELECT 1")));
}

TEST(PostgresPool, IsBoundedAndReplacesWhatBroke) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  pool connections{parse_endpoint(db.url()).value(), {}, 2};
  int pid = 0;
  {
    auto a = connections.borrow(in(30s)).value();
    auto b = connections.borrow(in(30s)).value();
    const auto full = connections.borrow(in(100ms));
    ASSERT_FALSE(full);
    EXPECT_EQ(full.code(), errc::unavailable);
    pid = a->backend_pid();
    // An open transaction does not go back into the pool.
    ASSERT_TRUE(b->script(write("BEGIN")));
  }
  EXPECT_TRUE(eventually([&] { return sessions_of(db) == "1"; }));
  EXPECT_EQ((*connections.borrow(in(30s)).value()).backend_pid(), pid);
  db.query("SELECT pg_terminate_backend(" + std::to_string(pid) + ", 30000)");
  EXPECT_TRUE(eventually([&] {
    auto c = connections.borrow(in(30s));
    return c && (*c)->backend_pid() != pid && (*c)->run(read("SELECT 1"));
  }));
}

TEST(PqxxLoan, LendsTheConnectionAndGetsItBack) {
  LASTDOOR_NEEDS_POSTGRES();
  const temp_database db;
  auto c = open(db.url());
  const int pid = c.backend_pid();
  for (int round = 0; round < 2; ++round) {
    pqxx_loan loan{c};
    pqxx::nontransaction tx{loan.get()};
    EXPECT_EQ(tx.exec("SELECT pg_backend_pid()")[0][0].as<int>(), pid);
    // A notice, to the handler that goes with the loan.
    tx.exec("DO $$ BEGIN RAISE WARNING 'seen'; END $$");
    try {
      tx.exec("SELECT 1/0");
      ADD_FAILURE() << "no exception";
    } catch (...) {
      const auto e = translate_current_exception("dividing", false);
      EXPECT_EQ(e.code(), errc::invalid_argument);
      EXPECT_EQ(e.backend(), "22012");
    }
  }
  EXPECT_TRUE(c.script(read("DO $$ BEGIN RAISE WARNING 'again'; END $$")));
  EXPECT_EQ(c.backend_pid(), pid);
  EXPECT_TRUE(c.usable());
}

}  // namespace
}  // namespace lastdoor::postgres_driver
