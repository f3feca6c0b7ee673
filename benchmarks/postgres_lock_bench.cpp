// What lastdoor adds to a grant and release in Postgres, next to the same two
// statements sent by plain libpq, in one run, the two sides in turn.
//
//   bench_postgres_lock --url URL [--repetitions N] [--pairs N] [--json FILE]
//
// URL names a database that may be written to; lastdoor's tables are migrated
// up there. A repetition alternates between the two sides in small batches,
// so that a slow moment of the machine falls on both. Prints a Markdown table:
// medians over the repetitions, and the smallest and largest ratio.
#include <libpq-fe.h>

#include <array>
#include <lastdoor/locks/postgres.hpp>
#include <lastdoor/migrate.hpp>

#include "bench.hpp"
#include "locks/postgres_lease_table.hpp"

namespace {

using namespace lastdoor;
using namespace lastdoor::bench;
using namespace std::chrono_literals;

struct settings {
  int repetitions{7};
  int pairs{1'000};
  std::string url;
  std::string json;
};

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

settings read_arguments(int argc, char** argv) {
  settings s;
  read_flags(argc, argv, "--url --repetitions --pairs --json",
             [&](std::string_view flag, const std::string& value) {
               if (flag == "--url") {
                 s.url = value;
               } else if (flag == "--repetitions") {
                 s.repetitions = number(value, 1);
               } else if (flag == "--pairs") {
                 s.pairs = number(value, 100);
               } else if (flag == "--json") {
                 s.json = value;
               } else {
                 return false;
               }
               return true;
             });
  if (s.url.empty()) {
    stop("--url is needed");
  }
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  const auto s = read_arguments(argc, argv);
  const plan how{s.repetitions, s.pairs, 25};
  must(postgres::migrate_up(s.url));
  bare_backend leases{must(open_postgres_backend(s.url))};
  bare_backend advisory{must(open_postgres_advisory_backend(s.url))};
  auto service = must(open_postgres_locks(s.url));
  plain floor{s.url};
  floor.add("one");
  const auto floor_side = [&](int /*i*/) { floor.pair("one"); };
  table all;
  all.head();
  all.add(compare("lease: back end / the same by libpq", how, floor_side,
                  [&](int /*i*/) { leases.pair("one"); }));
  all.add(compare("lease: service / the same by libpq", how, floor_side,
                  [&](int /*i*/) {
                    must(must(service.acquire("one", {.ttl = 60s})).release());
                  }));
  all.add(compare("advisory lock / a lease by libpq", how, floor_side,
                  [&](int /*i*/) { advisory.pair("one"); }));
  all.write_json(s.json);
}
