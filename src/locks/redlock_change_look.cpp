// What a change finds, and whether it may begin.
#include <fmt/format.h>

#include <set>

#include "embedded_redis_scripts.hpp"
#include "redlock_change.hpp"

namespace lastdoor::redlock {

namespace driver = redis_driver;
namespace scripts = detail::redis_scripts;

result<void> change::see_new() {
  auto nonce = owner_id::generate();
  if (!nonce) {
    return nonce.error();
  }
  nonce_ = nonce->str();
  look(to_);
  for (unsigned k = 0; k < to_.all.n(); ++k) {
    auto& found = to_.seen[k];
    if (!found.answered || !found.marker.empty()) {
      continue;
    }
    auto& s = to_.all.at(k);
    driver::script_call call{scripts::redlock_note,
                             {to_.all.names().marker, to_.all.names().note},
                             {to_.all.marker_of(s), to_.all.fresh_note()}};
    auto in = to_.enter();
    call.send(in, *s.node);
    if (call.finish(in, limit(to_)) != driver::fate::replied) {
      return driver::overdue("looking at a server");
    }
    if (call.answer().is_error()) {
      return driver::refused(in, *s.node, call.answer(), "looking at a server");
    }
    found.marker = call.answer()[1].text();
    found.note = call.answer()[2].text();
    if (found.marker.empty()) {
      if (auto ok = to_.all.note_forgot(s, "", found.note); !ok) {
        return ok;
      }
    }
  }
  return {};
}

// The new servers as a cluster that is one, by the rule of those who use it.
void change::find_live() {
  std::map<std::string, unsigned> members;
  for (unsigned k = 0; k < to_.all.n(); ++k) {
    const auto m = marker::parse(to_.seen[k].marker);
    if (m && m->of.names == to_.all.digest() && m->of.n == to_.all.n() &&
        m->place == k && ++members[m->of.id] >= blocking(to_.all.n())) {
      live_ = true;
      target_ = m->of;
    }
  }
}

// The clusters that `from` may be, with the number of their members there.
std::map<std::string, unsigned> change::old_clusters() {
  std::map<std::string, unsigned> out;
  std::set<std::string> new_ones;
  if (live_) {
    new_ones.insert(target_.id);
  }
  const auto& mine = to_.all.digest();
  for (const auto* s : {&from_, &to_}) {
    for (const auto& x : s->seen) {
      const auto c = closed::parse(x.marker);
      if (c && c->to.names == mine) {
        new_ones.insert(c->to.id);
        target_ = live_ ? target_ : c->to;
      }
    }
  }
  for (unsigned k = 0; k < from_.all.n(); ++k) {
    const auto& text = from_.seen[k].marker;
    if (const auto m = marker::parse(text);
        m && m->of.n == from_.all.n() && m->place == k) {
      ++out[m->of.id];
    }
    if (const auto c = closed::parse(text);
        c && c->from_n == from_.all.n() && c->from_place == k) {
      ++out[c->from];
    }
  }
  for (const auto& [id, count] : std::map{out}) {
    new_ones.insert(successor(id, mine));
  }
  std::erase_if(
      out, [&](const auto& entry) { return new_ones.count(entry.first) > 0; });
  return out;
}

void change::know_old(const std::string& id) {
  for (const auto* s : {&from_, &to_}) {
    for (const auto& x : s->seen) {
      if (const auto m = marker::parse(x.marker); m && m->of.id == id) {
        old_ = m->of;
        old_names_ = m->of.names == from_.all.digest();
        return;
      }
      if (const auto c = closed::parse(x.marker); c && c->from == id) {
        old_ = c->to;
        old_->id = id;
        old_->n = c->from_n;
      }
    }
  }
}

// Which cluster is left, which one comes.
result<void> change::settle() {
  find_live();
  auto candidates = old_clusters();
  if (candidates.size() > 1) {
    std::erase_if(candidates, [&](const auto& entry) {
      return entry.second < blocking(from_.all.n());
    });
    if (candidates.size() != 1 && !live_) {
      return fail(errc::misconfigured,
                  "the old servers belong to different clusters");
    }
  }
  if (candidates.size() == 1) {
    const auto& [id, members] = *candidates.begin();
    const auto next = successor(id, to_.all.digest());
    if (!live_ || next == target_.id) {
      know_old(id);
    } else if (members >= blocking(from_.all.n())) {
      return fail(errc::misconfigured,
                  "the new servers are a cluster of their own");
    }
    if (!live_) {
      target_ = *old_;
      target_.id = next;
      target_.n = to_.all.n();
      target_.names = to_.all.digest();
    }
  }
  opening_ = live_ || (target_.n > 0 && anywhere(&change::opened));
  if (old_ || opening_) {
    return {};
  }
  for (unsigned k = 0; k < from_.all.n(); ++k) {
    if (auto wrong = from_.all.foreign(from_.all.at(k), from_.seen[k].marker)) {
      return *wrong;
    }
  }
  const auto& first = from_.seen.front();
  return first.answered ? fail(errc::misconfigured,
                               "no server of the old list remembers a cluster")
                        : first.why;
}

// A server of the old cluster that has forgotten it.
bool change::is_blank_seat(const sight& s) const {
  return old_names_ && s.marker.empty() &&
         std::any_of(from_.seen.begin(), from_.seen.end(), [&](const sight& x) {
           return x.answered && x.marker.empty() && x.identity == s.identity;
         });
}

result<void> change::check_new() {
  const auto refuse = [&](unsigned k, std::string_view why) {
    return fail(errc::misconfigured, fmt::format("{}: {}", name(to_, k), why));
  };
  const bool begun = opening_ || anywhere(&change::pending);
  std::set<std::string> seen;
  unsigned missing = 0;
  for (unsigned k = 0; k < to_.all.n(); ++k) {
    const auto& s = to_.seen[k];
    if (!s.answered) {
      ++missing;
      continue;
    }
    if (!seen.insert(s.identity).second) {
      return fail(errc::invalid_argument,
                  fmt::format("{} leads to a server that was named before",
                              name(to_, k)));
    }
    const auto m = marker::parse(s.marker);
    if (const auto c = closed::parse(s.marker); c && c->to.id != target_.id) {
      if (old_ && c->from == old_->id) {
        return another_change(name(to_, k));
      }
      return refuse(k,
                    "left out by an earlier change, or reserved by another; "
                    "empty it (FLUSHDB) to use it again");
    } else if (!c && !s.marker.empty() &&
               (!m ||
                (m->of.id != target_.id && (!old_ || m->of.id != old_->id)))) {
      return refuse(k, m ? "the server belongs to another cluster"
                         : "its marker is damaged");
    }
    if (s.marker.empty() && !s.counter.empty() && !is_blank_seat(s)) {
      return refuse(k, "it was used before");
    }
    if (target_.durable && !opening_) {
      auto in = to_.enter();
      if (auto ok = check_durable(in, to_.all.at(k), limit(to_)); !ok) {
        return ok;
      }
    }
  }
  // Once it has begun, it is finished with as many as there are.
  if (missing > (begun ? to_.all.n() - to_.all.q() : 0)) {
    return silent(to_.all, to_.seen);
  }
  return {};
}

result<void> change::take_seats() {
  const auto take = [&](side& by, unsigned k) -> result<void> {
    const auto& s = by.seen[k];
    const auto m = marker::parse(s.marker);
    const auto c = closed::parse(s.marker);
    unsigned place = k;
    auto now = state::absent;
    if (m && m->of.id == old_->id) {
      place = m->place;
      now = m->identity == s.identity && counts(s.counter) ? state::voting
                                                           : state::lost;
    } else if (c && c->from == old_->id) {
      if (c->to.id != target_.id) {
        return another_change(name(by, k));
      }
      place = c->from_place;
      now = state::done;
    } else if (&by == &from_ && s.answered && s.marker.empty() && old_names_) {
      now = state::lost;
    }
    if (now == state::absent) {
      return {};
    }
    if (&by == &from_ && place != k) {
      return fail(errc::misconfigured,
                  fmt::format("{}: the server has place {}; name the old ones "
                              "in the order in which they were set up",
                              name(by, k), place));
    }
    if (auto& to = seats_[place]; to.now == state::absent) {
      to = {&by, k, now, s.marker};
    }
    return {};
  };
  for (auto* by : {&from_, &to_}) {
    for (unsigned k = 0; k < by->all.n() && old_; ++k) {
      if (auto ok = take(*by, k); !ok && !opening_) {
        return ok;
      }
    }
  }
  if (opening_ || how_.floor) {
    return {};
  }
  unsigned there = 0;
  unsigned remember = 0;
  for (const auto& s : seats_) {
    const auto c = closed::parse(s.text);
    there += s.now == state::absent ? 0U : 1U;
    remember += s.now == state::voting || (c && c->counter) ? 1U : 0U;
  }
  if (there < from_.all.q() || remember < blocking(from_.all.n())) {
    return fail(errc::no_quorum,
                fmt::format("{} of the {} old servers answer and {} of them "
                            "remember; {} must answer and {} remember. "
                            "Nothing was changed",
                            there, from_.all.n(), remember, from_.all.q(),
                            blocking(from_.all.n())));
  }
  return {};
}

}  // namespace lastdoor::redlock
