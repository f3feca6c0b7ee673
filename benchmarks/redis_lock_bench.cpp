// What lastdoor adds to a grant and release on one Redis server, next to the
// same two scripts sent by plain hiredis, in one run, the two sides in turn.
//
//   bench_redis_lock [--repetitions N] [--pairs N] [--json FILE]
//
// Starts a private server. A repetition alternates between the two sides in
// small batches, so that a slow moment of the machine falls on both. Prints a
// Markdown table: medians over the repetitions, and the smallest and largest
// ratio. The last rows are threads that share one service, next to a plain
// connection for each thread.
#include <lastdoor/locks/redis.hpp>
#include <optional>
#include <thread>

#include "embedded_redis_scripts.hpp"
#include "redis_bench.hpp"

namespace {

using namespace lastdoor;
using namespace lastdoor::bench;
using namespace std::chrono_literals;
namespace scripts = detail::redis_scripts;

struct settings {
  int repetitions{7};
  int pairs{5'000};
  std::string json;
};

// The floor: the same scripts by one blocking connection, as an expert would
// write it by hand for one thread. It reads the token and nothing else.
class plain {
 public:
  plain(int port, std::string_view name_space) : c_{port}, space_{name_space} {
    c_.say({"SCRIPT", "LOAD", scripts::redis_acquire.text});
    c_.say({"SCRIPT", "LOAD", scripts::redis_release.text});
    // For tokens of its own, not beside lastdoor's.
    c_.say({"SET", key("counter"), "1000000000000000"});
    c_.say({"SET", key("marker"), "plain"});
  }

  spent pair(std::string_view resource) {
    const auto lock = key("lock:") + std::string{resource};
    std::string owner;
    return timed(
        [&] {
          owner = must(owner_id::generate()).str();
          if (number({"EVALSHA", scripts::redis_acquire.sha1, "3", lock,
                      key("counter"), key("marker"), owner, "60000", "bench:1",
                      "plain"}) <= 0) {
            stop("plain: not granted");
          }
        },
        [&] {
          if (number({"EVALSHA", scripts::redis_release.sha1, "1", lock, owner,
                      key("free:") + std::string{resource}}) != 1) {
            stop("plain: not released");
          }
        });
  }

 private:
  [[nodiscard]] std::string key(std::string_view what) const {
    return fmt::format("lastdoor:{{{}}}:{}", space_, what);
  }
  // An integer, or the second element of a list.
  std::int64_t number(words command) {
    const auto r = c_.say(command);
    return r->type == REDIS_REPLY_ARRAY && r->elements > 1
               ? r->element[1]->integer
               : r->integer;
  }
  hand c_;
  std::string space_;
};

class ours {
 public:
  explicit ours(const std::string& url)
      : backend_{must(open_redis_backend(url))} {}
  spent pair(std::string_view resource) {
    const auto name = must(resource_name::parse(resource));
    std::optional<grant> held;
    return timed(
        [&] {
          const auto owner = must(owner_id::generate());
          const auto got = must(backend_->try_acquire(
              {name, owner, 60s, "bench:1", boot_clock()->now() + 10s}));
          held.emplace(name, owner, got.token, backend_->source(),
                       got.valid_until);
        },
        [&] { must(backend_->release(*held, boot_clock()->now() + 10s)); });
  }

 private:
  std::unique_ptr<lock_backend> backend_;
};

class whole_service {
 public:
  explicit whole_service(const std::string& url)
      : locks_{must(open_redis_locks(url))} {}
  spent pair(std::string_view resource) {
    std::optional<lease> held;
    return timed(
        [&] { held.emplace(must(locks_.acquire(resource, {.ttl = 60s}))); },
        [&] { must(held->release()); });
  }

 private:
  lock_service locks_;
};

using side = std::function<spent(int, int)>;  // from, count

// One thread, part by part.
void add_parts(table& to, const std::string& name, const plan& how,
               const side& a, const side& b) {
  const auto runs = alternate(how, a, b);
  to.add(row_of(name + ": grant", how, runs, grant_of));
  to.add(row_of(name + ": release", how, runs, release_of));
  to.add(row_of(name + ": both", how, runs, both_of));
}

// `threads` threads do `n` pairs each, on resources of their own.
template <class Pair>
spent pairs_in_threads(int threads, int n, const Pair& pair) {
  const double start = seconds();
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t) {
    all.emplace_back([&, t] {
      const auto name = "resource-" + std::to_string(t);
      for (int i = 0; i < n; ++i) {
        pair(t, name);
      }
    });
  }
  for (auto& thread : all) {
    thread.join();
  }
  return {seconds() - start, 0};
}

settings read_arguments(int argc, char** argv) {
  settings s;
  read_flags(argc, argv, "--repetitions --pairs --json",
             [&](std::string_view flag, const std::string& value) {
               if (flag == "--repetitions") {
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
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  const auto s = read_arguments(argc, argv);
  const plan how{s.repetitions, s.pairs, 100};
  const private_server server;
  const auto url = fmt::format("redis://127.0.0.1:{}", server.port());
  plain floor{server.port(), "plain"};
  ours backend{url};
  whole_service service{url};
  const auto one_thread = [](auto& pairs) {
    return [&pairs](int /*from*/, int n) {
      spent all;
      for (int i = 0; i < n; ++i) {
        all += pairs.pair("one");
      }
      return all;
    };
  };
  table all;
  all.head();
  add_parts(all, "back end / EVALSHA", how, one_thread(floor),
            one_thread(backend));
  add_parts(all, "service / EVALSHA", how, one_thread(floor),
            one_thread(service));
  for (const int threads : {8, 32}) {
    std::vector<std::unique_ptr<plain>> own;
    for (int t = 0; t < threads; ++t) {
      own.push_back(std::make_unique<plain>(server.port(), "plain"));
    }
    const auto runs = alternate(
        how,
        [&](int /*from*/, int n) {
          return pairs_in_threads(
              threads, std::max(n / threads, 1),
              [&](int t, const std::string& name) {
                own[static_cast<std::size_t>(t)]->pair(name);
              });
        },
        [&](int /*from*/, int n) {
          return pairs_in_threads(
              threads, std::max(n / threads, 1),
              [&](int, const std::string& name) { service.pair(name); });
        });
    all.add(row_of(
        fmt::format("{0} threads, one service / {0} connections", threads), how,
        runs, both_of));
  }
  all.write_json(s.json);
}
