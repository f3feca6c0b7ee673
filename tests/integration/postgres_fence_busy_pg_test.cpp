// add_fence on tables that are in use: who waits, what is in the way, and what
// a fence that stopped half way leaves.
#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <iostream>
#include <lastdoor/testing/matchers.hpp>
#include <thread>

#include "stores/postgres_guard.hpp"
#include "support/pg_fence.hpp"

namespace lastdoor::support {
namespace {

using namespace std::chrono_literals;
using lastdoor::testing::FailsWith;
using lastdoor::testing::granted;
using lastdoor::testing::IsOk;
using ::testing::Contains;
using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::Not;

using PostgresFence = fence_test;

postgres_driver::connection connect(const std::string& url) {
  return postgres_driver::connection::open(
             postgres_driver::parse_endpoint(url).value(), {},
             boot_clock()->now() + 30s)
      .value();
}

const fence_request strict{.table = "t", .guard = guard_mode::strict};

// Fences in a child that is killed after its nth step. False: it came to its
// end before.
bool killed_while_fencing(const std::string& url, int n) {
  const pid_t child = ::fork();
  if (child == 0) {
    auto db = connect(url);
    const auto done = postgres::apply_guard(db, strict, {.after_step = [&n] {
                                              if (--n == 0) {
                                                ::kill(::getpid(), SIGKILL);
                                              }
                                            }});
    ::_exit(done ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFSIGNALED(status) || WEXITSTATUS(status) == 0);
  return WIFSIGNALED(status);
}

TEST_F(PostgresFence, C05_AKilledFencerLeavesAStateThatTheNextCompletes) {
  std::vector<std::string> left;
  bool killed = true;
  for (int n = 1; killed; ++n) {
    db_->run("DROP TABLE IF EXISTS t");
    db_->run("CREATE TABLE t (id integer PRIMARY KEY)");
    killed = killed_while_fencing(db_->url(), n);
    left.push_back(fence_of("t"));
    ASSERT_THAT(add(strict), IsOk());
    EXPECT_EQ(fence_of("t"), strictly) << "killed after step " << n;
  }
  EXPECT_THAT(left, ::testing::ElementsAre(
                        "bigint true 0; lastdoor_fence_range false; -",
                        fenced_only, strictly, strictly));
}

// The build waits for a writer while it holds a lock that the fence needs. A
// fence that waited for it inside a transaction would be waited for in turn.
TEST_F(PostgresFence, P25_AnIndexThatOthersBuildConcurrentlyIsFinishedToo) {
  db_->run("CREATE TABLE t (id integer PRIMARY KEY, v text)");
  sql_session writer{db_->url()};
  (void)writer.query("BEGIN");
  (void)writer.query("INSERT INTO t VALUES (1, 'a')");
  sql_session builder{db_->url()};
  (void)builder.query("SET deadlock_timeout = '100ms'");
  builder.send("CREATE INDEX CONCURRENTLY t_v ON t (v)");
  const auto waiting = [&](const std::string& state) {
    return eventually([&] {
      return db_->value(
                 "SELECT count(*) FROM pg_stat_activity WHERE datname = "
                 "current_database() AND " +
                 state) != "0";
    });
  };
  ASSERT_TRUE(waiting("wait_event_type = 'Lock' AND query LIKE 'CREATE%'"));
  std::thread fencing{[&] { EXPECT_THAT(add(strict), IsOk()); }};
  EXPECT_TRUE(waiting("wait_event_type = 'Lock' AND query LIKE 'BEGIN%'"));
  (void)writer.query("COMMIT");
  EXPECT_NO_THROW(builder.finish());
  fencing.join();
  EXPECT_EQ(db_->value("SELECT indisvalid FROM pg_index WHERE indexrelid = "
                       "'t_v'::regclass"),
            "t");
  EXPECT_EQ(fence_of("t"), strictly);
}

// What somebody's failed CREATE INDEX CONCURRENTLY leaves behind is named, is
// no key to us, and changes no verdict.
TEST_F(PostgresFence, P25_AnInvalidIndexIsNamedAndIsNoKey) {
  db_->run(
      "CREATE TABLE t (id integer PRIMARY KEY, kind text, qty integer, "
      "code integer UNIQUE DEFERRABLE)");
  db_->run("INSERT INTO t VALUES (1, 'bolt', 1), (2, 'bolt', 2)");
  EXPECT_THROW(db_->run("CREATE UNIQUE INDEX CONCURRENTLY t_kind ON t (kind)"),
               std::runtime_error);
  db_->run("CREATE UNIQUE INDEX t_large ON t (qty) WHERE qty > 100");
  ASSERT_EQ(db_->value("SELECT indisvalid FROM pg_index WHERE indexrelid = "
                       "'t_kind'::regclass"),
            "f");
  const auto done = add(strict);
  ASSERT_THAT(done, IsOk());
  EXPECT_THAT(done->notes,
              Contains(AllOf(HasSubstr("t_kind"), HasSubstr("INVALID"),
                             HasSubstr("REINDEX"))));
  EXPECT_THAT(done->notes, Each(Not(HasSubstr("t_large"))));
  EXPECT_EQ(fence_of("t"), strictly);

  auto store = db_->open();
  const auto five = granted({.token = 5});
  // By that column a statement means both rows, and all or nothing of them.
  const auto both = update("t").key("kind", "bolt").add("qty", 1);
  const auto written = store.write(five, both);
  ASSERT_THAT(written, IsOk());
  EXPECT_EQ(written->rows, 2);
  ASSERT_THAT(store.write(granted({.token = 9, .resource = "other"}),
                          update("t").key("id", 2).add("qty", 0)),
              IsOk());
  EXPECT_THAT(store.write(five, both), FailsWith(errc::stale_token));
  // It cannot arbitrate an upsert; nor can one that covers some rows only, or
  // is looked at later.
  for (const auto& [column, v] : {std::pair<const char*, value>{"kind", "nut"},
                                  {"qty", 200},
                                  {"code", 1}}) {
    EXPECT_THAT(store.write(five, upsert("t").key(column, v).set("id", 3)),
                FailsWith(errc::invalid_argument))
        << column;
  }
  EXPECT_THAT(store.write(five, upsert("t").key("id", 3).set("kind", "bolt")),
              IsOk());
  EXPECT_EQ(db_->value("SELECT string_agg(id || kind || coalesce(qty, 0), ' ' "
                       "ORDER BY id) FROM t"),
            "1bolt2 2bolt3 3bolt0");
}

// What a user of the table would feel: the longest that one script took.
class probe {
 public:
  probe(const std::string& url, std::string sql)
      : session_{url}, thread_{[this, text = std::move(sql)] {
          while (!stop_) {
            const auto start = boot_clock()->now();
            (void)session_.query(text);
            worst_ = std::max(worst_, boot_clock()->now() - start);
            ++rounds_;
            (void)bell_->wait_until(boot_clock()->now() + 50ms);
          }
        }} {}
  ~probe() { finish(); }
  duration finish() {
    stop_ = true;
    if (thread_.joinable()) {
      thread_.join();
    }
    return worst_;
  }
  [[nodiscard]] int rounds() const noexcept { return rounds_; }

 private:
  sql_session session_;
  std::unique_ptr<alarm> bell_{boot_clock()->make_alarm()};
  std::atomic<bool> stop_{false};
  std::atomic<int> rounds_{0};
  duration worst_{0};
  std::thread thread_;
};

// A table in use: nobody queues behind the migration, whoever holds the table
// is named, and nothing is rewritten. 200,000 rows and two seconds of a report
// that holds the table open; 5 million rows and a minute, with the figures,
// when LASTDOOR_TEST_LONG is set.
TEST_F(PostgresFence, P24_ABusyTableStaysInUse) {
  const bool many = std::getenv("LASTDOOR_TEST_LONG") != nullptr;
  db_->run("CREATE TABLE t (id integer PRIMARY KEY, v text)");
  db_->run("INSERT INTO t SELECT g, 'some text' FROM generate_series(1, " +
           std::string{many ? "5000000" : "200000"} + ") g");
  const auto file = "SELECT pg_relation_filenode('t')";
  const auto pages = "SELECT pg_relation_size('t') / 8192";
  const auto file_before = db_->value(file);
  const auto pages_before = std::stoll(db_->value(pages));

  sql_session holder{db_->url()};
  (void)holder.query("SET application_name = 'long report'");
  (void)holder.query("BEGIN");
  (void)holder.query("SELECT count(*) FROM t WHERE id < 3");

  const auto start = boot_clock()->now();
  auto db = connect(db_->url());
  probe reader{db_->url(), "SELECT v FROM t WHERE id = 7"};
  probe writer{db_->url(), "BEGIN; SELECT lastdoor.present(" +
                               arguments_of({.token = 5}) +
                               "); UPDATE t SET v = v || '' WHERE id = 8; "
                               "COMMIT"};
  const auto gave_up =
      postgres::apply_guard(db, strict,
                            {.lock_timeout = 100ms,
                             .longest_pause = many ? 2s : 300ms,
                             .give_up_after = many ? 60s : 2s});
  EXPECT_THAT(gave_up, FailsWith(errc::unavailable));
  if (!gave_up) {
    EXPECT_THAT(gave_up.error().text(), HasSubstr("long report"));
  }

  duration released{0};
  std::thread later{[&] {
    ASSERT_TRUE(eventually(
        [&, seen = reader.rounds()] { return reader.rounds() >= seen + 10; }));
    released = boot_clock()->now() - start;
    (void)holder.query("COMMIT");
  }};
  EXPECT_THAT(postgres::apply_guard(db, strict, {}), IsOk());
  const auto fenced = boot_clock()->now() - start;
  later.join();
  EXPECT_TRUE(eventually([&] {
    return db_->value("SELECT fence_token FROM t WHERE id = 8") == "5";
  })) << "writes go on, now behind the guard";
  // The bound is 100 ms and what one statement takes; the margin is for a busy
  // machine. Queueing behind the migration would cost seconds.
  const auto longest_read = reader.finish();
  const auto longest_write = writer.finish();
  EXPECT_LT(longest_read, 1500ms);
  EXPECT_LT(longest_write, 1500ms);
  EXPECT_GE(std::min(reader.rounds(), writer.rounds()), 10);
  EXPECT_EQ(db_->value(file), file_before) << "the table was rewritten";
  EXPECT_LE(std::stoll(db_->value(pages)), pages_before + 100);
  EXPECT_EQ(fence_of("t"), strictly);
  if (many) {
    const auto ms = [](duration d) {
      return std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
    };
    std::cout << "5,000,000 rows: the longest read took " << ms(longest_read)
              << " ms of " << reader.rounds() << ", the longest write "
              << ms(longest_write) << " ms of " << writer.rounds()
              << "; the table was held for " << ms(released)
              << " ms and fenced " << ms(fenced - released) << " ms later\n";
  }
}

// The way back: guards go from tables in use as quietly as they came.
TEST_F(PostgresFence, P24_TakingGuardsAwayKeepsNobodyWaiting) {
  db_->run("CREATE TABLE t (id integer PRIMARY KEY, v text)");
  db_->run("CREATE TABLE u (id integer PRIMARY KEY)");
  db_->fence("t", guard_mode::strict);
  db_->fence("u", guard_mode::strict);
  sql_session holder{db_->url()};
  (void)holder.query("BEGIN");
  (void)holder.query("SELECT FROM t");
  probe reader{db_->url(), "SELECT FROM t; SELECT FROM u"};
  std::atomic<bool> down{false};
  std::thread going{[&] {
    EXPECT_THAT(postgres::migrate_down(db_->url(), 0, true), IsOk());
    down = true;
  }};
  // Several times in vain.
  EXPECT_TRUE(eventually([&] { return reader.rounds() >= 40; }));
  EXPECT_FALSE(down);
  EXPECT_EQ(fence_of("u"), strictly) << "all or nothing";
  (void)holder.query("COMMIT");
  going.join();
  EXPECT_LT(reader.finish(), 1500ms);
  EXPECT_EQ(fence_of("t"), fenced_only);
  EXPECT_EQ(fence_of("u"), fenced_only);
}

// An autovacuum holds the table for as long as it takes, hours for a large
// one. Postgres ends it for whoever has waited for a second, and a fence that
// never waits that long would never get its lock.
TEST_F(PostgresFence, P24_AnAutovacuumThatIsUnderWayGivesWay) {
  temp_postgres server{{.settings = {"autovacuum=on", "autovacuum_naptime=1"}}};
  const ledger_database db{server};
  db.run(
      "CREATE TABLE t (id integer PRIMARY KEY, v text) WITH "
      "(autovacuum_vacuum_cost_delay = 100, "
      "autovacuum_vacuum_cost_limit = 1, "
      "autovacuum_vacuum_threshold = 1)");
  db.run(
      "INSERT INTO t SELECT g, repeat('x', 500) FROM "
      "generate_series(1, 50000) g");
  db.run("DELETE FROM t WHERE id % 2 = 0");
  const auto vacuuming = [&] {
    return db.value(
               "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING "
               "(pid) WHERE l.relation = 't'::regclass AND a.backend_type = "
               "'autovacuum worker' AND l.mode = 'ShareUpdateExclusiveLock' "
               "AND l.granted") != "0";
  };
  ASSERT_TRUE(eventually(vacuuming, 2min));
  probe reader{db.url(), "SELECT v FROM t WHERE id = 7"};
  auto with = connect(db.url());
  EXPECT_THAT(postgres::apply_guard(with, strict, {.give_up_after = 1min}),
              IsOk());
  EXPECT_LT(reader.finish(), 1500ms);
  EXPECT_THAT(server.log(), HasSubstr("canceling autovacuum task"));
}

}  // namespace
}  // namespace lastdoor::support
