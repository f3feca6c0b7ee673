// What the fence costs on Postgres: each way of writing through the store
// next to the same SQL without it, in one run, the two sides in turn.
//
//   bench_postgres_store --url URL [--repetitions N] [--writes N]
//                        [--relay-us N] [--json FILE]
//
// URL names a database that may be written to: lastdoor's tables are migrated
// up there, and the tables bench_stock and bench_bare are made anew. With
// --relay-us, both sides go through a relay that adds that much to each round
// trip, as a LAN does; URL must then be of TCP on loopback, by port.
//
// A repetition alternates between the two sides in small batches, so that a
// slow moment of the machine falls on both. Prints a Markdown table: medians
// over the repetitions, and the smallest and largest ratio.
#include <libpq-fe.h>

#include <lastdoor/migrate.hpp>
#include <lastdoor/stores/postgres.hpp>
#include <memory>
#include <optional>
#include <pqxx/connection>
#include <pqxx/nontransaction>
#include <pqxx/result>
#include <pqxx/transaction>

#include "bench.hpp"
#include "delay_relay.hpp"

namespace {

using namespace lastdoor;
using namespace lastdoor::bench;

struct settings {
  std::string url;
  int repetitions{7};
  int writes{2'000};
  int relay_us{0};
  std::string json;
};

void applied(const result<receipt>& r) {
  if (!r || r->already_applied || r->rows != 1) {
    stop(r ? "a write was not applied once" : r.error().message());
  }
}

// The plain side: what somebody who knows libpqxx would write by hand.
class plain {
 public:
  explicit plain(const std::string& url) : db_{url} {
    db_.prepare("take",
                "UPDATE bench_bare SET qty = qty - $1 WHERE sku = $2 "
                "AND qty >= $3");
  }
  void update(const std::string& sku) {
    pqxx::nontransaction tx{db_};
    tx.exec_prepared("take", 1, sku, 1);
    tx.commit();
  }
  // With both conditions of lastdoor's own statement, for that grant.
  void fenced_update(const std::string& sku, const grant& g) {
    if (!fenced_) {
      db_.prepare("take_fenced",
                  "UPDATE bench_stock SET qty = qty - $5, fence_token = $2 "
                  "WHERE sku = $6 AND qty >= $7 AND fence_token <= $2 AND "
                  "(SELECT true FROM lastdoor.marks WHERE resource = $1 AND "
                  "token = $2 AND owner = $3 AND source = $4 FOR SHARE)");
      fenced_ = true;
    }
    pqxx::nontransaction tx{db_};
    const auto done =
        tx.exec_prepared("take_fenced", g.resource().str(), g.token().value(),
                         g.owner().str(), g.source().str(), 1, sku, 1);
    if (done.affected_rows() != 1) {
      stop("by hand: not written");
    }
  }
  void transaction(const std::string& sku) {
    pqxx::work tx{db_};
    tx.exec_params(
        "UPDATE bench_bare SET qty = qty - $1 WHERE sku = $2 AND qty >= $3", 1,
        sku, 1);
    tx.commit();
  }
  void run(const std::string& sql) {
    pqxx::nontransaction tx{db_};
    tx.exec(sql);
    tx.commit();
  }

 private:
  pqxx::connection db_;
  bool fenced_{false};
};

// A claimed transaction as an expert would send it: BEGIN and the claim in one
// go, and the statement and COMMIT as the plain side does.
class claimed_by_hand {
 public:
  explicit claimed_by_hand(const std::string& url)
      : c_{PQconnectdb(url.c_str())} {
    prepare("begin", "BEGIN");
    prepare("hold",
            "SELECT pg_current_xact_id() FROM lastdoor.marks WHERE resource = "
            "$1 AND token = $2 AND owner = $3 AND source = $4 FOR SHARE");
  }
  claimed_by_hand(const claimed_by_hand&) = delete;
  claimed_by_hand& operator=(const claimed_by_hand&) = delete;
  ~claimed_by_hand() { PQfinish(c_); }

  void transaction(const std::string& sku, const grant& g) {
    const auto token = std::to_string(g.token().value());
    const char* claim[] = {g.resource().str().c_str(), token.c_str(),
                           g.owner().str().c_str(), g.source().str().c_str()};
    PQenterPipelineMode(c_);
    PQsendQueryPrepared(c_, "begin", 0, nullptr, nullptr, nullptr, 0);
    PQsendQueryPrepared(c_, "hold", 4, claim, nullptr, nullptr, 0);
    PQpipelineSync(c_);
    bool held = false;
    for (auto status = PGRES_COMMAND_OK; status != PGRES_PIPELINE_SYNC;) {
      auto* r = PQgetResult(c_);
      status = r == nullptr ? PGRES_COMMAND_OK : PQresultStatus(r);
      held = held || (r != nullptr && PQntuples(r) == 1);
      PQclear(r);
    }
    PQexitPipelineMode(c_);
    const char* take[] = {"1", sku.c_str(), "1"};
    done(PQexecParams(c_,
                      "UPDATE bench_stock SET qty = qty - $1 WHERE sku = $2 "
                      "AND qty >= $3",
                      3, nullptr, take, nullptr, nullptr, 0));
    done(PQexec(c_, "COMMIT"));
    if (!held) {
      stop("by hand: not claimed");
    }
  }

 private:
  void prepare(const char* name, const char* sql) {
    done(PQprepare(c_, name, sql, 0, nullptr));
  }
  void done(PGresult* r) {
    if (PQresultStatus(r) != PGRES_COMMAND_OK) {
      stop(PQerrorMessage(c_));
    }
    PQclear(r);
  }
  PGconn* c_;
};

grant make_grant(std::int64_t token,
                 std::string_view resource = "stock/sku-0500") {
  return grant{must(resource_name::parse(resource)),
               must(owner_id::parse(std::string(40, 'a'))),
               must(fencing_token::from(token)),
               must(source_name::parse("postgres/bench")), time_point::max()};
}

using side = std::function<void(int)>;  // does one write

std::string sku(int i) { return fmt::format("sku-{:04}", i % 1000); }

statement take(int i) {
  return update("bench_stock")
      .key("sku", sku(i))
      .subtract("qty", 1)
      .require("qty", at_least(1));
}

void fill(plain& hand, const std::string& url) {
  for (const char* table : {"bench_stock", "bench_bare"}) {
    hand.run(fmt::format("DROP TABLE IF EXISTS {}", table));
    hand.run(
        fmt::format("CREATE TABLE {} (sku text PRIMARY KEY, qty bigint NOT "
                    "NULL) WITH (fillfactor = 50)",
                    table));
    hand.run(
        fmt::format("INSERT INTO {} SELECT 'sku-' || lpad(g::text, 4, '0'), "
                    "1000000000 FROM generate_series(0, 999) g",
                    table));
  }
  must(postgres::add_fence(url, {.table = "bench_stock"}));
}

// Eight threads, each with a row and a lease of its own.
void pool(const std::string& url, plan how, std::int64_t token, table& rows) {
  constexpr int threads = 8;
  auto store = must(open_postgres_store(url, {.connections = threads}));
  std::vector<std::unique_ptr<plain>> own;
  std::vector<grant> grants;
  for (int t = 0; t < threads; ++t) {
    own.push_back(std::make_unique<plain>(url));
    grants.push_back(make_grant(token, "stock/" + sku(t)));
    must(store.claim(grants.back()));
  }
  how.batch = 200;
  const auto all = [&](const auto& one) {
    return [&](int /*from*/, int n) { return in_threads(threads, n, one); };
  };
  const auto by_hand = [&](int t) {
    own[static_cast<std::size_t>(t)]->update(sku(t));
  };
  const auto ours = [&](int t) {
    applied(store.write(grants[static_cast<std::size_t>(t)], take(t)));
  };
  rows.add(
      row_of("8 threads, built write by one store / prepared UPDATE on a "
             "connection each",
             how, alternate(how, all(by_hand), all(ours)),
             [](double s) { return s; }));
}

void measure(const settings& o, const std::string& url, table& rows) {
  plain admin{o.url};
  plain hand{url};
  auto store = must(open_postgres_store(url));
  const auto g = make_grant(must(store.highest_mark()).value() + 2);
  const auto old = make_grant(g.token().value() - 1);
  must(store.claim(g));
  const side plain_update = [&](int i) { hand.update(sku(i)); };
  const side plain_transaction = [&](int i) { hand.transaction(sku(i)); };
  const plan how{o.repetitions, o.writes, 50};
  const auto add = [&](std::string name, const side& a, const side& b) {
    rows.add(compare(std::move(name), how, a, b));
  };
  add("built write, ledger and column / prepared UPDATE", plain_update,
      [&](int i) { applied(store.write(g, take(i))); });
  const side conditions = [&](int i) { hand.fenced_update(sku(i), g); };
  add("the same conditions by hand / prepared UPDATE", plain_update,
      conditions);
  add("built write / the same conditions by hand", conditions,
      [&](int i) { applied(store.write(g, take(i))); });
  const side transaction = [&](int i) {
    must(store.transaction(g, [&](pqxx::transaction_base& tx) {
      tx.exec_params(
          "UPDATE bench_stock SET qty = qty - $1 WHERE sku = $2 AND qty >= $3",
          1, sku(i), 1);
    }));
  };
  add("claimed transaction / BEGIN; UPDATE; COMMIT", plain_transaction,
      transaction);
  claimed_by_hand claimed{url};
  const side claim = [&](int i) { claimed.transaction(sku(i), g); };
  add("the same claim by hand / BEGIN; UPDATE; COMMIT", plain_transaction,
      claim);
  add("claimed transaction / the same claim by hand", claim, transaction);
  std::int64_t number = 0;
  add("numbered write / BEGIN; UPDATE; COMMIT", plain_transaction,
      [&](int i) { applied(store.write(g, take(i), {.sequence = ++number})); });
  add("stale write refused / prepared UPDATE", plain_update, [&](int i) {
    if (store.write(old, take(i)).code() != errc::stale_token) {
      stop("a stale write passed");
    }
  });
  pool(url, how, g.token().value(), rows);
  must(postgres::add_fence(
      o.url, {.table = "bench_stock", .guard = guard_mode::strict}));
  add("built write, strict guard / prepared UPDATE", plain_update,
      [&](int i) { applied(store.write(g, take(i))); });
  admin.run("DROP TABLE bench_stock, bench_bare");
}

// The number between "127.0.0.1:" and what follows it.
int port_of(const std::string& url) {
  constexpr std::string_view host = "127.0.0.1:";
  const auto at = url.find(host);
  if (at == std::string::npos) {
    stop("--relay-us needs a URL with 127.0.0.1:PORT");
  }
  return std::atoi(url.c_str() + at + host.size());
}

settings parse(int argc, char** argv) {
  settings o;
  read_flags(argc, argv, "--url --repetitions --writes --relay-us --json",
             [&](std::string_view flag, const std::string& value) {
               if (flag == "--url") {
                 o.url = value;
               } else if (flag == "--repetitions") {
                 o.repetitions = number(value, 5);
               } else if (flag == "--writes") {
                 o.writes = number(value, 50);
               } else if (flag == "--relay-us") {
                 o.relay_us = number(value, 0);
               } else if (flag == "--json") {
                 o.json = value;
               } else {
                 return false;
               }
               return true;
             });
  if (o.url.empty()) {
    stop("--url is needed");
  }
  return o;
}

}  // namespace

int main(int argc, char** argv) {
  const auto o = parse(argc, argv);
  must(postgres::migrate_up(o.url));
  {
    plain admin{o.url};
    fill(admin, o.url);
  }
  fmt::print("{} repetitions of {} writes, relay {} us, load {:.2f}\n\n",
             o.repetitions, o.writes, o.relay_us, load());
  table rows;
  rows.head();
  std::optional<bench::delay_relay> relay;
  auto url = o.url;
  if (o.relay_us > 0) {
    const int port = port_of(o.url);
    relay.emplace(port, std::chrono::microseconds{o.relay_us / 2});
    const auto text = std::to_string(port);
    url.replace(url.find("127.0.0.1:") + 10, text.size(),
                std::to_string(relay->port()));
  }
  measure(o, url, rows);
  rows.write_json(o.json);
  return 0;
}
