// What lastdoor adds to a grant and release in Postgres, next to the same two
// statements sent by plain libpq, in one run, the two sides in turn.
//
//   bench_postgres_lock --url URL [--repetitions N] [--pairs N] [--json FILE]
//
// URL names a database that may be written to; lastdoor's tables are migrated
// up there. A repetition alternates between the two sides in small batches,
// so that a slow moment of the machine falls on both. Prints a Markdown table:
// medians over the repetitions, and the smallest and largest ratio.
#include <fmt/format.h>
#include <libpq-fe.h>
#include <time.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <lastdoor/locks/postgres.hpp>
#include <lastdoor/migrate.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "locks/postgres_lease_table.hpp"

namespace {

using namespace lastdoor;
using namespace std::chrono_literals;

struct settings {
  int repetitions{7};
  int pairs{1'000};
  std::string url;
  std::string json;
};

[[noreturn]] void stop(std::string_view why) {
  fmt::print(stderr, "bench_postgres_lock: {}\n", why);
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

double seconds() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
}

// The floor: the same statements, prepared, by one blocking connection.
class plain {
 public:
  explicit plain(const std::string& url) : c_{PQconnectdb(url.c_str())} {
    prepare("take", postgres_leases::take_text());
    prepare("free", postgres_leases::free_text());
  }
  plain(const plain&) = delete;
  plain& operator=(const plain&) = delete;
  ~plain() { PQfinish(c_); }

  void pair(const char* resource) {
    const auto owner = must(owner_id::generate());
    const std::array take{"plain", resource, owner.str().c_str(), "bench:1",
                          "60000000"};
    run("take", take.data(), static_cast<int>(take.size()));
    const std::array give{"plain", resource, owner.str().c_str()};
    run("free", give.data(), static_cast<int>(give.size()));
  }
  void add(const std::string& resource) {
    PQclear(PQexec(
        c_, fmt::format("INSERT INTO lastdoor.leases VALUES ('plain', '{}', "
                        "'', 0, '-infinity', '') ON CONFLICT DO NOTHING",
                        resource)
                .c_str()));
  }

 private:
  void prepare(const char* name, std::string_view sql) {
    auto* r = PQprepare(c_, name, std::string{sql}.c_str(), 0, nullptr);
    if (PQresultStatus(r) != PGRES_COMMAND_OK) {
      stop(PQerrorMessage(c_));
    }
    PQclear(r);
  }
  void run(const char* name, const char* const* values, int n) {
    auto* r = PQexecPrepared(c_, name, n, values, nullptr, nullptr, 0);
    if (PQntuples(r) != 1) {
      stop(fmt::format("plain: {} did nothing {}", name, PQerrorMessage(c_)));
    }
    PQclear(r);
  }
  PGconn* c_;
};

class bare_backend {
 public:
  explicit bare_backend(std::unique_ptr<lock_backend> b)
      : backend_{std::move(b)} {}
  void pair(std::string_view resource) {
    const auto name = must(resource_name::parse(resource));
    const auto owner = must(owner_id::generate());
    const auto got = must(backend_->try_acquire(
        {name, owner, 60s, "bench:1", boot_clock()->now() + 10s}));
    const grant held{name, owner, got.token, backend_->source(),
                     got.valid_until};
    must(backend_->release(held, boot_clock()->now() + 10s));
  }

 private:
  std::unique_ptr<lock_backend> backend_;
};

struct measured {
  std::string name;
  double floor;
  double ours;
  double median;
  double min;
  double max;
};

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

using side = std::function<void()>;  // does one pair

measured compare(const std::string& name, const settings& how, const side& a,
                 const side& b) {
  constexpr int batch = 25;
  const auto timed = [](const side& s) {
    const double start = seconds();
    for (int i = 0; i < batch; ++i) {
      s();
    }
    return seconds() - start;
  };
  timed(a);
  timed(b);
  std::vector<double> as;
  std::vector<double> bs;
  std::vector<double> ratios;
  for (int i = 0; i < how.repetitions; ++i) {
    double ta = 0;
    double tb = 0;
    for (int done = 0; done < how.pairs; done += batch) {
      ta += timed(a);
      tb += timed(b);
    }
    as.push_back(ta / how.pairs * 1e6);
    bs.push_back(tb / how.pairs * 1e6);
    ratios.push_back(tb / ta);
  }
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  return {name, median(as), median(bs), median(ratios), *low, *high};
}

void print(const std::vector<measured>& all) {
  fmt::print(
      "| grant + release | floor us | lastdoor us | ratio | min | max |\n"
      "|---|---|---|---|---|---|\n");
  for (const auto& m : all) {
    fmt::print("| {} | {:.1f} | {:.1f} | {:.3f} | {:.3f} | {:.3f} |\n", m.name,
               m.floor, m.ours, m.median, m.min, m.max);
  }
}

void write_json(const std::string& file, const std::vector<measured>& all) {
  std::ofstream out{file};
  out << "[";
  for (const auto& m : all) {
    out << fmt::format(
        "{}{{\"name\":\"{}\",\"floor_us\":{:.3f},\"ours_us\":{:.3f},"
        "\"ratio\":{:.4f},\"ratio_min\":{:.4f},\"ratio_max\":{:.4f}}}",
        &m == all.data() ? "" : ",\n", m.name, m.floor, m.ours, m.median, m.min,
        m.max);
  }
  out << "]\n";
}

settings read_arguments(int argc, char** argv) {
  settings s;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    if (flag == "--repetitions") {
      s.repetitions = std::atoi(argv[i + 1]);
    } else if (flag == "--pairs") {
      s.pairs = std::atoi(argv[i + 1]);
    } else if (flag == "--url") {
      s.url = argv[i + 1];
    } else if (flag == "--json") {
      s.json = argv[i + 1];
    } else {
      stop(fmt::format("what is {}?", flag));
    }
  }
  if (s.repetitions < 1 || s.pairs < 100 || s.url.empty()) {
    stop("--url, and at least one repetition of 100 pairs");
  }
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  const auto how = read_arguments(argc, argv);
  must(postgres::migrate_up(how.url));
  bare_backend leases{must(open_postgres_backend(how.url))};
  bare_backend advisory{must(open_postgres_advisory_backend(how.url))};
  auto service = must(open_postgres_locks(how.url));
  plain floor{how.url};
  floor.add("one");
  const side floor_side = [&] { floor.pair("one"); };
  std::vector<measured> all;
  all.push_back(
      compare("lease, back end", how, floor_side, [&] { leases.pair("one"); }));
  all.push_back(compare("lease, service", how, floor_side, [&] {
    must(must(service.acquire("one", {.ttl = 60s})).release());
  }));
  all.push_back(compare("advisory lock / floor of a lease", how, floor_side,
                        [&] { advisory.pair("one"); }));
  print(all);
  if (!how.json.empty()) {
    write_json(how.json, all);
  }
}
