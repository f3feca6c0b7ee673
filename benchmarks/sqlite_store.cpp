// What the fence costs on SQLite: each way of writing through the store next
// to the same SQL without it, in one run, the two sides in turn.
//
//   bench_sqlite_store [--repetitions N] [--writes N] [--folder PATH]
//                      [--json FILE]
//
// A repetition alternates between the two sides in small batches, so that a
// slow moment of the machine falls on both. Prints a Markdown table: medians
// over the repetitions, and the smallest and largest ratio. Pin it to one
// core: taskset -c 1 bench_sqlite_store.
#include <sqlite3.h>

#include <filesystem>
#include <lastdoor/migrate.hpp>
#include <lastdoor/stores/sqlite.hpp>

#include "bench.hpp"

namespace {

using namespace lastdoor;
using namespace lastdoor::bench;

struct settings {
  int repetitions{7};
  int writes{20'000};
  std::string folder{"/tmp"};
  std::string json;
};

void applied(const result<receipt>& r) {
  if (!r || r->already_applied) {
    stop(r ? "a write was taken for a repeat" : r.error().message());
  }
}

// The plain side: what somebody who knows SQLite would write by hand.
class plain {
 public:
  plain(const std::string& path, std::string_view synchronous) {
    if (sqlite3_open(path.c_str(), &db_) != SQLITE_OK) {
      stop("cannot open the file");
    }
    run(fmt::format("PRAGMA synchronous={}", synchronous).c_str());
    update_ = prepare("UPDATE stock SET qty = qty - ?1 WHERE sku = ?2");
    begin_ = prepare("BEGIN IMMEDIATE");
    commit_ = prepare("COMMIT");
  }
  ~plain() {
    for (auto* s : {update_, begin_, commit_}) {
      sqlite3_finalize(s);
    }
    sqlite3_close(db_);
  }
  plain(const plain&) = delete;
  plain& operator=(const plain&) = delete;

  void run(const char* sql) {
    if (sqlite3_exec(db_, sql, nullptr, nullptr, nullptr) != SQLITE_OK) {
      stop(sqlite3_errmsg(db_));
    }
  }
  void update(std::string_view sku) {
    sqlite3_bind_int64(update_, 1, 1);
    sqlite3_bind_text(update_, 2, sku.data(), static_cast<int>(sku.size()),
                      SQLITE_STATIC);
    step(update_);
  }
  void begin() { step(begin_); }
  void commit() { step(commit_); }

 private:
  sqlite3_stmt* prepare(const char* sql) {
    sqlite3_stmt* s = nullptr;
    if (sqlite3_prepare_v2(db_, sql, -1, &s, nullptr) != SQLITE_OK) {
      stop(sqlite3_errmsg(db_));
    }
    return s;
  }
  void step(sqlite3_stmt* s) {
    if (sqlite3_step(s) != SQLITE_DONE) {
      stop(sqlite3_errmsg(db_));
    }
    sqlite3_reset(s);
  }
  sqlite3* db_{nullptr};
  sqlite3_stmt* update_{nullptr};
  sqlite3_stmt* begin_{nullptr};
  sqlite3_stmt* commit_{nullptr};
};

// The caller's own prepared statement inside a fenced transaction.
class caller {
 public:
  ~caller() { sqlite3_finalize(update_); }
  void update(sqlite3* db, std::string_view sku) {
    if (update_ == nullptr) {
      sqlite3_prepare_v2(db, "UPDATE stock SET qty = qty - ?1 WHERE sku = ?2",
                         -1, &update_, nullptr);
    }
    sqlite3_bind_int64(update_, 1, 1);
    sqlite3_bind_text(update_, 2, sku.data(), static_cast<int>(sku.size()),
                      SQLITE_STATIC);
    if (sqlite3_step(update_) != SQLITE_DONE) {
      stop(sqlite3_errmsg(db));
    }
    sqlite3_reset(update_);
  }

 private:
  sqlite3_stmt* update_{nullptr};
};

grant make_grant(std::int64_t token) {
  return grant{must(resource_name::parse("stock/sku-0500")),
               must(owner_id::parse(std::string(40, 'a'))),
               must(fencing_token::from(token)),
               must(source_name::parse("sqlite/bench")), time_point::max()};
}

using side = std::function<void(int)>;  // does one write

// What the thread has used of a processor: waiting for one does not count, so
// a busy machine disturbs less. With NORMAL nothing here waits for the disk.
double processor_seconds_of(const side& s, int from, int count) {
  const double begin = seconds_on(CLOCK_THREAD_CPUTIME_ID);
  for (int i = from; i < from + count; ++i) {
    s(i);
  }
  return seconds_on(CLOCK_THREAD_CPUTIME_ID) - begin;
}

bench::row compare(std::string name, const settings& o, const side& a,
                   const side& b) {
  // 97 divides no 1000: SQLite copies the log into the file every 1000 pages,
  // and with batches of 500 that work always fell on the same side.
  const plan how{o.repetitions, o.writes, 97};
  const auto timed = [](const side& s) {
    return [&s](int from, int n) { return processor_seconds_of(s, from, n); };
  };
  return row_of(std::move(name), how, alternate(how, timed(a), timed(b)),
                [](double s) { return s; });
}

std::string sku(int i) { return fmt::format("sku-{:04}", i % 1000); }

void fill(const std::string& path) {
  sqlite3* db = nullptr;
  sqlite3_open(path.c_str(), &db);
  const char* sql =
      "CREATE TABLE stock (sku TEXT PRIMARY KEY, qty INTEGER NOT NULL) "
      "WITHOUT ROWID;"
      "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n "
      "WHERE i < 999) "
      "INSERT INTO stock SELECT printf('sku-%04d', i), 1000000000 FROM n;";
  if (sqlite3_exec(db, sql, nullptr, nullptr, nullptr) != SQLITE_OK) {
    stop(sqlite3_errmsg(db));
  }
  sqlite3_close(db);
}

sqlite_store_options options(std::string_view sync, bool ledger) {
  sqlite_store_options o;
  o.ledger = ledger;
  if (!ledger) {
    o.rule = write_rule::many_per_grant;
  }
  o.on_open = [pragma = fmt::format("PRAGMA synchronous={}", sync)](
                  sqlite3* db) -> result<void> {
    sqlite3_exec(db, pragma.c_str(), nullptr, nullptr, nullptr);
    return {};
  };
  return o;
}

statement take(int i) {
  return update("stock").key("sku", sku(i)).subtract("qty", 1);
}

void fence(const std::string& path, guard_mode mode) {
  must(sqlite::add_fence(path, {.table = "stock", .guard = mode}));
}

// The other side has to be another table: a guard refuses it.
void run_guarded(const settings& o, std::string_view sync,
                 const std::string& path, sqlite_store& store, const grant& g,
                 plain& hand, table& rows) {
  fence(path, guard_mode::strict);
  hand.run("CREATE TABLE IF NOT EXISTS bare AS SELECT sku, qty FROM stock");
  hand.run("CREATE UNIQUE INDEX IF NOT EXISTS bare_sku ON bare(sku)");
  sqlite3* db = nullptr;
  sqlite3_open(path.c_str(), &db);
  sqlite3_exec(db, fmt::format("PRAGMA synchronous={}", sync).c_str(), nullptr,
               nullptr, nullptr);
  sqlite3_stmt* bare = nullptr;
  sqlite3_prepare_v2(db, "UPDATE bare SET qty = qty - 1 WHERE sku = ?1", -1,
                     &bare, nullptr);
  const side plain_update = [&](int i) {
    const auto key = sku(i);
    sqlite3_bind_text(bare, 1, key.data(), static_cast<int>(key.size()),
                      SQLITE_STATIC);
    sqlite3_step(bare);
    sqlite3_reset(bare);
  };
  rows.add(compare("built write, strict guard / UPDATE", o, plain_update,
                   [&](int i) { applied(store.write(g, take(i))); }));
  sqlite3_finalize(bare);
  sqlite3_close(db);
}

void run_mode(const settings& o, std::string_view sync, table& rows) {
  std::string path = fmt::format("{}/bench_sqlite_store.db", o.folder);
  for (const char* tail : {"", "-wal", "-shm"}) {
    std::filesystem::remove(path + tail);
  }
  must(sqlite::migrate_up(path));
  fill(path);
  fence(path, guard_mode::none);
  plain hand{path, sync};
  auto store = must(open_sqlite_store(path, options(sync, true)));
  auto columns = must(open_sqlite_store(path, options(sync, false)));
  const auto g = make_grant(1000);
  const auto old = make_grant(999);
  must(store.claim(g));

  const side plain_update = [&](int i) { hand.update(sku(i)); };
  const side plain_transaction = [&](int i) {
    hand.begin();
    hand.update(sku(i));
    hand.commit();
  };
  const auto add = [&](std::string name, const side& a, const side& b) {
    rows.add(compare(std::move(name), o, a, b));
  };
  add("built write, ledger and column / UPDATE", plain_update,
      [&](int i) { applied(store.write(g, take(i))); });
  add("built write, column only / UPDATE", plain_update,
      [&](int i) { applied(columns.write(g, take(i))); });
  {
    caller mine;
    add("transaction / BEGIN IMMEDIATE; UPDATE; COMMIT", plain_transaction,
        [&](int i) {
          must(store.transaction(
              g, [&](sqlite3* db) { mine.update(db, sku(i)); }));
        });
  }
  std::int64_t number = 0;
  add("numbered write / BEGIN IMMEDIATE; UPDATE; COMMIT", plain_transaction,
      [&](int i) { applied(store.write(g, take(i), {.sequence = ++number})); });
  add("stale write refused / UPDATE", plain_update, [&](int i) {
    if (store.write(old, take(i)).code() != errc::stale_token) {
      stop("a stale write passed");
    }
  });
  run_guarded(o, sync, path, store, g, hand, rows);
}

}  // namespace

int main(int argc, char** argv) {
  settings o;
  read_flags(argc, argv, "--repetitions --writes --folder --json",
             [&](std::string_view flag, const std::string& value) {
               if (flag == "--repetitions") {
                 o.repetitions = number(value, 5);
               } else if (flag == "--writes") {
                 o.writes = number(value, 500);
               } else if (flag == "--folder") {
                 o.folder = value;
               } else if (flag == "--json") {
                 o.json = value;
               } else {
                 return false;
               }
               return true;
             });
  fmt::print(
      "SQLite {}, WAL, synchronous NORMAL, {} repetitions of {} writes, load "
      "{:.2f}; us of processor time\n\n",
      sqlite3_libversion(), o.repetitions, o.writes, load());
  table rows;
  rows.head();
  run_mode(o, "NORMAL", rows);
  rows.write_json(o.json);
  return 0;
}
