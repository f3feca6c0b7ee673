// Leases in an SQLite file: counter, boots, name spaces, waiting.
#include <lastdoor/testing/lock_contract_client.hpp>

#include <sys/stat.h>

#include <filesystem>
#include <lastdoor/migrate.hpp>
#include <lastdoor/stores/sqlite.hpp>
#include <lastdoor/testing/store_contract_client.hpp>
#include <thread>
#include <utility>
#include <vector>

#include "support/sqlite_lock_parts.hpp"

namespace lastdoor::testing {
namespace {

using namespace std::chrono_literals;
using ::testing::HasSubstr;

class SqliteLocks : public ::testing::Test {
 protected:
  std::int64_t next_token(contender& c, const std::string& resource = "r") {
    auto g = c.acquire(resource, 60s);
    EXPECT_EQ(outcome_of(g), "ok");
    if (!g) {
      return -1;
    }
    EXPECT_EQ(outcome_of(c.release(*g)), "ok");
    return g->token().value();
  }

  temp_folder folder;
  const std::string path = folder / "locks.db";
};

TEST_F(SqliteLocks, SourceIsNamedAfterTheNameSpace) {
  EXPECT_EQ(open_locks(path).backend().source().str(), "sqlite/default");
  EXPECT_EQ(open_locks(path, {.name_space = "pay"}).backend().source().str(),
            "sqlite/pay");
  for (const auto& bad : {std::string{}, std::string{"caf\xC3\xA9"},
                          std::string{"a\nb"}, std::string(128, 'x')}) {
    EXPECT_EQ(outcome_of(open_sqlite_backend(path, {.name_space = bad})),
              "invalid_argument");
  }
}

// SQLite would take the text after "file:" for a URI, with options in it.
TEST_F(SqliteLocks, G1_APathIsNeverAUri) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder / "");
  for (const std::string name :
       {"file:x.db?mode=memory", "file:y.db", "file::memory:"}) {
    {
      auto a = open_locks(name);
      auto b = open_locks(name);
      EXPECT_EQ(next_token(a), 1) << name;
      EXPECT_EQ(next_token(b), 2) << name;
    }
    EXPECT_TRUE(std::filesystem::exists(folder / name)) << name;
    EXPECT_EQ(outcome_of(sqlite::migrate_up(name)), "ok");
    EXPECT_EQ(outcome_of(open_sqlite_store(name)), "ok");
  }
  std::filesystem::current_path(before);
}

TEST_F(SqliteLocks, G1_WhatIsNoFileOfItsOwnIsRefused) {
  const auto fifo = folder / "fifo";
  ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
  const std::pair<std::string, const char*> names[] = {
      {":memory:", "invalid_argument"}, {"", "invalid_argument"},
      {"/dev/null", "misconfigured"},   {fifo, "misconfigured"},
      {folder / ".", "misconfigured"},
  };
  for (const auto& [name, code] : names) {
    EXPECT_EQ(outcome_of(open_sqlite_backend(name)), code) << name;
    EXPECT_EQ(outcome_of(open_sqlite_store(name)), code) << name;
    EXPECT_EQ(outcome_of(sqlite::migrate_up(name)), code) << name;
    EXPECT_EQ(outcome_of(sqlite::migrate_verify(name)), code) << name;
  }
}

// Two names of one file have two WALs, and two holders with one token.
TEST_F(SqliteLocks, G1_AFileWithASecondNameIsRefused) {
  { auto a = open_locks(path); }
  sqlite::migrate_up(path).value();
  const auto other = folder / "other.db";
  std::filesystem::create_hard_link(path, other);
  for (const auto& name : {path, other}) {
    auto locks = open_sqlite_backend(name);
    ASSERT_EQ(outcome_of(locks), "misconfigured");
    EXPECT_THAT(locks.error().text(), HasSubstr("hard link"));
    EXPECT_EQ(outcome_of(open_sqlite_store(name)), "misconfigured");
  }
  std::filesystem::remove(other);
  EXPECT_EQ(outcome_of(open_sqlite_backend(path)), "ok");
}

TEST_F(SqliteLocks, G1_AFileThatItsNameNoLongerLeadsToIsNotUsed) {
  const auto name = folder / "name.db";
  for (const char* real : {"one.db", "two.db"}) {
    sqlite::migrate_up(folder / real).value();
  }
  std::filesystem::create_symlink(folder / "one.db", name);
  auto a = open_locks(name);
  auto store = open_sqlite_store(name).value();
  const auto write = [&] {
    return outcome_of(
        store.transaction(granted({.token = 5}), [](sqlite3*) {}));
  };
  EXPECT_EQ(next_token(a), 1);
  EXPECT_EQ(write(), "ok");
  std::filesystem::remove(name);
  std::filesystem::create_symlink(folder / "two.db", name);
  auto r = a.acquire("r", 60s);
  ASSERT_EQ(outcome_of(r), "misconfigured");
  EXPECT_THAT(r.error().text(), HasSubstr("replaced"));
  // A store does not look with every call.
  const auto store_notices = [&] {
    return eventually(
        [&] { return outcome_of(store.highest_mark()) == "misconfigured"; });
  };
  EXPECT_TRUE(store_notices());
  auto claimed = store.claim(granted({.token = 6}));
  ASSERT_EQ(outcome_of(claimed), "misconfigured");
  EXPECT_THAT(claimed.error().text(), HasSubstr("replaced"));
  EXPECT_EQ(write(), "misconfigured");
  std::filesystem::remove(name);
  std::filesystem::create_symlink(folder / "one.db", name);
  EXPECT_EQ(next_token(a), 2);
  EXPECT_EQ(write(), "ok");
  std::filesystem::remove(folder / "one.db");
  EXPECT_TRUE(store_notices());
  EXPECT_EQ(write(), "misconfigured");
}

TEST_F(SqliteLocks, NameSpacesShareNothing) {
  auto a = open_locks(path, {.name_space = "a"});
  auto b = open_locks(path, {.name_space = "b"});
  auto first = a.acquire("r", 60s);
  auto second = b.acquire("r", 60s);
  ASSERT_EQ(outcome_of(first), "ok");
  ASSERT_EQ(outcome_of(second), "ok");
  EXPECT_EQ(first->token().value(), 1);
  EXPECT_EQ(second->token().value(), 1) << "tokens of two sources";
  EXPECT_EQ(outcome_of(b.release(*second)), "ok");
  EXPECT_TRUE(a.inspect("r").held);
}

TEST_F(SqliteLocks, R21_TtlOutOfRangeChangesNothing) {
  auto a = open_locks(path);
  auto g = a.acquire("r", 1ms * 60'000);
  ASSERT_EQ(outcome_of(g), "ok");
  for (const duration ttl :
       {duration{0}, duration{-1ms}, duration{999us}, duration{24h + 1ns},
        duration::max(), duration::min()}) {
    EXPECT_EQ(outcome_of(a.acquire("s", ttl)), "invalid_argument");
    EXPECT_EQ(outcome_of(a.renew(*g, ttl)), "invalid_argument");
  }
  EXPECT_TRUE(a.inspect("r").held);
  EXPECT_FALSE(a.inspect("s").held);
  EXPECT_EQ(outcome_of(a.acquire("t", 24h)), "ok");
}

TEST_F(SqliteLocks, S08_TokensRiseAfterTheLeasesAreGone) {
  std::int64_t last = 0;
  {
    auto a = open_locks(path);
    for (int i = 0; i < 5; ++i) {
      last = next_token(a);
    }
  }
  raw_sqlite{path}.run("DELETE FROM lastdoor_leases; VACUUM");
  auto a = open_locks(path);
  EXPECT_EQ(next_token(a), last + 1);
}

TEST_F(SqliteLocks, S08_CounterIsNeitherLoweredNorDeleted) {
  auto a = open_locks(path);
  next_token(a);
  raw_sqlite db{path};
  for (const auto* sql : {"DELETE FROM lastdoor_counters",
                          "UPDATE lastdoor_counters SET value = 0",
                          "UPDATE lastdoor_counters SET reserved_until = 1",
                          "UPDATE lastdoor_counters SET name_space = 'x'",
                          "INSERT OR REPLACE INTO lastdoor_counters VALUES "
                          "('default', 0, 0, '')"}) {
    EXPECT_THROW(db.run(sql), std::runtime_error) << sql;
  }
  EXPECT_EQ(next_token(a), 2);
}

TEST_F(SqliteLocks, R19_TokensRiseAfterGoingOnInTheSameBoot) {
  for (std::int64_t want = 1; want <= 3; ++want) {
    auto a = open_locks(path);
    EXPECT_EQ(next_token(a), want) << "nothing is skipped by opening anew";
  }
}

struct bad_counter {
  const char* sql;
  const char* outcome;
  const char* resource{"r"};
};

TEST_F(SqliteLocks, S09_R35_UnusableCounterGrantsNothing) {
  const bad_counter cases[] = {
      {"UPDATE lastdoor_counters SET value = 9223372036854775807, "
       "reserved_until = 9223372036854775807",
       "token_exhausted"},
      {"UPDATE lastdoor_counters SET value = 9007199254740991, "
       "reserved_until = 9007199254740991",
       "token_exhausted"},
      {"UPDATE lastdoor_counters SET value = 1.5", "damaged"},
      {"UPDATE lastdoor_counters SET value = 'abc'", "damaged"},
      {"UPDATE lastdoor_counters SET value = x'31'", "damaged"},
      {"UPDATE lastdoor_counters SET reserved_until = 'abc'", "damaged"},
      {"UPDATE lastdoor_counters SET value = -1", "damaged"},
      {"UPDATE lastdoor_counters SET value = 5, reserved_until = 4", "damaged"},
      {"UPDATE lastdoor_counters SET reserved_until = 9223372036854775807",
       "damaged"},
      {"DELETE FROM lastdoor_counters", "damaged"},
      {"DELETE FROM lastdoor_counters", "damaged", "never locked before"},
      {"UPDATE lastdoor_counters SET value = 0", "damaged"},
  };
  for (const auto& [sql, outcome, resource] : cases) {
    SCOPED_TRACE(sql);
    temp_folder own;
    const auto file = own / "locks.db";
    auto a = open_locks(file);
    next_token(a);
    tamper(file, sql);
    raw_sqlite db{file};
    const auto counter = db.text(
        "SELECT *, typeof(value) FROM "
        "lastdoor_counters");
    const auto leases = db.text("SELECT * FROM lastdoor_leases");
    EXPECT_EQ(outcome_of(a.acquire(resource, 60s)), outcome);
    EXPECT_FALSE(a.inspect(resource).held);
    EXPECT_EQ(db.text("SELECT * FROM lastdoor_leases"), leases);
    EXPECT_EQ(db.text("SELECT *, typeof(value) FROM lastdoor_counters"),
              counter);
  }
}

TEST_F(SqliteLocks, R35_LastTokenIsGrantedOnce) {
  auto a = open_locks(path);
  const mark floor{fencing_token::from(fencing_token::max - 1).value()};
  ASSERT_EQ(outcome_of(a.backend().raise_floor(floor)), "ok");
  EXPECT_EQ(next_token(a), fencing_token::max);
  EXPECT_EQ(outcome_of(a.acquire("r", 60s)), "token_exhausted");
  EXPECT_EQ(raw_sqlite{path}.text(
                "SELECT value, typeof(value) FROM lastdoor_counters"),
            "9007199254740991|integer|");
}

TEST_F(SqliteLocks, LeaseOfAnotherBootIsOver) {
  auto before = open_locks(path, {}, "boot 1");
  auto g = before.acquire("r", 1h);
  ASSERT_EQ(outcome_of(g), "ok");
  auto after = open_locks(path, {}, "boot 2");
  EXPECT_FALSE(after.inspect("r").held);
  EXPECT_EQ(outcome_of(after.renew(*g, 1h)), "not_owner");
  EXPECT_EQ(outcome_of(after.release(*g)), "not_owner");
  auto next = after.acquire("r", 1h);
  ASSERT_EQ(outcome_of(next), "ok");
  EXPECT_GT(next->token(), g->token());
}

TEST_F(SqliteLocks, G8_AnotherBootStartsAtTheEndOfTheReservation) {
  {
    auto before = open_locks(path, {}, "boot 1");
    EXPECT_EQ(next_token(before), 1);
  }
  auto after = open_locks(path, {}, "boot 2");
  EXPECT_EQ(next_token(after), 1001);
  EXPECT_EQ(next_token(after), 1002);
  auto later = open_locks(path, {}, "boot 3");
  ASSERT_EQ(outcome_of(later.backend().raise_floor(
                mark{fencing_token::from(1500).value()})),
            "ok");
  EXPECT_EQ(next_token(later), 2001) << "raising settles the boot as well";
}

TEST_F(SqliteLocks, R37_HeldLeaseIsSeenWithoutTheWriteLock) {
  auto a = open_locks(path);
  auto b = open_locks(path);
  auto held = a.acquire("r", 1h);
  auto old = a.acquire_briefly("s");
  ASSERT_EQ(outcome_of(held), "ok");
  ASSERT_EQ(outcome_of(old), "ok");
  ASSERT_TRUE(eventually([&] { return !a.inspect("s").held; }));
  raw_sqlite writer{path};
  writer.run("BEGIN IMMEDIATE");
  EXPECT_EQ(outcome_of(b.acquire("r", 60s)), "busy");
  EXPECT_EQ(outcome_of(b.renew(*old, 60s)), "not_owner");
  EXPECT_EQ(outcome_of(b.release(*old)), "not_owner");
  EXPECT_TRUE(b.inspect("r").held);
}

TEST_F(SqliteLocks, FileThatStaysLockedIsUnavailableAndUnchanged) {
  auto a = open_locks(path);
  auto held = a.acquire("r", 1h);
  ASSERT_EQ(outcome_of(held), "ok");
  raw_sqlite writer{path};
  writer.run("BEGIN IMMEDIATE");
  const auto before = whole_dump(path);
  const auto soon = [] { return boot_clock()->now() + 50ms; };
  const auto name = resource_name::parse("s").value();
  const auto owner = owner_id::generate().value();
  EXPECT_EQ(outcome_of(a.backend().try_acquire({name, owner, 60s, "", soon()})),
            "unavailable");
  EXPECT_EQ(outcome_of(a.backend().renew(*held, 60s, soon())), "unavailable");
  EXPECT_EQ(outcome_of(a.backend().release(*held, soon())), "unavailable");
  writer.run("ROLLBACK");
  EXPECT_EQ(whole_dump(path), before);
  EXPECT_FALSE(a.inspect("s").held);
  EXPECT_EQ(outcome_of(a.release(*held)), "ok");
}

// Holds the file's write lock for a while, from another thread.
class passing_writer {
 public:
  passing_writer(const std::string& path, duration how_long,
                 const std::string& change = "")
      : db_{path} {
    db_.run("BEGIN IMMEDIATE;" + change);
    thread_ = std::thread{[this, how_long] {
      pause_for(how_long);
      db_.run("COMMIT");
    }};
  }
  ~passing_writer() { thread_.join(); }

 private:
  raw_sqlite db_;
  std::thread thread_;
};

TEST_F(SqliteLocks, P07_ExpiryCountsFromWhenTheLockWasHad) {
  auto a = open_locks(path);
  result<grant> g = fail(errc::internal, "");
  time_point asked;
  {
    const passing_writer writer{path, 300ms};
    asked = boot_clock()->now();
    g = a.acquire("r", 60s);
  }
  ASSERT_EQ(outcome_of(g), "ok");
  EXPECT_LE(g->valid_until(), asked + 60s + 100ms)
      << "the holder counts from before the wait";
  EXPECT_GE(boot_clock()->now() + a.inspect("r").remaining, asked + 60s + 250ms)
      << "the service counts from after the wait";
}

TEST_F(SqliteLocks, P07_RenewalThatWaitedTooLongIsRefused) {
  auto a = open_locks(path);
  auto g = a.acquire("r", 1s);
  ASSERT_EQ(outcome_of(g), "ok");
  const passing_writer writer{path, 2s};
  EXPECT_EQ(outcome_of(a.renew(*g, 60s)), "not_owner");
  EXPECT_FALSE(a.inspect("r").held);
}

// The look before the transaction still finds the lease.
TEST_F(SqliteLocks, R04_LeaseThatWasTakenMeanwhileIsNotTouched) {
  auto a = open_locks(path);
  const auto other = owner_id::generate().value().str();
  for (const bool renewing : {true, false}) {
    auto g = a.acquire("r", 60s);
    ASSERT_EQ(outcome_of(g), "ok");
    {
      const passing_writer writer{
          path, 300ms,
          "UPDATE lastdoor_leases SET token = token + 1, owner = '" + other +
              "'"};
      if (renewing) {
        EXPECT_EQ(outcome_of(a.renew(*g, 10min)), "not_owner");
      } else {
        EXPECT_EQ(outcome_of(a.release(*g)), "not_owner");
      }
    }
    EXPECT_TRUE(a.inspect("r").held);
    EXPECT_LE(a.inspect("r").remaining, 60s);
    raw_sqlite{path}.run("UPDATE lastdoor_leases SET released = 1, token = 1");
  }
}

// Steps on with each look.
class hasty_clock final : public clock {
 public:
  explicit hasty_clock(duration step) : step_{step} {}
  [[nodiscard]] time_point now() const noexcept override {
    return time_point{duration{1h}} + step_ * ++looks_;
  }
  [[nodiscard]] std::unique_ptr<alarm> make_alarm() override {
    return boot_clock()->make_alarm();
  }

 private:
  duration step_;
  mutable int looks_{0};
};

TEST_F(SqliteLocks, R06_GrantThatCameTooLateIsUndone) {
  sqlite_locks_options options;
  options.service.time = std::make_shared<hasty_clock>(1s);
  auto backend = open_sqlite_backend(path, options).value();
  const auto name = resource_name::parse("r").value();
  const auto owner = owner_id::generate().value();
  auto late =
      backend->try_acquire({name, owner, 2s, "", time_point{duration{24h}}});
  EXPECT_EQ(outcome_of(late), "too_slow");
  EXPECT_EQ(raw_sqlite{path}.text("SELECT released FROM lastdoor_leases"),
            "1|");
}

TEST_F(SqliteLocks, ManyThreadsAllGetTheirTurn) {
  auto a = open_locks(path);
  std::vector<std::thread> threads;
  std::vector<std::string> outcomes(16);
  for (std::size_t t = 0; t < outcomes.size(); ++t) {
    threads.emplace_back([&, t] {
      outcomes[t] = "ok";
      for (int i = 0; i < 100 && outcomes[t] == "ok"; ++i) {
        auto g = a.acquire("r" + std::to_string(t), 60s);
        outcomes[t] = g ? outcome_of(a.release(*g)) : outcome_of(g);
      }
    });
  }
  for (auto& thread : threads) {
    thread.join();
  }
  EXPECT_THAT(outcomes, ::testing::Each("ok"));
}

TEST_F(SqliteLocks, NewerSchemaIsRefused) {
  open_locks(path);
  raw_sqlite{path}.run(
      "INSERT INTO lastdoor_migrations (version, name, checksum) "
      "VALUES (99, 'later', 'x')");
  EXPECT_EQ(outcome_of(open_sqlite_backend(path)), "schema_mismatch");
}

TEST_F(SqliteLocks, TakenBackTablesAreASchemaMismatch) {
  auto a = open_locks(path);
  raw_sqlite{path}.run("DROP TABLE lastdoor_leases");
  EXPECT_EQ(outcome_of(a.acquire("r", 60s)), "schema_mismatch");
}

TEST_F(SqliteLocks, ApplicationsJournalModeIsKept) {
  raw_sqlite{path}.run("PRAGMA journal_mode = DELETE; CREATE TABLE t (x)");
  auto a = open_locks(path);
  EXPECT_EQ(next_token(a), 1);
  EXPECT_EQ(next_token(a), 2);
  EXPECT_EQ(raw_sqlite{path}.text("PRAGMA journal_mode"), "delete|");
  open_locks(folder / "new.db");
  EXPECT_EQ(raw_sqlite{folder / "new.db"}.text("PRAGMA journal_mode"), "wal|");
}

TEST_F(SqliteLocks, ServiceIsOpenedWithTheSameOptions) {
  auto locks = open_sqlite_locks(path, {.name_space = "pay"});
  ASSERT_EQ(outcome_of(locks), "ok");
  EXPECT_EQ(locks->source().str(), "sqlite/pay");
  auto lease = locks->acquire("r", {.ttl = 10s});
  ASSERT_EQ(outcome_of(lease), "ok");
  EXPECT_EQ(lease->token().value(), 1);
  EXPECT_EQ(outcome_of(lease->release()), "ok");
}

}  // namespace
}  // namespace lastdoor::testing
