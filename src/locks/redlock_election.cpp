#include "redlock_election.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "embedded_redis_scripts.hpp"
#include "redis_lock_value.hpp"
#include "redlock_setup.hpp"

namespace lastdoor::redlock {

namespace driver = redis_driver;
namespace scripts = detail::redis_scripts;

namespace {
constexpr std::size_t longest_holder = 256;
}  // namespace

error exhausted() {
  return fail(errc::token_exhausted, "the counters are at their end");
}

error no_quorum(unsigned could, unsigned n, const std::string& why) {
  return fail(
      errc::no_quorum,
      fmt::format("only {} of {} servers could grant ({})", could, n, why));
}

std::string ttl_text(duration ttl) {
  return std::to_string(
      std::chrono::ceil<std::chrono::milliseconds>(ttl).count());
}

election::election(servers& all, driver::session& in,
                   const lease_request& request)
    : all_{all},
      request_{request},
      in_{in},
      votes_{all_, in, all_.options().sequential},
      answers_(all_.n(), 0),
      busy_for_(all_.n(), -1),
      seen_(all_.n(), false) {
  const auto lock = all_.names().lock(request.resource.str());
  // The number that a lock has with one server has no meaning here.
  const auto value =
      fmt::format("{} 0 {}", request.owner.str(),
                  std::string_view{request.holder}.substr(0, longest_holder));
  const auto ttl = ttl_text(request.ttl);
  const auto own = std::make_shared<const driver::script_part>(
      driver::script_part{{lock}, {value, ttl}});
  votes_.ask_all([&all, own](server& s) { return all.vote_call(s, own); });
}

bool election::step() {
  votes_.advance();
  for (unsigned k = 0; k < all_.n(); ++k) {
    if (votes_.settled(k) && !seen_[k]) {
      seen_[k] = true;
      take(k);
    }
  }
  if (trouble_) {
    return true;
  }
  if (const auto c = choose(answers_)) {
    if (c->standing >= all_.q()) {
      grant_ = c;
      return true;
    }
    if (!raised_) {
      begin_raising(*c);
    }
  }
  if (raised_ && standing_after_raise() >= all_.q()) {
    grant_ = raised_;
    return true;
  }
  return impossible();
}

// What a server that has settled said.
void election::take(unsigned k) {
  if (votes_.of(k) != round::state::answered) {
    complain(votes_.why(k).text());
    return;
  }
  auto& s = all_.at(k);
  const auto answer = votes_.answer(k);
  if (answer.is_integer()) {
    all_.note_admitted(s);
    answers_[k] = answer.integer();
    return;
  }
  const auto verdict = answer[0].text();
  if (verdict == "forgot") {
    auto ok = all_.note_forgot(s, answer[1].text(), answer[2].text());
    if (!ok) {
      // A server of somebody else's is a wrong set-up; a marker that cannot
      // be read is a server that is out.
      if (marker::parse(answer[1].text())) {
        trouble_ = ok.error();
      } else if (const auto c = closed::parse(answer[1].text())) {
        const bool left_out = !c->stays && c->to.id == all_.known()->id;
        (left_out ? trouble_ : moved_) = ok.error();
      }
      complain(ok.error().text());
      return;
    }
    if (!all_.may_admit(s)) {
      complain(s.node->name() +
               ": in quarantine, and only a client that names the servers as "
               "they were set up may admit it");
      return;
    }
    complain(fmt::format(
        "{}: in quarantine, {} ms to wait", s.node->name(),
        std::chrono::ceil<std::chrono::milliseconds>(all_.wait_left(s))
            .count()));
    return;
  }
  all_.note_admitted(s);
  if (verdict == "busy") {
    busy_for_[k] = std::max<std::int64_t>(answer[1].integer(), 0);
    if (const auto value = parse_value(answer[2].text())) {
      holder_ = value->holder;
    }
  } else if (verdict == "foreign") {
    trouble_ = fail(errc::misconfigured,
                    fmt::format("{}: the lock's key holds something that "
                                "lastdoor did not put there",
                                s.node->name()));
  } else if (verdict == "exhausted") {
    exhausted_ = true;
    complain(s.node->name() + ": the counter is at its end");
  } else {
    damaged_ = true;
    complain(fmt::format("{}: {}", s.node->name(), damaged_counter(all_)));
  }
}

void election::complain(std::string_view what) {
  why_ += why_.empty() ? "" : "; ";
  why_ += what;
}

// Phase 2: the servers below t are raised, where they still hold our lock.
void election::begin_raising(const choice& c) {
  raised_ = c;
  raises_.emplace(all_, in_);
  const auto lock = all_.names().lock(request_.resource.str());
  const auto t = std::to_string(c.t);
  for (unsigned k = 0; k < all_.n(); ++k) {
    if (answers_[k] > 0 && answers_[k] < c.t) {
      raises_->ask(k, [this, lock, t](server& s) {
        const auto& mine = all_.marker_of(s);
        return driver::script_call{
            scripts::redlock_raise,
            {lock, all_.names().counter, all_.names().marker},
            {request_.owner.str(), t, mine}};
      });
    }
  }
  raises_->advance();
}

// Only servers whose vote was counted when t was chosen, or that answered
// at or above it since.
unsigned election::standing_after_raise() {
  raises_->advance();
  unsigned standing = 0;
  for (unsigned k = 0; k < all_.n(); ++k) {
    if (answers_[k] >= raised_->t) {
      ++standing;
    } else if (raises_->of(k) == round::state::answered &&
               raises_->answer(k)[0].text() == "raised") {
      ++standing;
    }
  }
  return standing;
}

// There will be no quorum, and it is known why: because of the locks of others,
// or because too few servers could have voted at all.
bool election::impossible() const {
  unsigned could = 0;
  unsigned busy = 0;
  unsigned open = 0;
  unsigned raising = 0;
  for (unsigned k = 0; k < all_.n(); ++k) {
    could += answers_[k] > 0 ? 1U : 0U;
    busy += busy_for_[k] >= 0 ? 1U : 0U;
    open += votes_.settled(k) ? 0U : 1U;
    raising += raises_ && !raises_->settled(k) ? 1U : 0U;
  }
  const bool contended = could + busy >= all_.q();
  const bool outage = could + busy + open < all_.q();
  return (could + open < all_.q() && (contended || outage)) ||
         open + raising == 0;
}

error election::failure() const {
  if (trouble_) {
    return *trouble_;
  }
  std::vector<std::int64_t> left;
  unsigned votes = 0;
  for (unsigned k = 0; k < all_.n(); ++k) {
    votes += answers_[k] > 0 ? 1U : 0U;
    if (busy_for_[k] >= 0) {
      left.push_back(busy_for_[k]);
    }
  }
  // With the locks of others gone there would be a quorum: that is contention,
  // and everything else is an outage.
  if (!left.empty() && votes + left.size() >= all_.q()) {
    std::sort(left.begin(), left.end());
    const auto needed = std::min<std::size_t>(
        left.size(), all_.q() - std::min(votes, all_.q() - 1));
    return fail(errc::busy, fmt::format("held by '{}'", holder_))
        .retry_after_ms(votes >= left.size() ? 0 : left[needed - 1]);
  }
  if (votes >= all_.q()) {
    return no_quorum(votes, all_.n(), "counters could not be raised in time");
  }
  if (moved_) {
    return *moved_;
  }
  if (exhausted_) {
    return exhausted();
  }
  if (damaged_) {
    return fail(errc::damaged, why_);
  }
  return no_quorum(votes, all_.n(), why_.empty() ? "no answer in time" : why_);
}

}  // namespace lastdoor::redlock
