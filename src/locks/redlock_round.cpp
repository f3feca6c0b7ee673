// One command a server, to all of them. See redlock_servers.hpp.
#include <fmt/format.h>

#include <algorithm>

#include "redlock_servers.hpp"

namespace lastdoor::redlock {

namespace driver = redis_driver;
using condition = driver::node::condition;

round::round(servers& of, driver::session& in, bool sequential)
    : servers_{of}, in_{in}, sequential_{sequential}, parts_(of.n()) {}

round::~round() {
  for (unsigned k = 0; k < parts_.size(); ++k) {
    auto& p = parts_[k];
    if (p.now == state::asked) {
      p.sent = p.call->withdraw(in_) != driver::fate::not_sent;
    }
  }
}

void round::ask(unsigned place, make what) {
  parts_[place].what = std::make_shared<const make>(std::move(what));
  servers_.at(place).node->want(in_);
}

void round::ask_all(make what) {
  const auto shared = std::make_shared<const make>(std::move(what));
  for (unsigned k = 0; k < parts_.size(); ++k) {
    parts_[k].what = shared;
    servers_.at(k).node->want(in_);
  }
}

void round::finish(part& p, error why, bool sent) {
  p.now = state::failed;
  p.why = std::move(why);
  p.sent = p.sent || sent;
}

// True when the next one may be asked.
bool round::advance_one(unsigned place, part& p, time_point now) {
  if (p.what == nullptr || p.now == state::answered || p.now == state::failed) {
    return true;
  }
  auto& s = servers_.at(place);
  if (p.now == state::unasked) {
    if (s.node->now() == condition::down) {
      finish(p, s.node->trouble(), false);
      return true;
    }
    if (s.node->now() == condition::connecting) {
      return false;
    }
    servers_.greet(in_, s);
    p.call.emplace((*p.what)(s));
    p.call->send(in_, *s.node);
    p.limit = now + servers_.options().node_timeout;
    p.now = state::asked;
  }
  if (p.call->step(in_)) {
    if (p.call->state() == driver::fate::replied) {
      if (p.call->answer().is_error()) {
        const auto why =
            driver::refused(in_, *s.node, p.call->answer(), "asking");
        finish(
            p,
            fail(why.code(), fmt::format("{}: {}", s.node->name(), why.text()))
                .backend(why.backend()),
            false);
      } else {
        p.now = state::answered;
        p.sent = true;
      }
    } else {
      finish(p,
             s.node->now() == condition::down ? s.node->trouble()
                                              : driver::overdue("asking"),
             p.call->state() == driver::fate::unknown);
    }
    return true;
  }
  if (now >= p.limit) {
    const bool sent = p.call->withdraw(in_) != driver::fate::not_sent;
    finish(p,
           fail(errc::unavailable,
                fmt::format("{}: no answer in time", s.node->name())),
           sent);
    return true;
  }
  return false;
}

void round::advance() {
  const auto now = servers_.now();
  for (unsigned k = 0; k < parts_.size(); ++k) {
    if (!advance_one(k, parts_[k], now) && sequential_) {
      return;
    }
  }
}

time_point round::next_limit() const noexcept {
  auto next = time_point::max();
  for (const auto& p : parts_) {
    if (p.now == state::asked) {
      next = std::min(next, p.limit);
    }
  }
  return next;
}

void round::run(const std::function<bool()>& enough, time_point until) {
  auto step = [&] {
    advance();
    return enough() || all_settled();
  };
  // A server may be asked, and its limit begin, while this waits.
  const auto patience = servers_.options().node_timeout;
  while (!in_.wait(step, std::min({until, next_limit(),
                                   servers_.now() + patience})) &&
         servers_.now() < until) {
  }
}

bool round::settled(unsigned place) const noexcept {
  const auto& p = parts_[place];
  return p.what == nullptr || p.now == state::answered ||
         p.now == state::failed;
}

bool round::all_settled() const noexcept {
  for (unsigned k = 0; k < parts_.size(); ++k) {
    if (!settled(k)) {
      return false;
    }
  }
  return true;
}

driver::ticket round::let_go(unsigned place) {
  auto& p = parts_[place];
  if (p.now != state::asked) {
    return nullptr;
  }
  finish(p, fail(errc::in_doubt, "nobody waited for the answer"), true);
  return p.call->sent();
}

const error& round::why(unsigned place) const {
  static const error not_asked{errc::unavailable, "not asked"};
  const auto& why = parts_[place].why;
  return why ? *why : not_asked;
}

driver::reply_view round::answer(unsigned place) const {
  return parts_[place].call->answer();
}

}  // namespace lastdoor::redlock
