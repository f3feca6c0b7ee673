#include "cli/demo/demo.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>
#include <utility>

#include "cli/backends.hpp"
#include "cli/demo/report.hpp"
#include "cli/redact.hpp"

namespace lastdoor::cli {

namespace {

constexpr std::int64_t stock_of_each_sku = 1'000'000;
constexpr int attempts_most = 3;

// A folder of our own that goes when we go.
class temporary_folder {
 public:
  [[nodiscard]] static result<temporary_folder> make() {
    std::error_code ec;
    auto base = std::filesystem::temp_directory_path(ec);
    std::string name = (ec ? "/tmp" : base.string()) + "/lastdoor-demo-XXXXXX";
    if (::mkdtemp(name.data()) == nullptr) {
      return fail(errc::misconfigured,
                  fmt::format("{}: {}", name, std::strerror(errno)));
    }
    return temporary_folder{std::move(name)};
  }
  temporary_folder(temporary_folder&& other) noexcept
      : path_{std::exchange(other.path_, {})} {}
  temporary_folder& operator=(temporary_folder&&) = delete;
  ~temporary_folder() {
    std::error_code ec;
    if (!path_.empty()) {
      std::filesystem::remove_all(path_, ec);
    }
  }
  [[nodiscard]] std::string url(std::string_view file) const {
    return fmt::format("sqlite:{}/{}", path_, file);
  }

 private:
  explicit temporary_folder(std::string path) : path_{std::move(path)} {}
  std::string path_;
};

// The demo's tables, for the time of one round.
class tables {
 public:
  [[nodiscard]] static result<tables> make(demo_inventory& i, int skus) {
    if (auto ok = i.create(skus, stock_of_each_sku); !ok) {
      return ok.error();
    }
    return tables{i};
  }
  tables(tables&& other) noexcept : of_{std::exchange(other.of_, nullptr)} {}
  tables& operator=(tables&&) = delete;
  ~tables() {
    if (of_ != nullptr) {
      of_->drop().ignore();  // the next demo says so if they are still there
    }
  }

 private:
  explicit tables(demo_inventory& i) : of_{&i} {}
  demo_inventory* of_;
};

class demo {
 public:
  demo(const demo_options& o, const output& out)
      : o_{o},
        out_{out},
        live_{!out.as_json() && ::isatty(STDOUT_FILENO) == 1} {}

  int run();

 private:
  result<void> prepare();
  result<round_report> round(bool fenced);
  result<round_report> once(const round_options& r);
  void say(std::string_view text) const {
    if (!out_.as_json()) {
      static_cast<void>(output::write(text));
    }
  }
  void introduce() const;
  int conclude(const round_report& lock_only, const round_report& fenced);

  const demo_options& o_;
  const output& out_;
  const bool live_;
  std::uint64_t seed_{0};
  std::string locks_, store_;
  // In this order: the inventory closes before its folder goes.
  std::optional<temporary_folder> folder_;
  std::unique_ptr<demo_inventory> inventory_;
  std::optional<signal_inbox> signals_;
};

result<void> demo::prepare() {
  std::random_device kernel;
  seed_ = o_.seed ? *o_.seed : kernel();
  locks_ = o_.locks;
  store_ = o_.store;
  if (locks_.empty() || store_.empty()) {
    auto folder = temporary_folder::make();
    if (!folder) {
      return folder.error();
    }
    folder_.emplace(std::move(*folder));
  }
  if (locks_.empty()) {
    locks_ = folder_->url("locks.db");
  }
  if (store_.empty()) {
    store_ = folder_->url("shop.db");
    auto m = open_migrator(store_);
    if (!m) {
      return m.error();
    }
    if (auto ok = (*m)->up(); !ok) {
      return ok.error();
    }
  }
  // An unusable lock service is better told by one process than by four.
  if (auto locks = open_locks(locks_); !locks) {
    return locks.error();
  }
  auto inventory = open_demo_inventory(store_);
  if (!inventory) {
    return inventory.error();
  }
  inventory_ = std::move(*inventory);
  return {};
}

void demo::introduce() const {
  say(fmt::format(
      "{} workers, {} SKUs of {} units, {} s a round, seed {}\n"
      "locks {}\nstore {}\n\n"
      "A sale reads the stock, looks at its lease, and writes the stock less "
      "what it sold.\nSome workers are stopped (SIGSTOP) between reading and "
      "writing, past their TTL,\nuntil another one has sold the same SKU.\n",
      o_.workers, o_.skus, stock_of_each_sku, o_.seconds, seed_,
      redacted(locks_), redacted(store_)));
}

result<round_report> demo::once(const round_options& r) {
  auto mine = tables::make(*inventory_, o_.skus);
  if (!mine) {
    return mine.error();
  }
  return run_round(
      r, *inventory_, *signals_, [this](duration d, const round_counts& c) {
        if (live_) {
          say(fmt::format(
              "  {} s: {} grants, {} pauses, {} takeovers, late "
              "writes: {} accepted, {} refused\n",
              std::chrono::duration_cast<std::chrono::seconds>(d).count(),
              c.grants, c.pauses, c.takeovers, c.accepted,
              c.stopped_by_clock + c.refused_by_store));
        }
      });
}

// Again, with another seed, when chance did not bring what is to be shown.
result<round_report> demo::round(bool fenced) {
  say(fenced ? "\nRound two: through lastdoor\n"
             : "\nRound one: the lock alone\n");
  round_options r{locks_,
                  store_,
                  fenced,
                  seed_,
                  o_.workers,
                  o_.skus,
                  std::chrono::seconds{o_.seconds}};
  for (int attempt = 1;; ++attempt) {
    auto report = once(r);
    if (!report) {
      return report;
    }
    const bool exercised = fenced ? report->counts.refused_by_store > 0 ||
                                        report->units_off() != 0 ||
                                        report->counts.accepted != 0
                                  : report->units_off() != 0;
    if (exercised || attempt == attempts_most) {
      say(timeline(*report, r.ttl));
      return report;
    }
    say("  nothing to see this time; once more\n");
    r.seed += 1;
  }
}

int demo::conclude(const round_report& lock_only, const round_report& fenced) {
  const auto verdict = judge_demo(lock_only, fenced);
  const json object = {
      {"seed", std::to_string(seed_)},
      {"workers", o_.workers},
      {"seconds", o_.seconds},
      {"locks", redacted(locks_)},
      {"store", redacted(store_)},
      {"rounds", json::array({to_json(lock_only), to_json(fenced)})},
      {"verdict", name_of(verdict)}};
  const int code =
      out_.done(object, "\n" + comparison(lock_only, fenced) + "\n" +
                            verdict_text(lock_only, fenced));
  if (code != 0) {
    return code;
  }
  return verdict == demo_verdict::shown ? 0 : 1;
}

int demo::run() {
  auto signals = signal_inbox::open({SIGINT, SIGTERM, SIGHUP, SIGQUIT});
  if (!signals) {
    return out_.failed(signals.error());
  }
  signals_.emplace(std::move(*signals));
  if (auto ok = prepare(); !ok) {
    return out_.failed(ok.error());
  }
  introduce();
  auto lock_only = round(false);
  if (!lock_only) {
    return out_.failed(lock_only.error());
  }
  auto fenced = round(true);
  if (!fenced) {
    return out_.failed(fenced.error());
  }
  return conclude(*lock_only, *fenced);
}

}  // namespace

int run_demo(const demo_options& o, const output& out) {
  return demo{o, out}.run();
}

}  // namespace lastdoor::cli
