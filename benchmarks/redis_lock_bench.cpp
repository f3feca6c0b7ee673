// What lastdoor adds to a grant and release on one Redis server, next to the
// same two scripts sent by plain hiredis, in one run, the two sides in turn.
//
//   bench_redis_lock [--repetitions N] [--pairs N] [--url URL] [--json FILE]
//
// Starts a private server with redis-server unless told a URL of the form
// redis://host:port. A repetition alternates between the two sides in small
// batches, so that a slow moment of the machine falls on both. Prints a
// Markdown table: medians over the repetitions, and the smallest and largest
// ratio. The last rows are threads that share one service, next to a plain
// connection for each thread.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <lastdoor/locks/redis.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "embedded_redis_scripts.hpp"

namespace {

using namespace lastdoor;
using namespace std::chrono_literals;
namespace scripts = detail::redis_scripts;

struct settings {
  int repetitions{7};
  int pairs{5'000};
  std::string url;
  std::string json;
};

[[noreturn]] void stop(std::string_view why) {
  fmt::print(stderr, "bench_redis_lock: {}\n", why);
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

struct spent {
  double grant{0};
  double release{0};
  [[nodiscard]] double both() const { return grant + release; }
  spent& operator+=(const spent& more) {
    grant += more.grant;
    release += more.release;
    return *this;
  }
};

// The time of two calls, one after the other.
template <class Grant, class Release>
spent timed(const Grant& grant, const Release& release) {
  const double start = seconds();
  grant();
  const double middle = seconds();
  release();
  return {middle - start, seconds() - middle};
}

// A server of our own on a free loopback port, gone with the object.
class private_server {
 public:
  private_server() : port_{free_port()} {
    pid_ = ::fork();
    if (pid_ == 0) {
      const auto port = std::to_string(port_);
      ::execlp("redis-server", "redis-server", "--port", port.c_str(), "--bind",
               "127.0.0.1", "--save", "", "--appendonly", "no", "--loglevel",
               "warning", nullptr);
      ::_exit(127);
    }
    for (int i = 0; i < 500; ++i) {
      auto* c = redisConnect("127.0.0.1", port_);
      const bool up = c != nullptr && c->err == 0;
      redisFree(c);
      if (up) {
        return;
      }
      ::usleep(10'000);
    }
    stop("redis-server does not start");
  }
  private_server(const private_server&) = delete;
  private_server& operator=(const private_server&) = delete;
  ~private_server() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] int port() const { return port_; }

 private:
  static int free_port() {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof a;
    ::bind(fd, reinterpret_cast<sockaddr*>(&a), size);
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &size);
    ::close(fd);
    return ntohs(a.sin_port);
  }
  int port_;
  pid_t pid_{-1};
};

// The floor: the same scripts by one blocking connection, as an expert would
// write it by hand for one thread. It reads the token and nothing else.
class plain {
 public:
  plain(const std::string& host, int port, std::string_view name_space)
      : c_{redisConnect(host.c_str(), port)}, space_{name_space} {
    if (c_ == nullptr || c_->err != 0) {
      stop("cannot connect");
    }
    say({"SCRIPT", "LOAD", scripts::redis_acquire.text});
    say({"SCRIPT", "LOAD", scripts::redis_release.text});
    // For tokens of its own, not beside lastdoor's.
    say({"SET", key("counter"), "1000000000000000"});
    say({"SET", key("marker"), "plain"});
  }
  plain(const plain&) = delete;
  plain& operator=(const plain&) = delete;
  ~plain() { redisFree(c_); }

  spent pair(std::string_view resource) {
    const auto lock = key("lock:") + std::string{resource};
    std::string owner;
    return timed(
        [&] {
          owner = must(owner_id::generate()).str();
          if (say({"EVALSHA", scripts::redis_acquire.sha1, "3", lock,
                   key("counter"), key("marker"), owner, "60000", "bench:1",
                   "plain"}) <= 0) {
            stop("plain: not granted");
          }
        },
        [&] {
          if (say({"EVALSHA", scripts::redis_release.sha1, "1", lock, owner,
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
  std::int64_t say(std::initializer_list<std::string_view> words) {
    const char* argv[16];
    std::size_t sizes[16];
    int n = 0;
    for (const auto w : words) {
      argv[n] = w.data();
      sizes[n++] = w.size();
    }
    auto* r = static_cast<redisReply*>(redisCommandArgv(c_, n, argv, sizes));
    if (r == nullptr || r->type == REDIS_REPLY_ERROR) {
      stop(r == nullptr ? c_->errstr : r->str);
    }
    const std::int64_t value = r->type == REDIS_REPLY_ARRAY && r->elements > 1
                                   ? r->element[1]->integer
                                   : r->integer;
    freeReplyObject(r);
    return value;
  }
  redisContext* c_;
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

using side = std::function<spent(int)>;  // runs so many pairs

// What of the time counts.
using part = double (*)(const spent&);
double of_both(const spent& s) { return s.both(); }
double of_grant(const spent& s) { return s.grant; }
double of_release(const spent& s) { return s.release; }

struct repetition {
  spent floor;
  spent ours;
};

std::vector<repetition> run(const settings& how, const side& a, const side& b) {
  constexpr int batch = 100;
  a(batch);
  b(batch);
  std::vector<repetition> all;
  for (int i = 0; i < how.repetitions; ++i) {
    repetition now;
    for (int done = 0; done < how.pairs; done += batch) {
      now.floor += a(batch);
      now.ours += b(batch);
    }
    all.push_back(now);
  }
  return all;
}

measured compare(const std::string& name, const settings& how,
                 const std::vector<repetition>& runs, part of) {
  std::vector<double> as;
  std::vector<double> bs;
  std::vector<double> ratios;
  for (const auto& r : runs) {
    as.push_back(of(r.floor) / how.pairs * 1e6);
    bs.push_back(of(r.ours) / how.pairs * 1e6);
    ratios.push_back(of(r.ours) / of(r.floor));
  }
  const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
  return {name, median(as), median(bs), median(ratios), *low, *high};
}

// One thread, part by part.
void add_parts(std::vector<measured>& to, const std::string& name,
               const settings& how, const side& a, const side& b) {
  const auto runs = run(how, a, b);
  to.push_back(compare(name + ", grant", how, runs, of_grant));
  to.push_back(compare(name + ", release", how, runs, of_release));
  to.push_back(compare(name + ", both", how, runs, of_both));
}

// `threads` threads do `n` pairs each, on resources of their own.
template <class Pair>
spent in_threads(int threads, int n, const Pair& pair) {
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

void print(const std::vector<measured>& all) {
  fmt::print(
      "| what | floor us | lastdoor us | ratio | min | max |\n"
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
  if (s.repetitions < 1 || s.pairs < 100) {
    stop("at least one repetition of 100 pairs");
  }
  return s;
}

}  // namespace

int main(int argc, char** argv) {
  const auto how = read_arguments(argc, argv);
  std::unique_ptr<private_server> server;
  std::string host = "127.0.0.1";
  int port = 6379;
  if (how.url.empty()) {
    server = std::make_unique<private_server>();
    port = server->port();
  } else {
    const auto at = how.url.find("://");
    const auto rest =
        at == std::string::npos ? how.url : how.url.substr(at + 3);
    const auto colon = rest.find(':');
    host = rest.substr(0, colon);
    port = colon == std::string::npos ? port : std::atoi(&rest[colon + 1]);
  }
  const auto url = fmt::format("redis://{}:{}", host, port);
  plain floor{host, port, "plain"};
  ours backend{url};
  whole_service service{url};
  const auto one_thread = [](auto& pairs) {
    return [&pairs](int n) {
      spent all;
      for (int i = 0; i < n; ++i) {
        all += pairs.pair("one");
      }
      return all;
    };
  };
  std::vector<measured> all;
  add_parts(all, "back end", how, one_thread(floor), one_thread(backend));
  add_parts(all, "service", how, one_thread(floor), one_thread(service));
  for (const int threads : {8, 32}) {
    std::vector<std::unique_ptr<plain>> own;
    for (int t = 0; t < threads; ++t) {
      own.push_back(std::make_unique<plain>(host, port, "plain"));
    }
    const auto runs = run(
        how,
        [&](int n) {
          return in_threads(threads, std::max(n / threads, 1),
                            [&](int t, const std::string& name) {
                              own[static_cast<std::size_t>(t)]->pair(name);
                            });
        },
        [&](int n) {
          return in_threads(
              threads, std::max(n / threads, 1),
              [&](int, const std::string& name) { service.pair(name); });
        });
    all.push_back(compare(
        fmt::format("{0} threads, one service / {0} connections", threads), how,
        runs, of_both));
  }
  print(all);
  if (!how.json.empty()) {
    write_json(how.json, all);
  }
}
