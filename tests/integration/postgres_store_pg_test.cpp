// The Postgres store: what the contract does not know of.
#include <gmock/gmock.h>

#include <lastdoor/testing/matchers.hpp>
#include <pqxx/result>
#include <pqxx/transaction_base>
#include <thread>

#include "support/pg_ledger.hpp"
#include "support/temp_pgbouncer.hpp"

namespace lastdoor::support {
namespace {

using namespace std::chrono_literals;
using lastdoor::testing::FailsWith;
using lastdoor::testing::granted;
using lastdoor::testing::IsOk;
using lastdoor::testing::outcome_of;
using lastdoor::testing::terms;
using ::testing::HasSubstr;

class PostgresStore : public ::testing::Test {
 protected:
  void SetUp() override {
    LASTDOOR_NEEDS_POSTGRES();
    db_.emplace();
    db_->run(
        "CREATE TABLE stock (sku text PRIMARY KEY, qty integer NOT NULL, "
        "note text)");
    db_->run("INSERT INTO stock VALUES ('a', 10), ('b', 10), ('c', 10)");
    db_->fence("stock", guard_mode::none);
  }
  [[nodiscard]] std::string qty(const std::string& sku) const {
    return db_->value("SELECT qty FROM stock WHERE sku = '" + sku + "'");
  }
  [[nodiscard]] std::string fence(const std::string& sku) const {
    return db_->value("SELECT fence_token FROM stock WHERE sku = '" + sku +
                      "'");
  }

  std::optional<ledger_database> db_;
};

statement take(std::string sku, std::int64_t n) {
  return update("stock").key("sku", std::move(sku)).subtract("qty", n);
}

TEST_F(PostgresStore, G5_FirstTheBarrierThenTheWriteOfThePausedHolder) {
  auto store = db_->open();
  const terms a{.token = 5};
  const terms b{.token = 6, .owner = 'b'};
  ASSERT_THAT(store.write(granted(a), take("a", 1)), IsOk());
  ASSERT_THAT(store.claim(granted(b)), IsOk());
  // On rows that b has not touched, by statement, by SQL, new and old.
  EXPECT_THAT(store.write(granted(a), take("b", 1)),
              FailsWith(errc::stale_token));
  EXPECT_THAT(store.transaction(granted(a),
                                [](pqxx::transaction_base& tx) {
                                  tx.exec("DELETE FROM stock");
                                }),
              FailsWith(errc::stale_token));
  EXPECT_EQ(qty("b"), "10");
}

// F15: without the barrier the gap is there, as the manual says.
TEST_F(PostgresStore, F15_WithoutABarrierADelayedWriteStillPasses) {
  auto store = db_->open();
  ASSERT_THAT(store.claim(granted({.token = 5})), IsOk());
  EXPECT_THAT(store.write(granted({.token = 5}), take("a", 1)), IsOk());
  EXPECT_THAT(store.write(granted({.token = 6, .owner = 'b'}), take("a", 1)),
              IsOk());
  EXPECT_THAT(store.write(granted({.token = 5}), take("a", 1)),
              FailsWith(errc::stale_token));
  EXPECT_EQ(qty("a"), "8");
}

// P12, in slow motion: the second writer waits for the first one's commit,
// whoever has the higher token, and the higher one's value stands.
TEST_F(PostgresStore, P12_ASecondWriterWaitsForTheFirstOnesCommit) {
  auto store = db_->open();
  for (const bool higher_first : {true, false}) {
    const std::string row = higher_first ? "a" : "b";
    const terms first{.token = higher_first ? 8 : 7, .resource = row};
    const terms second{
        .token = higher_first ? 7 : 8, .resource = row, .owner = 'b'};
    std::string outcome;
    std::thread other;
    const auto done =
        store.transaction(granted(first), [&](pqxx::transaction_base& tx) {
          tx.exec("UPDATE stock SET qty = " + std::to_string(first.token) +
                  ", fence_token = " + std::to_string(first.token) +
                  " WHERE sku = '" + row + "'");
          other = std::thread{[&] {
            outcome = outcome_of(store.write(
                granted(second),
                update("stock").key("sku", row).set("qty", second.token)));
          }};
          ASSERT_TRUE(eventually([&] {
            return db_->value(
                       "SELECT count(*) FROM pg_stat_activity WHERE datname = "
                       "current_database() AND wait_event_type = 'Lock'") ==
                   "1";
          }));
        });
    other.join();
    EXPECT_THAT(done, IsOk());
    EXPECT_EQ(outcome, higher_first ? "stale_token" : "ok");
    EXPECT_EQ(qty(row), "8");
    EXPECT_EQ(fence(row), "8");
  }
}

TEST_F(PostgresStore, P13_ALostRaceIsRetryableAndNeverStale) {
  auto plain = db_->open();
  ASSERT_THAT(plain.claim(granted({.token = 5})), IsOk());
  for (const auto level :
       {isolation::repeatable_read, isolation::serializable}) {
    auto store = db_->open({.isolation = level});
    const auto lost = store.transaction(granted({.token = 5}), [&](auto& tx) {
      tx.exec("SELECT qty FROM stock WHERE sku = 'a'");
      // The same grant in another thread, so no newer token is about.
      EXPECT_THAT(plain.write(granted({.token = 5}), take("a", 1)), IsOk());
      tx.exec("UPDATE stock SET qty = 0 WHERE sku = 'a'");
    });
    EXPECT_THAT(lost, FailsWith(errc::unavailable));
    if (!lost) {
      EXPECT_TRUE(lost.error().retryable());
      EXPECT_FALSE(lost.error().ends_lease());
    }
  }
  EXPECT_EQ(qty("a"), "8");
}

TEST_F(PostgresStore, P13_DeadlocksOfBuiltWritesAreTriedAgain) {
  // Two holders of two resources, each all-or-nothing over the same rows in
  // opposite order of their keys; the row locks are taken in table order or
  // not, and in either case nobody is told of a deadlock.
  auto store = db_->open();
  std::vector<std::thread> all;
  for (int i = 0; i < 4; ++i) {
    all.emplace_back([&, i] {
      const auto g = granted({.token = 5, .resource = "r" + std::to_string(i)});
      const std::vector<value> keys = i % 2 == 0
                                          ? std::vector<value>{"a", "b", "c"}
                                          : std::vector<value>{"c", "b", "a"};
      for (int n = 0; n < 25; ++n) {
        EXPECT_THAT(
            store.write(g, update("stock").keys("sku", keys).add("qty", 1)),
            IsOk());
      }
    });
  }
  for (auto& t : all) {
    t.join();
  }
  EXPECT_EQ(qty("a"), "110");
}

TEST_F(PostgresStore, P22_AHiddenRowIsMissingAndNeverStale) {
  db_->run("ALTER TABLE stock ENABLE ROW LEVEL SECURITY");
  db_->run("DROP ROLE IF EXISTS seller");
  db_->run("CREATE ROLE seller LOGIN");
  db_->run("GRANT SELECT, INSERT, UPDATE, DELETE ON stock TO seller");
  db_->run("GRANT USAGE ON SCHEMA lastdoor TO seller");
  db_->run("CREATE POLICY own ON stock TO seller USING (sku <> 'a')");
  auto url = db_->url();
  url.replace(url.find("user=postgres"), 13, "user=seller");
  auto store = open_postgres_store(url).value();
  const auto g = granted({.token = 99});
  EXPECT_THAT(store.write(g, take("b", 1)), IsOk());
  const auto hidden = store.write(g, take("a", 1));
  EXPECT_THAT(hidden, FailsWith(errc::missing));
  EXPECT_THAT(store.write(g, take("nobody", 1)), FailsWith(errc::missing));
  db_->run("UPDATE stock SET fence_token = 100 WHERE sku IN ('a', 'c')");
  EXPECT_THAT(store.write(g, take("a", 1)), FailsWith(errc::missing));
  const auto stale = store.write(g, take("c", 1));
  ASSERT_THAT(stale, FailsWith(errc::stale_token));
  EXPECT_EQ(stale.error().seen(), 100);
  // Visible, but not to be updated: the row is no reason, a policy is.
  db_->run(
      "CREATE POLICY locked ON stock AS RESTRICTIVE FOR UPDATE TO seller "
      "USING (sku <> 'b')");
  EXPECT_THAT(store.write(g, take("b", 1)),
              FailsWith(errc::precondition_failed));
  db_->run("DROP OWNED BY seller");
  db_->run("DROP ROLE seller");
}

TEST_F(PostgresStore, P27_TokensBeyond32BitsLand) {
  auto store = db_->open();
  for (const std::int64_t token :
       {std::int64_t{2147483648}, fencing_token::max}) {
    EXPECT_THAT(store.write(granted({.token = token}), take("a", 1)), IsOk());
    EXPECT_EQ(fence("a"), std::to_string(token));
  }
}

TEST_F(PostgresStore, AKeyThatIsNotUniqueIsAllOrNothingToo) {
  db_->run("CREATE TABLE parts (kind text, qty integer)");
  db_->run("INSERT INTO parts VALUES ('bolt', 1), ('bolt', 2), ('nut', 3)");
  db_->fence("parts", guard_mode::none);
  auto store = db_->open();
  const auto write = [&](std::int64_t token) {
    return store.write(granted({.token = token}),
                       update("parts").key("kind", "bolt").add("qty", 1));
  };
  const auto done = write(5);
  ASSERT_THAT(done, IsOk());
  EXPECT_EQ(done->rows, 2);
  db_->run("UPDATE parts SET fence_token = 9 WHERE qty = 3 AND kind = 'bolt'");
  EXPECT_THAT(write(6), FailsWith(errc::stale_token));
  EXPECT_EQ(db_->value("SELECT sum(qty) FROM parts WHERE kind = 'bolt'"), "5");
}

TEST_F(PostgresStore, ColumnsComeBackWithTheirTypes) {
  db_->run(
      "CREATE TABLE kinds (id integer PRIMARY KEY, i2 smallint, i8 bigint, "
      "f real, d double precision, n numeric, t text, b bytea, yes boolean, "
      "gone text)");
  db_->fence("kinds", guard_mode::none);
  auto store = db_->open();
  const blob bytes{std::byte{0}, std::byte{255}, std::byte{92}};
  const auto r = store.write(
      granted({}), insert("kinds")
                       .key("id", 1)
                       .set("i2", -2)
                       .set("i8", std::int64_t{1} << 60)
                       .set("f", 0.5)
                       .set("d", 0.1)
                       .set("n", "12.50")
                       .set("t", "it's \\ \xc3\xa9")
                       .set("b", bytes)
                       .set("yes", "true")
                       .set("gone", nullptr)
                       .returning({"id", "i2", "i8", "f", "d", "n", "t", "b",
                                   "yes", "gone", "fence_token"}));
  ASSERT_THAT(r, IsOk());
  ASSERT_EQ(r->returned.size(), 1U);
  EXPECT_EQ(r->returned[0],
            (row{1, -2, std::int64_t{1} << 60, 0.5, 0.1, "12.50",
                 "it's \\ \xc3\xa9", bytes, true, nullptr, 1}));
}

TEST_F(PostgresStore, NamesAndValuesAreInert) {
  db_->run("CREATE SCHEMA \"s; DROP\"");
  db_->run(
      "CREATE TABLE \"s; DROP\".\"t\"\"x\" (\"k'\" text PRIMARY KEY, "
      "\"V\" text)");
  ASSERT_THAT(
      postgres::add_fence(db_->url(), {.table = "t\"x", .schema = "s; DROP"}),
      IsOk());
  auto store = db_->open();
  const terms awkward{.resource = "it's \\ \"$1\"; --\xc3\xa9"};
  const auto s = upsert("t\"x")
                     .in_schema("s; DROP")
                     .key("k'", "'); DROP TABLE stock; --")
                     .set("V", "$1 \\");
  EXPECT_THAT(store.write(granted(awkward), s), IsOk());
  EXPECT_THAT(
      store.transaction(granted(awkward), [](pqxx::transaction_base&) {}),
      IsOk());
  EXPECT_EQ(store.read_mark(granted(awkward).resource()).value().value(), 1);
  EXPECT_EQ(db_->value("SELECT \"k'\" || \"V\" FROM \"s; DROP\".\"t\"\"x\""),
            "'); DROP TABLE stock; --$1 \\");
  EXPECT_EQ(qty("a"), "10");
}

TEST_F(PostgresStore, GuardedTablesTakeBuiltWritesInOneStatement) {
  db_->fence("stock", guard_mode::strict);
  auto store = db_->open();
  const auto g = granted({.token = 5});
  ASSERT_THAT(store.claim(g), IsOk());
  EXPECT_THAT(store.write(g, take("a", 1)), IsOk());
  EXPECT_THAT(store.write(g, upsert("stock").key("sku", "d").set("qty", 1)),
              IsOk());
  EXPECT_THAT(store.write(g, erase("stock").key("sku", "d")), IsOk());
  EXPECT_THAT(
      store.write(g, update("stock").keys("sku", {"a", "b"}).set("note", "x")),
      IsOk());
  EXPECT_THAT(store.write(g, take("c", 1), {.sequence = 1}), IsOk());
  EXPECT_EQ(qty("a"), "9");
  EXPECT_EQ(fence("b"), "5");
  // The connection is the store's own: nothing of the claim is left on it.
  EXPECT_THAT(store.transaction(granted({.token = 3, .resource = "other"}),
                                [](pqxx::transaction_base& tx) {
                                  tx.exec("UPDATE stock SET qty = 0");
                                }),
              FailsWith(errc::stale_token));
  EXPECT_EQ(qty("c"), "9");
}

TEST_F(PostgresStore, WithoutTheLedgerTheColumnAloneGuards) {
  auto store = db_->open({.ledger = false});
  const auto five = granted({.token = 5});
  EXPECT_THAT(store.write(five, take("a", 1)), IsOk());
  const auto again = store.write(five, take("a", 1));
  ASSERT_THAT(again, IsOk());
  EXPECT_TRUE(again->already_applied);
  EXPECT_EQ(qty("a"), "9");
  EXPECT_THAT(store.write(granted({.token = 4}), take("a", 1)),
              FailsWith(errc::stale_token));
  EXPECT_THAT(store.write(five, take("nobody", 1)), FailsWith(errc::missing));
  const auto bring = insert("stock").key("sku", "d").set("qty", 1);
  EXPECT_THAT(store.write(five, bring), IsOk());
  EXPECT_TRUE(store.write(five, bring).value().already_applied);
  EXPECT_THAT(store.write(granted({.token = 4}), bring),
              FailsWith(errc::stale_token));
  EXPECT_THAT(store.write(five, erase("stock").key("sku", "a")),
              FailsWith(errc::invalid_argument));
  EXPECT_THAT(store.claim(five), FailsWith(errc::invalid_argument));
  EXPECT_THAT(store.transaction(five, [](pqxx::transaction_base&) {}),
              FailsWith(errc::invalid_argument));
  EXPECT_THAT(store.write(five, take("a", 1), {.sequence = 1}),
              FailsWith(errc::invalid_argument));
  EXPECT_EQ(db_->value("SELECT count(*) FROM lastdoor.marks"), "0");
}

TEST_F(PostgresStore, OpeningSaysWhatIsMissing) {
  const temp_database bare{db_->server()};
  EXPECT_THAT(open_postgres_store(bare.url()),
              FailsWith(errc::schema_mismatch));
  EXPECT_THAT(open_postgres_store("no url at all"),
              FailsWith(errc::invalid_argument));
  EXPECT_THAT(open_postgres_store(db_->url(), {.connections = 0}),
              FailsWith(errc::invalid_argument));
  EXPECT_THAT(open_postgres_store(db_->url(),
                                  {.lock_timeout = 10s, .call_timeout = 10s}),
              FailsWith(errc::invalid_argument));
  EXPECT_THAT(open_postgres_store("postgresql://127.0.0.1:1/x"),
              FailsWith(errc::unavailable));
}

TEST_F(PostgresStore, TablesThatCannotBeFencedAreRefused) {
  db_->run("CREATE VIEW v AS SELECT * FROM stock");
  db_->run("CREATE TABLE bare (id integer PRIMARY KEY)");
  auto store = db_->open();
  const auto to = [&](std::string table) {
    return store.write(granted({}),
                       update(std::move(table)).key("id", 1).set("qty", 1));
  };
  EXPECT_THAT(to("v"), FailsWith(errc::invalid_argument));
  EXPECT_THAT(to("bare"), FailsWith(errc::schema_mismatch));
  EXPECT_THAT(to("pg_class"), FailsWith(errc::invalid_argument));
  EXPECT_THAT(store.write(granted({}), update("marks")
                                           .in_schema("lastdoor")
                                           .key("resource", "x")
                                           .set("owner", "y")),
              FailsWith(errc::invalid_argument));
  // Repaired while the store is open.
  db_->run("ALTER TABLE bare ADD qty integer");
  db_->fence("bare", guard_mode::none);
  EXPECT_THAT(to("bare"), FailsWith(errc::missing));
}

TEST_F(PostgresStore, AMarkThatIsLockedForTooLongIsUnavailable) {
  sql_session holder{db_->url()};
  (void)holder.query("BEGIN");
  (void)holder.query("SELECT lastdoor.present(" + arguments_of({.token = 5}) +
                     ")");
  auto store = db_->open({.lock_timeout = 200ms});
  const auto waited = store.claim(granted({.token = 6, .owner = 'b'}));
  EXPECT_THAT(waited, FailsWith(errc::unavailable));
  // The validity bounds it as well, whatever the option says.
  auto patient = db_->open({.lock_timeout = 60s, .call_timeout = 120s});
  const auto start = boot_clock()->now();
  EXPECT_THAT(patient.claim(granted(
                  {.token = 6, .owner = 'b', .valid_until = start + 500ms})),
              FailsWith(errc::unavailable));
  EXPECT_LT(boot_clock()->now() - start, 30s);
  (void)holder.query("COMMIT");
  EXPECT_THAT(store.claim(granted({.token = 6, .owner = 'b'})), IsOk());
}

// A hand-over waits for the first claim of a resource that is under way, and
// takes it along; no later one slips past it.
TEST_F(PostgresStore, AHandOverMissesNoClaimThatIsUnderWay) {
  auto store = db_->open();
  sql_session first{db_->url()};
  (void)first.query("BEGIN");
  (void)first.query("SELECT lastdoor.present(" + arguments_of({.token = 5}) +
                    ")");
  std::int64_t moved = -1;
  std::thread over{[&] {
    moved = store
                .hand_over(source_name::parse("test/one").value(),
                           source_name::parse("test/two").value())
                .value();
  }};
  ASSERT_TRUE(eventually([&] {
    return db_->value(
               "SELECT count(*) FROM pg_stat_activity WHERE datname = "
               "current_database() AND wait_event_type = 'Lock'") == "1";
  }));
  (void)first.query("COMMIT");
  over.join();
  EXPECT_EQ(moved, 1);
  EXPECT_THAT(store.claim(granted({.token = 6})),
              FailsWith(errc::wrong_source));
  EXPECT_THAT(store.claim(granted({.resource = "new"})),
              FailsWith(errc::wrong_source));
}

TEST_F(PostgresStore, P26_BehindATransactionPoolerNothingLeaks) {
  LASTDOOR_NEEDS_PGBOUNCER();
  db_->fence("stock", guard_mode::strict);
  temp_pgbouncer pooler{db_->server()};
  std::vector<std::thread> all;
  for (int i = 0; i < 4; ++i) {
    all.emplace_back([&, i] {
      auto store = open_postgres_store(pooler.url(db_->name())).value();
      const auto g = granted({.token = 5, .resource = "r" + std::to_string(i)});
      for (int n = 0; n < 125; ++n) {
        EXPECT_THAT(
            store.write(g, update("stock").key("sku", "a").add("qty", 1)),
            IsOk());
        EXPECT_THAT(store.transaction(g,
                                      [](pqxx::transaction_base& tx) {
                                        tx.exec(
                                            "UPDATE stock SET qty = qty + 1 "
                                            "WHERE sku = 'b'");
                                      }),
                    IsOk());
      }
    });
  }
  for (auto& t : all) {
    t.join();
  }
  EXPECT_EQ(qty("a"), "510");
  EXPECT_EQ(qty("b"), "510");
  // A stranger on one of the pooler's sessions brings no token along.
  for (int n = 0; n < 4; ++n) {
    EXPECT_THAT(psql(pooler.url(db_->name()), "UPDATE stock SET qty = 0;").text,
                HasSubstr("LD002"));
  }
}

}  // namespace
}  // namespace lastdoor::support
