#include "simulation/redlock_campaign.hpp"

#include <fmt/format.h>
#include <time.h>

#include <algorithm>
#include <functional>
#include <lastdoor/errors.hpp>
#include <random>
#include <thread>
#include <vector>

#include "simulation/campaign_stage.hpp"
#include "simulation/delayed_actions.hpp"

namespace lastdoor::simulation {

namespace {

using namespace std::chrono_literals;
using moment = std::chrono::steady_clock::time_point;
using std::chrono::milliseconds;

moment now() { return std::chrono::steady_clock::now(); }

class campaign {
 public:
  explicit campaign(const campaign_options& options)
      : options_{options}, stage_{options}, chance_{options.seed} {}

  campaign_report run();

 private:
  struct fault {
    const char* name;
    int share;  // of a round of all faults
    void (campaign::*what)();
    bool forgets;  // a server is out for a while
    bool needs_operator{false};
  };
  static const std::vector<fault>& faults();

  // ---- what can happen
  void restart_kept();
  void restart_empty();
  void flush();
  void restore_old_backup();
  void pause_server();
  void uneven_counters();
  void move_clock();
  void cut_link();
  void refuse_link();
  void slow_link();
  void one_way_link();
  void lose_reply();
  void pause_worker();
  void kill_worker();
  void partition_turns();
  void forget_during_a_vote();
  void most_forget();
  void all_forget();
  void forget_somehow(std::size_t k);

  void shuffle();
  void step();
  void apply(const fault& f);
  void let_pass(milliseconds at_most);
  void help_if_stuck();
  void look();
  void report_progress();
  void violated(const std::string& how);
  [[nodiscard]] bool done();
  void finish();

  std::uint64_t draw(std::uint64_t below) { return chance_() % below; }
  std::size_t any_server() { return draw(masters); }
  // One that nothing has befallen lately, unless chance is unkind.
  std::size_t sound_server();
  void out(std::size_t k, milliseconds for_so_long);
  [[nodiscard]] int servers_out() const;
  support::tcp_proxy& any_link();
  void later(milliseconds when, std::function<void()> what) {
    later_.add(now() + when, std::move(what));
  }

  campaign_options options_;
  campaign_stage stage_;
  std::mt19937_64 chance_;
  campaign_report report_;
  std::vector<const fault*> deck_;
  unsigned decks_{0};
  std::vector<std::string> log_;
  delayed_actions later_;
  std::array<moment, masters> out_until_{};
  std::string detail_;
  moment begun_{now()};
  moment looked_at_{};
  moment told_at_{now()};
  moment last_grant_{now()};
};

const std::vector<campaign::fault>& campaign::faults() {
  static const std::vector<fault> all{
      {"crash and restart", 4, &campaign::restart_kept, true},
      {"crash and restart empty", 4, &campaign::restart_empty, true},
      {"flush", 4, &campaign::flush, true},
      {"old backup restored", 3, &campaign::restore_old_backup, true},
      {"server paused", 4, &campaign::pause_server, true},
      {"counters uneven", 7, &campaign::uneven_counters, false},
      {"clock moved", 4, &campaign::move_clock, false},
      {"link cut", 5, &campaign::cut_link, false},
      {"link refused", 3, &campaign::refuse_link, false},
      {"link slow", 4, &campaign::slow_link, false},
      {"link one way", 4, &campaign::one_way_link, false},
      {"reply lost", 8, &campaign::lose_reply, false},
      {"worker paused", 4, &campaign::pause_worker, false},
      {"worker killed", 2, &campaign::kill_worker, false},
      {"partition turns, one forgets", 3, &campaign::partition_turns, true},
      {"one forgets during a vote", 3, &campaign::forget_during_a_vote, true},
      {"most servers forget", 1, &campaign::most_forget, false, true},
      {"all servers forget", 1, &campaign::all_forget, false, true},
  };
  return all;
}

// ---- what can happen

void campaign::out(std::size_t k, milliseconds for_so_long) {
  out_until_[k] = now() + for_so_long;
  detail_ += fmt::format(" {}", k);
}

int campaign::servers_out() const {
  return static_cast<int>(
      std::count_if(out_until_.begin(), out_until_.end(),
                    [t = now()](moment until) { return until > t; }));
}

std::size_t campaign::sound_server() {
  auto k = any_server();
  for (int i = 0; i < 4 && out_until_[k] > now(); ++i) {
    k = (k + 1) % masters;
  }
  return k;
}

// Readmission takes a max TTL from when a client has noticed.
constexpr milliseconds readmission = 2 * max_ttl;

void campaign::restart_kept() {
  const auto k = sound_server();
  out(k, readmission);
  stage_.crash_and_restart(k);
}

void campaign::restart_empty() {
  const auto k = sound_server();
  out(k, readmission);
  stage_.crash_and_restart_empty(k);
}

void campaign::flush() {
  const auto k = sound_server();
  out(k, readmission);
  stage_.flush(k);
}

void campaign::restore_old_backup() {
  // The first two keep a log, which goes before a backup.
  const auto k = 2 + draw(masters - 2);
  out(k, readmission);
  stage_.restore(k);
  // The next one comes from now or from what was before.
  if (draw(2) == 0) {
    stage_.back_up(k);
  }
}

void campaign::pause_server() {
  const auto k = sound_server();
  const milliseconds how_long{20 + draw(1'500)};
  out(k, how_long);
  stage_.pause(k);
  later(how_long, [this, k] { stage_.resume(k); });
}

void campaign::uneven_counters() {
  const auto k = any_server();
  detail_ += fmt::format(" {}", k);
  stage_.add_to_counter(k, 1 + draw(1'000));
}

void campaign::move_clock() {
  const auto k = any_server();
  const auto to = milliseconds{draw(6'000)} - 3s;
  detail_ += fmt::format(" {} {} ms", k, to.count());
  stage_.move_clock(k, to);
  const auto off = stage_.clock_offset(k) - to;
  report_.seen["clock followed"] += off < 1s && off > -1s ? 1U : 0U;
}

support::tcp_proxy& campaign::any_link() {
  const auto relayed = static_cast<std::uint64_t>(stage_.processes() / 2);
  const auto process = static_cast<int>(2 * draw(relayed) + 1);
  const auto k = any_server();
  detail_ += fmt::format(" p{}-{}", process, k);
  auto* link = stage_.link(process, k);
  // A server may have had to take another port.
  link->lead_to(stage_.server(k).redis->port());
  return *link;
}

void campaign::cut_link() { any_link().cut(); }

void campaign::refuse_link() {
  auto& link = any_link();
  link.refuse(true);
  link.cut();
  later(milliseconds{50 + draw(1'500)}, [&link] { link.refuse(false); });
}

void campaign::slow_link() {
  auto& link = any_link();
  link.delay(std::chrono::microseconds{500 + draw(80'000)});
  later(milliseconds{100 + draw(1'500)}, [&link] { link.delay(0us); });
}

void campaign::one_way_link() {
  auto& link = any_link();
  const bool requests = draw(2) == 0;
  requests ? link.hold_requests(true) : link.hold_replies(true);
  later(milliseconds{20 + draw(1'000)}, [&link] {
    link.hold_requests(false);
    link.hold_replies(false);
  });
}

void campaign::lose_reply() {
  auto& link = any_link();
  const auto before = link.lost_replies();
  link.lose_next_reply();
  later(500ms, [this, &link, before] {
    report_.seen["reply lost"] += link.lost_replies() > before ? 1U : 0U;
  });
}

void campaign::pause_worker() {
  const auto p =
      static_cast<int>(draw(static_cast<std::uint64_t>(stage_.processes())));
  detail_ += fmt::format(" p{}", p);
  stage_.pause_worker(p);
  later(milliseconds{20 + draw(1'500)}, [this, p] { stage_.resume_worker(p); });
}

void campaign::kill_worker() {
  const auto p =
      static_cast<int>(draw(static_cast<std::uint64_t>(stage_.processes())));
  detail_ += fmt::format(" p{}", p);
  stage_.kill_worker(p);
  stage_.start_worker(p);
}

void campaign::forget_somehow(std::size_t k) {
  out(k, readmission);
  switch (draw(k < 2 ? 3 : 4)) {
    case 0:
      return stage_.flush(k);
    case 1:
      return stage_.crash_and_restart(k);
    case 2:
      return stage_.crash_and_restart_empty(k);
    default:
      return stage_.restore(k);
  }
}

// Three servers go on alone and far ahead. Then one of them forgets, the other
// two are gone, and those that know nothing of it are back.
void campaign::partition_turns() {
  const auto first = any_server();
  const auto at = [&](std::size_t i) { return (first + i) % masters; };
  const auto ahead = 1'000 + draw(1'000);
  for (const std::size_t i : {3U, 4U}) {
    stage_.pause(at(i));
  }
  for (const std::size_t i : {0U, 1U, 2U}) {
    stage_.add_to_counter(at(i), ahead);
  }
  let_pass(milliseconds{50 + draw(200)});
  for (const std::size_t i : {1U, 2U}) {
    stage_.pause(at(i));
  }
  forget_somehow(at(0));
  for (const std::size_t i : {3U, 4U}) {
    stage_.resume(at(i));
  }
  let_pass(milliseconds{50 + draw(300)});
  for (const std::size_t i : {1U, 2U}) {
    stage_.resume(at(i));
  }
}

// A vote of a server that was ahead is in the hand of a process that still
// waits for the slower ones, when that server forgets.
void campaign::forget_during_a_vote() {
  const auto relayed = static_cast<std::uint64_t>(stage_.processes() / 2);
  const auto process = static_cast<int>(2 * draw(relayed) + 1);
  const auto k = sound_server();
  for (std::size_t i = 0; i < masters; ++i) {
    stage_.link(process, i)->delay(i == k ? 0ms : 25ms);
  }
  stage_.add_to_counter(k, 1'000 + draw(1'000));
  let_pass(milliseconds{30 + draw(50)});
  out(k, readmission);
  stage_.flush(k);
  let_pass(300ms);
  for (std::size_t i = 0; i < masters; ++i) {
    stage_.link(process, i)->delay(0ms);
  }
}

// More than the rule can bear: nothing is granted until somebody says how far
// the tokens have come. Three of five at least, at one stroke or one by one.
void campaign::most_forget() {
  const auto first = any_server();
  for (std::size_t i = 0; i < 3; ++i) {
    const auto k = (first + i) % masters;
    out(k, readmission);
    draw(2) == 0 ? stage_.flush(k) : stage_.crash_and_restart_empty(k);
  }
  last_grant_ = now() - readmission;  // it is known what will be needed
}

void campaign::all_forget() {
  for (std::size_t k = 0; k < masters; ++k) {
    out(k, readmission);
    draw(2) == 0 ? stage_.flush(k) : stage_.crash_and_restart_empty(k);
  }
  last_grant_ = now() - readmission;  // it is known what will be needed
}

// ---- the run

void campaign::shuffle() {
  // These two cost seconds in which nothing is granted.
  const bool with_operator = decks_++ % 4 == 0;
  for (const auto& f : faults()) {
    if (f.needs_operator && !with_operator) {
      continue;
    }
    deck_.insert(deck_.end(), static_cast<std::size_t>(f.share), &f);
  }
  // std::shuffle is free to do it another way elsewhere.
  for (std::size_t i = deck_.size(); i > 1; --i) {
    std::swap(deck_[i - 1], deck_[draw(i)]);
  }
}

void campaign::apply(const fault& f) {
  detail_.clear();
  timespec t{};
  ::clock_gettime(CLOCK_MONOTONIC, &t);
  (this->*f.what)();
  ++report_.faults[f.name];
  log_.push_back(fmt::format("{} {}{}\n", t.tv_sec * 1'000'000'000 + t.tv_nsec,
                             f.name, detail_));
}

void campaign::step() {
  if (deck_.empty()) {
    shuffle();
  }
  const auto* next = deck_.back();
  deck_.pop_back();
  // Mostly so that a quorum is left; it must be right without one as well.
  if (next->forgets && draw(8) != 0) {
    for (int i = 0; i < 200 && servers_out() >= 2; ++i) {
      let_pass(20ms);
    }
  }
  apply(*next);
  let_pass(milliseconds{draw(250)});
  help_if_stuck();
}

void campaign::let_pass(milliseconds at_most) {
  const auto until = now() + at_most;
  do {
    std::this_thread::sleep_for(std::clamp<std::chrono::nanoseconds>(
        until - now(), 0ns, std::chrono::nanoseconds{5ms}));
    later_.run_what_is_due();
  } while (now() < until);
  look();
}

void campaign::look() {
  if (now() - looked_at_ < 100ms) {
    return;
  }
  looked_at_ = now();
  const auto grants = stage_.history().size();
  if (grants > report_.grants) {
    last_grant_ = now();
  }
  report_.grants = grants;
  if (auto dead = stage_.find_dead_worker()) {
    violated(*dead);
  }
  if (options_.progress && now() - told_at_ > 5s) {
    told_at_ = now();
    report_progress();
    finish();
  }
}

void campaign::help_if_stuck() {
  // Those that can come back by themselves would have.
  if (now() - last_grant_ < 2 * readmission) {
    return;
  }
  ++report_.seen["operator"];
  log_.push_back("the operator admits\n");
  if (!stage_.hold()) {
    violated("a worker does not come back from an acquisition");
    return;
  }
  stage_.operator_admits();
  stage_.go_on();
  last_grant_ = now();
}

void campaign::report_progress() {
  std::uint64_t all = 0;
  for (const auto& [name, count] : report_.faults) {
    all += count;
  }
  fmt::print(
      "{:5} s  {:7} grants  {:5} faults  operator {}\n",
      std::chrono::duration_cast<std::chrono::seconds>(now() - begun_).count(),
      report_.grants, all, report_.seen["operator"]);
  std::fflush(stdout);
}

void campaign::violated(const std::string& how) {
  if (report_.violation) {
    return;
  }
  std::string all;
  for (const auto& line : log_) {
    all += line;
  }
  report_.violation =
      fmt::format("{} (kept in {})", how, stage_.keep(how + "\n" + all));
}

void campaign::finish() {
  const auto& history = stage_.history();
  report_.grants = history.size();
  if (auto twice = testing::find_repeated(history)) {
    violated("G1: " + *twice);
  }
  if (auto disorder = testing::find_disorder(history)) {
    violated("G2: " + *disorder);
  }
}

bool campaign::done() {
  stage_.board().tell(report_.seen);
  report_.complete =
      report_.grants >= options_.grants &&
      report_.faults.size() == faults().size() &&
      std::all_of(options_.wanted.begin(), options_.wanted.end(),
                  [&](const auto& name) { return report_.seen[name] > 0; });
  return report_.complete || report_.violation.has_value() ||
         now() - begun_ > options_.at_most;
}

campaign_report campaign::run() {
  while (!done()) {
    step();
  }
  stage_.board().stop = 1;
  static_cast<void>(stage_.hold());
  finish();
  stage_.board().tell(report_.seen);
  return report_;
}

}  // namespace

campaign_report run_campaign(const campaign_options& options) {
  return campaign{options}.run();
}

}  // namespace lastdoor::simulation
