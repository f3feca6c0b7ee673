// The steps of a change that write.
#include <fmt/format.h>

#include "embedded_redis_scripts.hpp"
#include "redlock_change.hpp"

namespace lastdoor::redlock {

namespace driver = redis_driver;
namespace scripts = detail::redis_scripts;

result<std::string> change::replace(side& s, unsigned k, const closed& by,
                                    const std::string& found, const char* mode,
                                    const std::string& note) {
  auto& server = s.all.at(k);
  const auto until = limit(s);
  auto in = s.enter();
  if (auto ok = driver::connect(in, *server.node, until); !ok) {
    return ok.error();
  }
  const auto head = by.head();
  driver::script_call call{
      scripts::redlock_close,
      {s.all.names().counter, s.all.names().marker, s.all.names().note},
      {found, head, mode, note}};
  call.send(in, *server.node);
  if (call.finish(in, until) != driver::fate::replied) {
    return driver::unanswered("closing a server");
  }
  if (call.answer().is_error()) {
    return driver::refused(in, *server.node, call.answer(), "closing a server");
  }
  const auto verdict = call.answer()[0].text();
  if (verdict == "damaged") {
    return fail(errc::damaged,
                fmt::format("{}: its marker is no text of ours", name(s, k)));
  }
  return std::string{call.answer()[1].text()};
}

result<void> change::join() {
  unsigned voting = 0;
  bool done = false;
  for (const auto& s : seats_) {
    voting += s.now == state::voting ? 1U : 0U;
    done = done || s.now == state::done;
  }
  // Otherwise a blank server may be one that was opened and forgot: `open`
  // readmits it.
  if (opening_ || (voting < blocking(from_.all.n()) && (done || !how_.floor))) {
    return {};
  }
  for (unsigned k = 0; k < to_.all.n(); ++k) {
    const auto& s = to_.seen[k];
    if (!s.answered || !s.marker.empty() || is_blank_seat(s)) {
      continue;
    }
    tell(fmt::format("reserving {}", name(to_, k)));
    auto text = replace(to_, k, {"", 0, 0, target_, true, nonce_, {}}, "",
                        "blank", s.note);
    if (!text) {
      return text.error();
    }
    if (!pending(*text)) {
      return fail(errc::misconfigured,
                  fmt::format("{}: somebody else is using it", name(to_, k)));
    }
  }
  return {};
}

bool change::stays(const seat& s) const {
  const auto& identity = s.by->seen[s.place].identity;
  return std::any_of(to_.seen.begin(), to_.seen.end(), [&](const sight& x) {
    return x.answered && x.identity == identity;
  });
}

result<void> change::close() {
  for (unsigned p = 0; p < seats_.size(); ++p) {
    auto& s = seats_[p];
    if (s.now == state::absent || s.now == state::done) {
      continue;
    }
    tell(fmt::format("closing {}", name(*s.by, s.place)));
    const bool voting = s.now == state::voting;
    s.now = state::absent;
    const closed line{old_->id, p, from_.all.n(), target_, stays(s),
                      nonce_,   {}};
    auto text =
        replace(*s.by, s.place, line, s.text, voting ? "count" : "lost", "");
    if (!text) {
      continue;
    }
    if (const auto c = closed::parse(*text); c && c->to.id != target_.id) {
      return another_change(name(*s.by, s.place));
    }
    if (pending(*text)) {
      s.now = state::done;
      s.text = *text;
    }
  }
  return {};
}

// Each line was written once, so what stands there now as it did before this
// look began stood there all the time: all of them are closed at one moment.
result<void> change::confirm() {
  tell("looking whether enough are closed");
  look(from_);
  look(to_);
  unsigned shut = 0;
  unsigned remember = 0;
  for (auto& s : seats_) {
    if (s.now != state::done || s.by->seen[s.place].marker != s.text) {
      s.now = state::absent;
      continue;
    }
    ++shut;
    if (const auto c = closed::parse(s.text); c->counter) {
      ++remember;
      floor_ = std::max(floor_, *c->counter);
    }
  }
  if (how_.floor) {
    floor_ = std::max(floor_, value_below(*how_.floor));
  }
  // Whoever opened the first had waited, and had the floor.
  opening_ = opening_ || anywhere(&change::opened);
  if (opening_) {
    bool known = how_.floor || remember >= blocking(from_.all.n());
    for (const auto* where : {&from_, &to_}) {
      for (const auto& s : where->seen) {
        if (opened(s.marker) && counts(s.counter)) {
          known = true;
          floor_ = std::max(floor_, number_of(s.counter));
        }
      }
    }
    return known ? result<void>{}
                 : fail(errc::no_quorum,
                        "no server tells how far the tokens have come: a floor "
                        "is needed");
  }
  if (!how_.floor &&
      (shut < from_.all.q() || remember < blocking(from_.all.n()))) {
    return fail(errc::no_quorum,
                fmt::format("{} of the {} old servers are closed, {} must be: "
                            "run the change again",
                            shut, from_.all.n(), from_.all.q()));
  }
  const duration ttl = std::chrono::milliseconds{target_.max_ttl_ms};
  tell(fmt::format("waiting {} ms for leases to end", target_.max_ttl_ms));
  to_.enter().wait([] { return false; }, to_.all.now() + ttl + ttl / 100 +
                                             std::chrono::milliseconds{2});
  return {};
}

result<void> change::open_one(unsigned k, std::int64_t value,
                              bool may_readmit) {
  auto& s = to_.all.at(k);
  const auto& found = to_.seen[k];
  if (!found.answered) {
    return found.why;
  }
  if (opened(found.marker)) {
    return marker::parse(found.marker)->identity == found.identity
               ? result<void>{}
               : fail(errc::no_quorum,
                      fmt::format("{}: restarted; 'lastdoor redlock admit' "
                                  "readmits it",
                                  name(to_, k)));
  }
  if (pending(found.marker)) {
    s.found = found.marker;
    s.identity = found.identity;
    s.note = "*";
  } else if (!found.marker.empty() || !s.quarantined) {
    return fail(errc::unavailable,
                fmt::format("{}: changed meanwhile", name(to_, k)));
  } else if (!may_readmit) {
    return fail(errc::no_quorum,
                fmt::format("{}: it has forgotten, and too few others tell how "
                            "far the tokens have come: a floor is needed",
                            name(to_, k)));
  }
  tell(fmt::format("opening {}", name(to_, k)));
  auto in = to_.enter();
  if (auto ok = driver::connect(in, *s.node, limit(to_)); !ok) {
    return ok;
  }
  return to_.all.admit(in, s, value, limit(to_));
}

result<void> change::open() {
  to_.all.set_known(target_);
  duration left{0};
  for (unsigned k = 0; k < to_.all.n(); ++k) {
    if (to_.seen[k].marker.empty()) {
      left = std::max(left, to_.all.wait_left(to_.all.at(k)));
    }
  }
  if (left > duration{0}) {
    to_.enter().wait([] { return false; }, to_.all.now() + left);
  }
  look(to_);
  // As with every readmission: enough who cannot have forgotten.
  unsigned remember = 0;
  std::int64_t highest = floor_;
  for (const auto& s : to_.seen) {
    const auto m = marker::parse(s.marker);
    remember += pending(s.marker) || (opened(s.marker) && counts(s.counter) &&
                                      m->identity == s.identity)
                    ? 1U
                    : 0U;
    highest = std::max(highest, opened(s.marker) ? number_of(s.counter) : 0);
  }
  const bool may_readmit = how_.floor || remember >= blocking(to_.all.n());
  unsigned open = 0;
  std::string why;
  for (unsigned k = 0; k < to_.all.n(); ++k) {
    const bool blank = to_.seen[k].marker.empty();
    const auto value = std::max<std::int64_t>(1, blank ? highest : floor_);
    if (auto ok = open_one(k, value, may_readmit)) {
      ++open;
    } else {
      why += why.empty() ? "" : "; ";
      why += ok.error().text();
    }
  }
  if (open < to_.all.n()) {
    return fail(errc::unavailable,
                fmt::format("{} of the {} new servers are open; run the change "
                            "again for the others ({})",
                            open, to_.all.n(), why));
  }
  return {};
}

redlock_change_report change::report() const {
  redlock_change_report out{floor_, {}};
  for (unsigned k = 0; k < from_.all.n(); ++k) {
    const auto& s = from_.seen[k];
    const auto m = marker::parse(s.marker);
    if (!s.answered || (old_ && m && m->of.id == old_->id)) {
      out.left_open.push_back(name(from_, k));
    }
  }
  return out;
}

}  // namespace lastdoor::redlock

namespace lastdoor {

result<redlock_change_report> redlock_change(std::span<const std::string> from,
                                             std::span<const std::string> to,
                                             const redlock_change_options& how,
                                             const redlock_options& options) {
  auto left = redlock::servers::open(from, options);
  if (!left) {
    return left.error();
  }
  auto coming = redlock::servers::open(to, options);
  if (!coming) {
    return coming.error();
  }
  return redlock::change{**left, **coming, how}.run();
}

}  // namespace lastdoor
