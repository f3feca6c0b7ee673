// A process of the campaign: some threads of it share one lock service, take
// a lease on one of a few resources, write down the grant, and let go.
#include <sys/prctl.h>
#include <time.h>

#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <lastdoor/locks/redlock.hpp>
#include <lastdoor/testing/lock_history.hpp>
#include <random>
#include <thread>
#include <vector>

#include "locks/redlock_backend.hpp"
#include "simulation/campaign_board.hpp"
#include "simulation/redlock_campaign.hpp"

namespace lastdoor::simulation {

namespace {

using namespace std::chrono_literals;
using testing::grant_record;

constexpr std::uint64_t resources = 4;

struct arguments {
  std::string board;
  std::string history;
  int process{0};
  int threads{0};
  std::uint64_t seed{0};
  std::chrono::milliseconds max_ttl{};
  std::vector<std::string> urls;
};

std::uint64_t number(const char* text) {
  std::uint64_t value = 0;
  std::from_chars(text, text + std::strlen(text), value);
  return value;
}

std::int64_t monotonic_ns() {
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec * 1'000'000'000 + t.tv_nsec;
}

class worker {
 public:
  explicit worker(const arguments& with)
      : with_{with}, board_{with.board}, locks_{open()} {
    history_ = ::open(with.history.c_str(),
                      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (history_ < 0) {
      throw std::system_error{errno, std::generic_category(), with.history};
    }
  }
  worker(const worker&) = delete;
  worker& operator=(const worker&) = delete;
  ~worker() { ::close(history_); }

  void run() {
    if (::getppid() != board_->driver) {
      return;  // it died before we could ask to die with it
    }
    std::vector<std::thread> all;
    for (int t = 0; t < with_.threads; ++t) {
      all.emplace_back([this, t] { work(t); });
    }
    for (auto& t : all) {
      t.join();
    }
  }

 private:
  lock_service open() {
    redlock_options o;
    o.call_timeout = 300ms;
    o.node_timeout = 100ms;
    o.sequential = with_.process % 3 == 2;
    auto made = open_redlock_backend(with_.urls, o).value();
    backend_ = &dynamic_cast<redlock_backend&>(*made);
    return lock_service{std::move(made), o.service};
  }

  void work(int thread) {
    std::mt19937_64 chance{with_.seed * 1'000 +
                           static_cast<std::uint64_t>(thread)};
    auto& busy = board_->busy[static_cast<std::size_t>(
        with_.process * with_.threads + thread)];
    while (board_->stop == 0) {
      busy = 1;
      if (board_->hold != 0) {
        busy = 0;
        std::this_thread::sleep_for(5ms);
        continue;
      }
      auto held = acquire(chance);
      busy = 0;
      if (held) {
        let_go(std::move(*held), chance);
      } else if (held.error().code() != errc::busy) {
        std::this_thread::sleep_for(5ms);  // nobody had to wait for that
      }
    }
  }

  result<lease> acquire(std::mt19937_64& chance) {
    const auto resource = static_cast<int>(chance() % resources);
    const auto longest = static_cast<std::uint64_t>(with_.max_ttl.count());
    acquire_options how;
    how.ttl = std::chrono::milliseconds{longest / 2 + chance() % (longest / 2)};
    how.wait_at_most = std::chrono::milliseconds{chance() % (2 * longest)};
    // Late grants are the ones to look at.
    how.minimum_validity = 1ms;
    how.renew = chance() % 2 == 0;
    how.backoff = {.first = 1ms, .cap = 20ms};
    const auto asked = monotonic_ns();
    auto held = locks_.acquire("r" + std::to_string(resource), how);
    const auto answered = monotonic_ns();
    // Now, not at the end: this process may be killed. Differences, so that
    // the sum is right whichever thread is first.
    const std::uint64_t rounds = backend_->second_rounds();
    board_->second_rounds += rounds - told_rounds_.exchange(rounds);
    if (held) {
      write_down(
          {asked, answered, 0, held->token().value(), resource, with_.process});
    } else {
      ++board_->failures[static_cast<std::size_t>(held.error().code())];
    }
    return held;
  }

  void write_down(const grant_record& g) const {
    // At once and whole: this process may be killed in a moment.
    if (::write(history_, &g, sizeof g) != sizeof g) {
      std::perror("writing the history");
      std::abort();
    }
  }

  void let_go(lease held, std::mt19937_64& chance) {
    const auto way = chance() % 500;
    if (way < 25) {
      std::this_thread::sleep_for(std::chrono::milliseconds{chance() % 20});
    }
    if (way < 15) {
      board_->renewals += held.renew() ? 1U : 0U;
    }
    board_->losses += held.why_lost() ? 1U : 0U;
    if (way < 350) {
      held.release().ignore();
    } else if (way == 499) {
      static_cast<void>(std::move(held).orphan());
    }
  }

  const arguments& with_;
  shared_file<campaign_board> board_;
  redlock_backend* backend_{nullptr};
  lock_service locks_;
  int history_{-1};
  std::atomic<std::uint64_t> told_rounds_{0};
};

}  // namespace

// campaign-worker BOARD HISTORY PROCESS THREADS SEED MAX_TTL_MS URL...
int run_campaign_worker(int argc, char** argv) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (argc < 9) {
    std::fprintf(stderr, "a campaign's worker is started by the campaign\n");
    return 2;
  }
  arguments with;
  with.board = argv[2];
  with.history = argv[3];
  with.process = static_cast<int>(number(argv[4]));
  with.threads = static_cast<int>(number(argv[5]));
  with.seed = number(argv[6]);
  with.max_ttl = std::chrono::milliseconds{number(argv[7])};
  with.urls.assign(argv + 8, argv + argc);
  try {
    worker{with}.run();
  } catch (const std::exception& e) {
    std::fprintf(stderr, "a campaign's worker: %s\n", e.what());
    return 1;
  }
  return 0;
}

}  // namespace lastdoor::simulation
