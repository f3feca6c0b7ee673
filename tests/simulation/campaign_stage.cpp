#include "simulation/campaign_stage.hpp"

#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <lastdoor/locks/redlock.hpp>
#include <thread>

namespace lastdoor::simulation {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using support::eventually;
using testing::grant_record;

namespace {

constexpr const char* counter_key = "lastdoor:{default}:redlock:counter";

redlock_options patience() {
  redlock_options o;
  o.node_timeout = 10s;
  o.call_timeout = 20s;
  return o;
}

mark mark_of(std::int64_t token) { return mark::from_store(token).value(); }

}  // namespace

campaign_stage::campaign_stage(const campaign_options& options)
    : options_{options},
      folder_{"lastdoor-campaign"},
      board_{folder_.path() / "board"},
      links_(static_cast<std::size_t>(options.processes)),
      workers_(static_cast<std::size_t>(options.processes), -1) {
  if (options.processes * options.threads > most_threads) {
    throw std::runtime_error{"too many workers"};
  }
  board_->driver = ::getpid();
  for (std::size_t k = 0; k < masters; ++k) {
    auto& s = servers_[k];
    const auto clock = folder_.path() / fmt::format("clock-{}", k);
    s.clock = std::make_unique<shared_file<std::atomic<std::int64_t>>>(clock);
    s.persistent = k < 2;
    support::redis_options how;
    how.persistent = s.persistent;
    how.settings = {"appendfsync everysec"};
    how.launcher = {"/usr/bin/env", "LD_PRELOAD=" LASTDOOR_MOVED_CLOCK,
                    "MOVED_CLOCK_FILE=" + clock.string()};
    s.redis = std::make_unique<support::temp_redis>(how);
  }
  for (std::size_t p = 1; p < links_.size(); p += 2) {
    for (std::size_t k = 0; k < masters; ++k) {
      links_[p][k] =
          std::make_unique<support::tcp_proxy>(servers_[k].redis->port());
    }
  }
  set_up(0);
  for (int p = 0; p < options.processes; ++p) {
    start_worker(p);
  }
}

campaign_stage::~campaign_stage() {
  for (int p = 0; p < options_.processes; ++p) {
    kill_worker(p);
  }
}

void campaign_stage::set_up(std::int64_t floor) {
  std::vector<std::string> urls;
  for (auto& s : servers_) {
    urls.push_back(s.redis->url());
  }
  redlock_init(urls, {.max_ttl = max_ttl, .floor = mark_of(floor)}, patience())
      .value();
}

// ---- servers

void campaign_stage::crash_and_restart(std::size_t k) {
  auto& s = servers_[k];
  s.redis->restart();
  s.paused = false;
}

void campaign_stage::crash_and_restart_empty(std::size_t k) {
  auto& s = servers_[k];
  s.redis->restart_empty();
  s.paused = false;
}

void campaign_stage::flush(std::size_t k) {
  resume(k);
  servers_[k].redis->say({"FLUSHALL"});
}

void campaign_stage::back_up(std::size_t k) {
  auto& s = servers_[k];
  resume(k);
  s.redis->say({"SAVE"});
  s.backup = folder_.path() / fmt::format("backup-{}", k);
  const auto dump = s.redis->folder() / "dump.rdb";
  fs::copy_file(dump, s.backup, fs::copy_options::overwrite_existing);
  fs::remove(dump);
}

void campaign_stage::restore(std::size_t k) {
  auto& s = servers_[k];
  if (s.backup.empty()) {
    back_up(k);
  }
  s.redis->kill_hard();
  const auto dump = s.redis->folder() / "dump.rdb";
  fs::copy_file(s.backup, dump, fs::copy_options::overwrite_existing);
  support::give_to_server(dump);
  s.redis->start();
  s.paused = false;
  fs::remove(dump);
}

void campaign_stage::pause(std::size_t k) {
  servers_[k].redis->pause();
  servers_[k].paused = true;
}

void campaign_stage::resume(std::size_t k) {
  servers_[k].redis->resume();
  servers_[k].paused = false;
}

void campaign_stage::add_to_counter(std::size_t k, std::uint64_t by) {
  resume(k);
  servers_[k].redis->say({"INCRBY", counter_key, std::to_string(by)});
}

void campaign_stage::move_clock(std::size_t k, std::chrono::milliseconds to) {
  **servers_[k].clock = std::chrono::nanoseconds{to}.count();
}

std::chrono::milliseconds campaign_stage::clock_offset(std::size_t k) {
  resume(k);
  const auto answer = servers_[k].redis->say({"TIME"});  // "seconds,us"
  const auto comma = answer.find(',');
  const auto theirs =
      std::chrono::seconds{std::stoll(answer)} +
      std::chrono::microseconds{std::stoll(answer.substr(comma + 1))};
  const auto ours = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(theirs - ours);
}

// ---- processes

std::vector<std::string> campaign_stage::urls_of(int process) {
  std::vector<std::string> urls;
  for (std::size_t k = 0; k < masters; ++k) {
    const auto* between = link(process, k);
    urls.push_back(between != nullptr ? between->redis_url()
                                      : servers_[k].redis->url());
  }
  return urls;
}

void campaign_stage::start_worker(int process) {
  // A file of its own each time: of a killed one the last record may be cut.
  const auto history =
      (folder_.path() / fmt::format("history-{}", starts_)).string();
  files_.push_back({history, 0});
  std::vector<std::string> words{
      "redlock_campaign",
      campaign_worker_command,
      folder_.path() / "board",
      history,
      std::to_string(process),
      std::to_string(options_.threads),
      std::to_string(options_.seed * 10'000 + starts_),
      std::to_string(max_ttl.count())};
  ++starts_;
  for (auto& url : urls_of(process)) {
    words.push_back(std::move(url));
  }
  std::vector<char*> argv;
  for (auto& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  pid_t pid = -1;
  const int code = ::posix_spawn(&pid, "/proc/self/exe", nullptr, nullptr,
                                 argv.data(), environ);
  if (code != 0) {
    throw std::system_error{code, std::generic_category(), "a worker"};
  }
  workers_[static_cast<std::size_t>(process)] = pid;
}

void campaign_stage::pause_worker(int process) const {
  const auto pid = workers_[static_cast<std::size_t>(process)];
  if (pid > 0) {
    ::kill(pid, SIGSTOP);
  }
}

void campaign_stage::resume_worker(int process) const {
  const auto pid = workers_[static_cast<std::size_t>(process)];
  if (pid > 0) {
    ::kill(pid, SIGCONT);
  }
}

void campaign_stage::kill_worker(int process) {
  auto& pid = workers_[static_cast<std::size_t>(process)];
  if (pid > 0) {
    ::kill(pid, SIGKILL);
    ::waitpid(pid, nullptr, 0);
  }
  pid = -1;
  for (int t = 0; t < options_.threads; ++t) {
    board_->busy[static_cast<std::size_t>(process * options_.threads + t)] = 0;
  }
}

std::optional<std::string> campaign_stage::find_dead_worker() {
  for (std::size_t p = 0; p < workers_.size(); ++p) {
    int status = 0;
    if (workers_[p] > 0 && ::waitpid(workers_[p], &status, WNOHANG) != 0) {
      workers_[p] = -1;
      return fmt::format("worker {} ended by itself, status {:#x}", p, status);
    }
  }
  return std::nullopt;
}

bool campaign_stage::hold() {
  board_->hold = 1;
  for (int p = 0; p < options_.processes; ++p) {
    resume_worker(p);
  }
  return eventually(
      [&] {
        for (const auto& busy : board_->busy) {
          if (busy != 0) {
            return false;
          }
        }
        return true;
      },
      2min);
}

void campaign_stage::operator_admits() {
  for (std::size_t k = 0; k < masters; ++k) {
    resume(k);
  }
  std::int64_t floor = 0;
  for (const auto& g : history()) {
    floor = std::max(floor, g.token);
  }
  std::vector<std::string> urls;
  for (auto& s : servers_) {
    urls.push_back(s.redis->url());
  }
  const auto ok = redlock_admit(urls, mark_of(floor), patience());
  if (ok) {
    return;
  }
  if (ok.error().code() != errc::misconfigured) {
    throw std::runtime_error{ok.error().message()};
  }
  // Nobody remembers the cluster, and those who use it know another.
  for (int p = 0; p < options_.processes; ++p) {
    kill_worker(p);
  }
  for (std::size_t k = 0; k < masters; ++k) {
    flush(k);
  }
  set_up(floor);
  for (int p = 0; p < options_.processes; ++p) {
    start_worker(p);
  }
}

// ---- the history

const std::vector<grant_record>& campaign_stage::history() {
  for (auto& file : files_) {
    std::ifstream in{file.path, std::ios::binary};
    in.seekg(file.read);
    grant_record g{};
    while (in.read(reinterpret_cast<char*>(&g), sizeof g)) {
      file.read += static_cast<std::int64_t>(sizeof g);
      history_.push_back(g);
    }
  }
  return history_;
}

std::string campaign_stage::keep(const std::string& what_happened) {
  std::string name = "/tmp/lastdoor-history-XXXXXX";
  if (::mkdtemp(name.data()) == nullptr) {
    return "nowhere";
  }
  std::ofstream{fs::path{name} / "faults"} << what_happened;
  std::ofstream grants{fs::path{name} / "grants"};
  for (const auto& g : history()) {
    grants << fmt::format("{} {} {} r{} p{}\n", g.asked_ns, g.answered_ns,
                          g.token, g.resource, g.process);
  }
  return name;
}

}  // namespace lastdoor::simulation
