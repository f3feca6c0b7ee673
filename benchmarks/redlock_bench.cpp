// What lastdoor adds to a grant and release on a quorum of Redis masters, next
// to the same scripts sent by hand: plain hiredis on one connection to each
// server, one poll loop, all at once, done at the quorum.
//
//   bench_redlock [--repetitions N] [--pairs N] [--relay-us N] [--only WORD]
//                 [--peer COMMAND] [--json FILE]
//
// Starts private servers. The rows with a relay add that much (600) to each
// round trip, as a LAN does. With --only, the rows whose group has that name:
// pair, relay, stopped, rounds, quiet, threads, waiters, growth, sequential,
// peer. The last compares with another library: COMMAND gets the ports as
// arguments, reads numbers of pairs and answers each with the seconds that
// they took; see npm_redlock.mjs.
#include <condition_variable>
#include <deque>
#include <lastdoor/locks/redlock.hpp>
#include <mutex>
#include <optional>
#include <thread>

#include "delay_relay.hpp"
#include "locks/redlock_backend.hpp"
#include "peer.hpp"
#include "redlock_floor.hpp"

namespace {

using namespace lastdoor;
using namespace lastdoor::bench;
using namespace std::chrono_literals;

struct settings {
  int repetitions{7};
  int pairs{2'000};
  int relay_us{600};
  std::string only;
  std::string peer;
  std::string json;
};

constexpr auto ttl = 60s;

// N servers with lastdoor's own set-up, and relays before them on demand.
class servers {
 public:
  servers(std::size_t n, int relay_us) {
    std::vector<std::string> direct;
    for (std::size_t k = 0; k < n; ++k) {
      all_.push_back(std::make_unique<private_server>());
      ports_.push_back(all_.back()->port());
      direct.push_back(url(all_.back()->port()));
    }
    must(redlock_init(direct));
    for (std::size_t k = 0; k < n && relay_us > 0; ++k) {
      relays_.push_back(std::make_unique<delay_relay>(
          ports_[k], std::chrono::microseconds{relay_us / 2}));
      ports_[k] = relays_.back()->port();
    }
  }
  [[nodiscard]] const std::vector<int>& ports() const { return ports_; }
  [[nodiscard]] std::vector<std::string> urls() const {
    std::vector<std::string> all;
    for (const int port : ports_) {
      all.push_back(url(port));
    }
    return all;
  }
  [[nodiscard]] const private_server& at(std::size_t k) const {
    return *all_[k];
  }

 private:
  static std::string url(int port) {
    return fmt::format("redis://127.0.0.1:{}", port);
  }
  std::vector<std::unique_ptr<private_server>> all_;
  std::vector<std::unique_ptr<delay_relay>> relays_;
  std::vector<int> ports_;
};

redlock_options options(bool sequential = false) {
  redlock_options o;
  o.sequential = sequential;
  return o;
}

class ours {
 public:
  explicit ours(const servers& on, bool sequential = false)
      : backend_{must(open_redlock_backend(on.urls(), options(sequential)))} {}
  spent pair(const std::string& resource) {
    const auto name = must(resource_name::parse(resource));
    std::optional<lastdoor::grant> held;
    return timed(
        [&] {
          const auto owner = must(owner_id::generate());
          const auto got = must(backend_->try_acquire(
              {name, owner, ttl, "bench:1", boot_clock()->now() + 10s}));
          held.emplace(name, owner, got.token, backend_->source(),
                       got.valid_until);
        },
        [&] { must(backend_->release(*held, boot_clock()->now() + 10s)); });
  }
  [[nodiscard]] std::uint64_t second_rounds() const {
    return dynamic_cast<redlock_backend&>(*backend_).second_rounds();
  }

 private:
  std::unique_ptr<lock_backend> backend_;
};

class whole_service {
 public:
  explicit whole_service(const servers& on)
      : locks_{must(open_redlock(on.urls(), options()))} {}
  spent pair(const std::string& resource, duration wait = 0ms) {
    std::optional<lease> held;
    return timed(
        [&] {
          held.emplace(must(
              locks_.acquire(resource, {.ttl = ttl, .wait_at_most = wait})));
        },
        [&] { must(held->release()); });
  }
  // The same, and left to the destructor.
  spent pair_left_alone(const std::string& resource) {
    std::optional<lease> held;
    return timed(
        [&] { held.emplace(must(locks_.acquire(resource, {.ttl = ttl}))); },
        [&] { held.reset(); });
  }

 private:
  lock_service locks_;
};

template <class Pairs>
auto one_thread(Pairs& pairs) {
  return [&pairs](int /*from*/, int n) {
    spent all;
    for (int i = 0; i < n; ++i) {
      all += pairs.pair("one");
    }
    return all;
  };
}

const auto whole = [](double s) { return s; };

class report {
 public:
  explicit report(settings how) : how_{std::move(how)} {}

  void run() {
    fmt::print("{} repetitions of {} pairs, load {:.2f}\n\n", how_.repetitions,
               how_.pairs, load());
    rows_.head();
    for (const auto& [name, what] : {std::pair{"pair", &report::pair},
                                     {"relay", &report::relay},
                                     {"stopped", &report::stopped},
                                     {"rounds", &report::rounds},
                                     {"quiet", &report::quiet},
                                     {"threads", &report::threads},
                                     {"waiters", &report::waiters},
                                     {"growth", &report::growth},
                                     {"sequential", &report::sequential},
                                     {"peer", &report::beside_peer}}) {
      if (how_.only.empty() || how_.only == name) {
        (this->*what)();
      }
    }
    fmt::print("\n{}", notes_);
    rows_.write_json(how_.json);
  }

 private:
  [[nodiscard]] plan fast(int batch = 50) const {
    return {how_.repetitions, how_.pairs, batch};
  }
  // Round trips of a LAN: fewer are enough.
  [[nodiscard]] plan slow() const {
    return {how_.repetitions, std::max(how_.pairs / 10, 50), 25};
  }
  template <class A, class B>
  void add_pairs(const std::string& name, const plan& how, A& a, B& b) {
    const auto runs = alternate(how, one_thread(a), one_thread(b));
    rows_.add(row_of(name + ": grant", how, runs, grant_of));
    rows_.add(row_of(name + ": release", how, runs, release_of));
    rows_.add(row_of(name + ": both", how, runs, both_of));
  }

  void pair() {
    const servers five{5, 0};
    quorum_by_hand floor{five.ports()};
    ours backend{five};
    whole_service service{five};
    add_pairs("back end / by hand", fast(), floor, backend);
    add_pairs("service / by hand", fast(), floor, service);
  }

  void relay() {
    const servers five{5, how_.relay_us};
    quorum_by_hand floor{five.ports()};
    ours backend{five};
    add_pairs("LAN: back end / by hand", slow(), floor, backend);
  }

  // The median pair while one of five is stopped, beside that of all five.
  void stopped() {
    const servers five{5, 0};
    ours backend{five};
    const auto median_pair = [&] {
      std::vector<double> each;
      for (int i = 0; i < how_.pairs; ++i) {
        each.push_back(backend.pair("one").both());
      }
      return median(each);
    };
    median_pair();
    std::vector<double> healthy;
    std::vector<double> one_silent;
    for (int r = 0; r < how_.repetitions; ++r) {
      healthy.push_back(median_pair());
      five.at(2).pause();
      one_silent.push_back(median_pair());
      five.at(2).resume();
      // Until it is asked again.
      ::usleep(200'000);
      for (int i = 0; i < 100; ++i) {
        backend.pair("one");
      }
    }
    rows_.add(row_of("one of five stopped / all five: median pair", 1, healthy,
                     one_silent));
  }

  void rounds() {
    const servers five{5, 0};
    ours backend{five};
    for (int i = 0; i < 10'000; ++i) {
      backend.pair("one");
    }
    notes_ += fmt::format("second rounds in 10000 grants: {}\n",
                          backend.second_rounds());
  }

  // What the holder waits at the end of a scope.
  void quiet() {
    const servers five{5, how_.relay_us};
    whole_service service{five};
    const auto how = slow();
    const auto runs =
        alternate(how, one_thread(service), [&](int /*from*/, int n) {
          spent all;
          for (int i = 0; i < n; ++i) {
            all += service.pair_left_alone("one");
          }
          return all;
        });
    rows_.add(row_of("LAN: lease destroyed / released", how, runs, release_of));
  }

  void threads() {
    const servers five{5, 0};
    whole_service service{five};
    for (const int n : {8, 32}) {
      std::vector<std::unique_ptr<quorum_by_hand>> own;
      for (int t = 0; t < n; ++t) {
        own.push_back(std::make_unique<quorum_by_hand>(five.ports()));
      }
      const auto name = [](int t) { return "resource-" + std::to_string(t); };
      const auto how =
          plan{how_.repetitions, std::max(how_.pairs, n * 100), n * 100};
      const auto one_service = [&](int /*from*/, int count) {
        return in_threads(n, count, [&](int t) { service.pair(name(t)); });
      };
      rows_.add(
          row_of(fmt::format("{0} threads on {0} resources: one service / a "
                             "connection set each",
                             n),
                 how,
                 alternate(
                     how,
                     [&](int /*from*/, int count) {
                       return in_threads(n, count, [&](int t) {
                         own[static_cast<std::size_t>(t)]->pair(name(t));
                       });
                     },
                     one_service),
                 whole));
      rows_.add(row_of(fmt::format("{} threads on as many resources: one "
                                   "service / one thread, all at once",
                                   n),
                       how,
                       alternate(
                           how,
                           [&](int /*from*/, int count) {
                             return seconds_of([&] {
                               for (int done = 0; done < count; done += n) {
                                 own[0]->pairs_at_once(
                                     static_cast<std::size_t>(n));
                               }
                             });
                           },
                           one_service),
                       whole));
    }
  }

  // Eight waiters of one process on one resource; the floor is a line in the
  // process, whose first takes the lease by hand.
  void waiters() {
    const servers five{5, 0};
    quorum_by_hand floor{five.ports()};
    whole_service service{five};
    constexpr int n = 8;
    line queue;
    std::mutex at;
    double worst[2] = {0, 0};
    const auto longest_wait = [&](int side, double wait) {
      const std::lock_guard lock{at};
      worst[side] = std::max(worst[side], wait);
    };
    const auto how = fast(400);
    rows_.add(row_of("8 waiters on one resource / a line and by hand", how,
                     alternate(
                         how,
                         [&](int /*from*/, int count) {
                           return in_threads(n, count, [&](int /*t*/) {
                             longest_wait(0, seconds_of([&] {
                                            queue.enter();
                                            floor.grant("one");
                                          }));
                             floor.release();
                             queue.leave();
                           });
                         },
                         [&](int /*from*/, int count) {
                           return in_threads(n, count, [&](int /*t*/) {
                             longest_wait(1, service.pair("one", 10s).grant);
                           });
                         }),
                     whole));
    notes_ += fmt::format("worst wait of 8: {:.2f} ms by hand, {:.2f} ms\n",
                          worst[0] * 1e3, worst[1] * 1e3);
  }

  void growth() {
    const servers three{3, how_.relay_us};
    const servers fifteen{15, how_.relay_us};
    ours few{three};
    ours many{fifteen};
    quorum_by_hand few_by_hand{three.ports()};
    quorum_by_hand many_by_hand{fifteen.ports()};
    const auto how = slow();
    rows_.add(row_of("LAN: 15 servers / 3 servers: grant", how,
                     alternate(how, one_thread(few), one_thread(many)),
                     grant_of));
    rows_.add(row_of(
        "LAN: the same by hand", how,
        alternate(how, one_thread(few_by_hand), one_thread(many_by_hand)),
        grant_of));
  }

  void sequential() {
    for (const int relay_us : {0, how_.relay_us}) {
      const servers five{5, relay_us};
      ours at_once{five};
      ours in_turn{five, true};
      const auto how = relay_us > 0 ? slow() : fast();
      rows_.add(row_of(fmt::format("{}one after the other / at once: both",
                                   relay_us > 0 ? "LAN: " : ""),
                       how,
                       alternate(how, one_thread(at_once), one_thread(in_turn)),
                       both_of));
    }
  }

  void beside_peer() {
    if (how_.peer.empty()) {
      return;
    }
    const servers five{5, 0};
    peer other{how_.peer, five.ports()};
    ours backend{five};
    whole_service service{five};
    const auto how = fast(200);
    const auto theirs = [&](int /*from*/, int n) { return other.pairs(n); };
    const auto add = [&](const char* name, auto& pairs) {
      rows_.add(row_of(name, how,
                       alternate(how, theirs,
                                 [&](int /*from*/, int n) {
                                   return seconds_of([&] {
                                     for (int i = 0; i < n; ++i) {
                                       pairs.pair("one");
                                     }
                                   });
                                 }),
                       whole));
    };
    add("back end / peer: both", backend);
    add("service / peer: both", service);
  }

  // First come first served, each woken alone.
  class line {
   public:
    void enter() {
      std::unique_lock lock{mutex_};
      if (!taken_) {
        taken_ = true;
        return;
      }
      place mine;
      waiting_.push_back(&mine);
      mine.bell.wait(lock, [&] { return mine.turn; });
    }
    void leave() {
      const std::lock_guard lock{mutex_};
      if (waiting_.empty()) {
        taken_ = false;
        return;
      }
      waiting_.front()->turn = true;
      waiting_.front()->bell.notify_one();
      waiting_.pop_front();
    }

   private:
    struct place {
      std::condition_variable bell;
      bool turn{false};
    };
    std::mutex mutex_;
    std::deque<place*> waiting_;
    bool taken_{false};
  };

  settings how_;
  table rows_;
  std::string notes_;
};

}  // namespace

int main(int argc, char** argv) {
  settings s;
  read_flags(argc, argv,
             "--repetitions --pairs --relay-us --only --peer --json",
             [&](std::string_view flag, const std::string& value) {
               if (flag == "--repetitions") {
                 s.repetitions = number(value, 1);
               } else if (flag == "--pairs") {
                 s.pairs = number(value, 100);
               } else if (flag == "--relay-us") {
                 s.relay_us = number(value, 2);
               } else if (flag == "--only") {
                 s.only = value;
               } else if (flag == "--peer") {
                 s.peer = value;
               } else if (flag == "--json") {
                 s.json = value;
               } else {
                 return false;
               }
               return true;
             });
  report{std::move(s)}.run();
}
