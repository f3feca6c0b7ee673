#include "cli/demo/round.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <sys/wait.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "cli/demo/worker_process.hpp"

namespace lastdoor::cli {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

time_point now() { return boot_clock()->now(); }
std::int64_t now_ns() { return now().time_since_epoch().count(); }

struct seat {
  worker_process process;
  demo_event granted{demo_event_kind::granted};  // of the tenure under way
  std::optional<demo_pause> pause{};
  bool stopped{false};
  time_point patience{};  // a stopped one is resumed by then in any case
};

class coordinator {
 public:
  coordinator(const round_options& o, const signal_inbox& signals,
              const round_progress& progress)
      : o_{o}, signals_{signals}, progress_{progress} {
    report_.fenced = o.fenced;
  }

  result<void> start();
  result<void> run();
  round_report take_report() { return std::move(report_); }

 private:
  void wait();
  void on_event(seat& s, const demo_event& e);
  void on_here(seat& s, const demo_event& e);
  void on_sale(seat& s, const demo_event& e);
  void on_late(seat& s, const demo_event& e);
  void resume(seat& s);
  void keep_time();
  void keep_example(const demo_pause& p);
  [[nodiscard]] bool open_seats() const;
  [[nodiscard]] bool shown() const;
  [[nodiscard]] bool goes_on(time_point t) const;
  [[nodiscard]] std::ptrdiff_t pauses_under_way() const;
  result<void> reap();

  const round_options& o_;
  const signal_inbox& signals_;
  const round_progress& progress_;
  std::vector<seat> seats_;
  round_report report_;
  time_point start_{}, end_{}, encore_{}, last_call_{}, next_progress_{};
  bool ending_{false};
  int interrupted_{0};
};

result<void> coordinator::start() {
  for (int i = 1; i <= o_.workers; ++i) {
    auto w = worker_process::start(
        {o_.locks, o_.store, o_.fenced, i, o_.skus, o_.seed,
         std::chrono::duration_cast<milliseconds>(o_.ttl).count()});
    if (!w) {
      return w.error();  // the others are killed as their seats go
    }
    seats_.push_back(seat{std::move(*w)});
  }
  start_ = now();
  report_.started_ns = now_ns();
  end_ = start_ + o_.lasting;
  encore_ = end_ + seconds{10};
  last_call_ = encore_ + seconds{20};
  next_progress_ = start_ + seconds{1};
  return {};
}

result<void> coordinator::run() {
  while (open_seats()) {
    wait();
    if (interrupted_ != 0) {
      return fail(errc::canceled,
                  fmt::format("ended by {}", signal_name(interrupted_)));
    }
    keep_time();
    if (now() > last_call_) {
      return fail(errc::internal, "a worker does not end");
    }
  }
  return reap();
}

void coordinator::wait() {
  std::vector<pollfd> watched{{signals_.fd(), POLLIN, 0}};
  for (const seat& s : seats_) {
    watched.push_back({s.process.events_fd(), POLLIN, 0});
  }
  ::poll(watched.data(), watched.size(), 10);
  while (const int s = signals_.next()) {
    interrupted_ = s;
  }
  for (std::size_t i = 0; i < seats_.size(); ++i) {
    if (watched[i + 1].revents == 0) {
      continue;
    }
    for (const demo_event& e : seats_[i].process.read_events()) {
      on_event(seats_[i], e);
    }
  }
}

void coordinator::on_event(seat& s, const demo_event& e) {
  switch (e.kind) {
    case demo_event_kind::granted:
      ++report_.counts.grants;
      s.granted = e;
      break;
    case demo_event_kind::here:
      on_here(s, e);
      break;
    case demo_event_kind::sold:
      ++report_.counts.sales;
      on_sale(s, e);
      on_late(s, e);
      break;
    case demo_event_kind::refused:
      on_late(s, e);
      break;
    case demo_event_kind::lost_time:
      ++report_.counts.grants;
      break;
    case demo_event_kind::failed:
      ++report_.counts.failures;
      if (report_.first_failure.empty()) {
        report_.first_failure = e.text;
      }
      s.pause.reset();
      break;
  }
}

// A worker stands between reading and writing. Stop it there, unless too few
// others would be left to take over.
void coordinator::on_here(seat& s, const demo_event& e) {
  const auto most = std::max<std::ptrdiff_t>(1, o_.workers / 2);
  if (!ending_ && goes_on(now()) && pauses_under_way() < most &&
      s.process.stop()) {
    demo_pause p;
    p.worker = static_cast<int>(&s - seats_.data()) + 1;
    p.pid = s.process.pid();
    p.granted = e;
    p.granted.at_ns = s.granted.at_ns;
    p.stopped_ns = now_ns();
    s.pause = p;
    s.stopped = true;
    s.patience = now() + 6 * o_.ttl + seconds{1};
    ++report_.counts.pauses;
  } else {
    s.process.resume();  // in case it was stopped in part
  }
  s.process.tell(demo_go);  // read when it runs again
}

// Somebody sold: was a stopped worker in the middle of selling the same?
void coordinator::on_sale(seat& s, const demo_event& e) {
  for (seat& other : seats_) {
    if (&other == &s || !other.stopped || other.pause->taker ||
        other.pause->granted.sku != e.sku ||
        other.pause->granted.token >= e.token) {
      continue;
    }
    other.pause->taker = static_cast<int>(&s - seats_.data()) + 1;
    other.pause->taken = e;
    ++report_.counts.takeovers;
    resume(other);
  }
}

void coordinator::resume(seat& s) {
  s.stopped = false;
  s.pause->resumed_ns = now_ns();
  s.process.resume();
}

void coordinator::on_late(seat& s, const demo_event& e) {
  if (!s.pause || s.pause->granted.token != e.token) {
    return;
  }
  s.pause->late = e;
  round_counts& c = report_.counts;
  if (!s.pause->taker) {
    ++c.not_overtaken;
  } else if (e.kind == demo_event_kind::sold) {
    ++c.accepted;
  } else if (e.by_store) {
    ++c.refused_by_store;
  } else {
    ++c.stopped_by_clock;
  }
  keep_example(*s.pause);
  s.pause.reset();
}

// The first pause with a takeover; better still, one that ended at the store.
void coordinator::keep_example(const demo_pause& p) {
  const bool better =
      report_.example && p.late->by_store && !report_.example->late->by_store;
  if (p.taker && (!report_.example || better)) {
    report_.example = p;
  }
}

void coordinator::keep_time() {
  const auto t = now();
  for (seat& s : seats_) {
    if (s.stopped && t >= s.patience) {
      resume(s);
    }
  }
  if (!ending_ && !goes_on(t) && pauses_under_way() == 0) {
    ending_ = true;
    for (seat& s : seats_) {
      s.process.tell(demo_end);
    }
  }
  if (t >= next_progress_) {
    next_progress_ += seconds{1};
    progress_(t - start_, report_.counts);
  }
}

// What the round is for has happened at least once.
bool coordinator::shown() const {
  const round_counts& c = report_.counts;
  return o_.fenced ? c.refused_by_store > 0 : c.accepted > 0;
}

// On a slow machine the time that was asked for may see no takeover at all;
// then the round goes on for a while.
bool coordinator::goes_on(time_point t) const {
  return t < end_ || (t < encore_ && !shown());
}

bool coordinator::open_seats() const {
  return std::any_of(seats_.begin(), seats_.end(),
                     [](const seat& s) { return s.process.events_fd() >= 0; });
}

std::ptrdiff_t coordinator::pauses_under_way() const {
  return std::count_if(seats_.begin(), seats_.end(),
                       [](const seat& s) { return s.stopped; });
}

result<void> coordinator::reap() {
  for (seat& s : seats_) {
    const int status = s.process.reap();
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
      return fail(errc::internal, fmt::format("a worker failed, wait status "
                                              "{:#x}",
                                              status));
    }
  }
  return {};
}

}  // namespace

std::int64_t round_report::lost_units() const noexcept {
  return std::accumulate(
      balances.begin(), balances.end(), std::int64_t{0},
      [](std::int64_t sum, const demo_balance& b) { return sum + b.lost(); });
}

std::int64_t round_report::units_off() const noexcept {
  return std::accumulate(balances.begin(), balances.end(), std::int64_t{0},
                         [](std::int64_t sum, const demo_balance& b) {
                           return sum + std::abs(b.lost());
                         });
}

result<round_report> run_round(const round_options& o,
                               demo_inventory& inventory,
                               const signal_inbox& signals,
                               const round_progress& progress) {
  coordinator c{o, signals, progress};
  if (auto ok = c.start(); !ok) {
    return ok.error();
  }
  if (auto ok = c.run(); !ok) {
    return ok.error();
  }
  auto balances = inventory.audit();
  if (!balances) {
    return balances.error();
  }
  round_report report = c.take_report();
  report.balances = std::move(*balances);
  return report;
}

}  // namespace lastdoor::cli
