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
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <lastdoor/migrate.hpp>
#include <lastdoor/stores/postgres.hpp>
#include <memory>
#include <optional>
#include <pqxx/connection>
#include <pqxx/nontransaction>
#include <pqxx/result>
#include <pqxx/transaction>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "delay_relay.hpp"

namespace {

using namespace lastdoor;

struct settings {
  std::string url;
  int repetitions{7};
  int writes{2'000};
  int relay_us{0};
  std::string json;
};

[[noreturn]] void stop(std::string_view why) {
  fmt::print(stderr, "bench_postgres_store: {}\n", why);
  std::exit(1);
}

template <class T>
T must(result<T> r) {
  if (!r) {
    stop(r.error().message());
  }
  if constexpr (!std::is_void_v<T>) {
    return std::move(*r);
  }
}

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
};

grant make_grant(std::int64_t token) {
  return grant{must(resource_name::parse("stock/sku-0500")),
               must(owner_id::parse(std::string(40, 'a'))),
               must(fencing_token::from(token)),
               must(source_name::parse("postgres/bench")), time_point::max()};
}

using side = std::function<void(int)>;  // does one write

struct comparison {
  std::string name;
  double plain_us;
  double lastdoor_us;
  double ratio;
  double lowest;
  double highest;
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

double seconds_of(const side& s, int from, int count) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = from; i < from + count; ++i) {
    s(i);
  }
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

comparison compare(std::string name, const settings& o, const side& a,
                   const side& b) {
  constexpr int batch = 50;
  std::vector<double> plain_us;
  std::vector<double> fenced_us;
  std::vector<double> ratios;
  seconds_of(a, 0, batch);
  seconds_of(b, 0, batch);
  for (int r = 0; r < o.repetitions; ++r) {
    double sum_a = 0;
    double sum_b = 0;
    for (int done = 0; done < o.writes; done += batch) {
      sum_a += seconds_of(a, done, batch);
      sum_b += seconds_of(b, done, batch);
    }
    plain_us.push_back(sum_a / o.writes * 1e6);
    fenced_us.push_back(sum_b / o.writes * 1e6);
    ratios.push_back(sum_b / sum_a);
  }
  return {std::move(name),
          median(plain_us),
          median(fenced_us),
          median(ratios),
          *std::min_element(ratios.begin(), ratios.end()),
          *std::max_element(ratios.begin(), ratios.end())};
}

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

void measure(const settings& o, const std::string& url,
             std::vector<comparison>& table) {
  plain admin{o.url};
  plain hand{url};
  auto store = must(open_postgres_store(url));
  const auto g = make_grant(must(store.highest_mark()).value() + 2);
  const auto old = make_grant(g.token().value() - 1);
  must(store.claim(g));
  const side plain_update = [&](int i) { hand.update(sku(i)); };
  const side plain_transaction = [&](int i) { hand.transaction(sku(i)); };
  const auto add = [&](std::string name, const side& a, const side& b) {
    table.push_back(compare(std::move(name), o, a, b));
    const auto& r = table.back();
    fmt::print("| {} | {:.0f} | {:.0f} | {:.2f} | {:.2f}-{:.2f} |\n", r.name,
               r.plain_us, r.lastdoor_us, r.ratio, r.lowest, r.highest);
    std::fflush(stdout);
  };
  add("built write, ledger and column / prepared UPDATE", plain_update,
      [&](int i) { applied(store.write(g, take(i))); });
  add("claimed transaction / BEGIN; UPDATE; COMMIT", plain_transaction,
      [&](int i) {
        must(store.transaction(g, [&](pqxx::transaction_base& tx) {
          tx.exec_params(
              "UPDATE bench_stock SET qty = qty - $1 WHERE sku = $2 "
              "AND qty >= $3",
              1, sku(i), 1);
        }));
      });
  std::int64_t number = 0;
  add("numbered write / BEGIN; UPDATE; COMMIT", plain_transaction,
      [&](int i) { applied(store.write(g, take(i), {.sequence = ++number})); });
  add("stale write refused / prepared UPDATE", plain_update, [&](int i) {
    if (store.write(old, take(i)).code() != errc::stale_token) {
      stop("a stale write passed");
    }
  });
  must(postgres::add_fence(
      o.url, {.table = "bench_stock", .guard = guard_mode::strict}));
  add("built write, strict guard / prepared UPDATE", plain_update,
      [&](int i) { applied(store.write(g, take(i))); });
  admin.run("DROP TABLE bench_stock, bench_bare");
}

void write_json(const settings& o, const std::vector<comparison>& table) {
  std::ofstream out{o.json};
  out << "[\n";
  for (std::size_t i = 0; i < table.size(); ++i) {
    const auto& r = table[i];
    out << fmt::format(
        "  {{\"name\": \"{}\", \"relay_us\": {}, \"plain_us\": {:.3f}, "
        "\"lastdoor_us\": {:.3f}, \"ratio\": {:.3f}, \"ratio_min\": {:.3f}, "
        "\"ratio_max\": {:.3f}}}{}\n",
        r.name, o.relay_us, r.plain_us, r.lastdoor_us, r.ratio, r.lowest,
        r.highest, i + 1 < table.size() ? "," : "");
  }
  out << "]\n";
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
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--url") {
      o.url = argv[i + 1];
    } else if (flag == "--repetitions") {
      o.repetitions = std::max(5, std::atoi(argv[i + 1]));
    } else if (flag == "--writes") {
      o.writes = std::max(50, std::atoi(argv[i + 1]));
    } else if (flag == "--relay-us") {
      o.relay_us = std::max(0, std::atoi(argv[i + 1]));
    } else if (flag == "--json") {
      o.json = argv[i + 1];
    } else {
      o.url.clear();
      break;
    }
  }
  if (o.url.empty()) {
    stop("flags: --url --repetitions --writes --relay-us --json");
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
  double load[3] = {0, 0, 0};
  static_cast<void>(getloadavg(load, 3));
  fmt::print("{} repetitions of {} writes, relay {} us, load {:.2f}\n\n",
             o.repetitions, o.writes, o.relay_us, load[0]);
  fmt::print(
      "| what / what with | plain us | lastdoor us | ratio | min-max |\n"
      "|---|---|---|---|---|\n");
  std::optional<bench::delay_relay> relay;
  auto url = o.url;
  if (o.relay_us > 0) {
    const int port = port_of(o.url);
    relay.emplace(port, std::chrono::microseconds{o.relay_us / 2});
    const auto text = std::to_string(port);
    url.replace(url.find("127.0.0.1:") + 10, text.size(),
                std::to_string(relay->port()));
  }
  std::vector<comparison> table;
  measure(o, url, table);
  if (!o.json.empty()) {
    write_json(o, table);
  }
  return 0;
}
