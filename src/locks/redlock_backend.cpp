#include "redlock_backend.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "embedded_redis_scripts.hpp"
#include "redis_lock_value.hpp"
#include "redlock_election.hpp"

namespace lastdoor {

namespace driver = redis_driver;
namespace scripts = detail::redis_scripts;
using redlock::exhausted;
using redlock::no_quorum;
using redlock::round;
using redlock::server;
using redlock::ttl_text;

namespace {

// Until the servers have told theirs.
constexpr std::int64_t longest_ttl_ms = 3'600'000;

// What the servers said to a release.
struct freeing {
  unsigned freed{0};
  unsigned absent{0};   // freed or expired before, or another's
  unsigned foreign{0};  // of those: another's

  void count(std::int64_t said) noexcept {
    freed += said == 1 ? 1U : 0U;
    absent += said == 1 ? 0U : 1U;
    foreign += said == -1 ? 1U : 0U;
  }
};

// What a server's clock may run faster than ours, and its resolution.
duration drift(duration ttl) {
  return ttl / 100 + std::chrono::milliseconds{2};
}

}  // namespace

redlock_backend::redlock_backend(
    std::unique_ptr<redlock::servers> all, source_name source,
    std::vector<std::unique_ptr<redis_wakeups>> wakeups)
    : servers_{std::move(all)},
      source_{std::move(source)},
      wakeups_{std::move(wakeups)},
      max_ttl_ms_{longest_ttl_ms} {}

duration redlock_backend::max_ttl() const noexcept {
  return std::chrono::milliseconds{max_ttl_ms_.load()};
}

duration redlock_backend::call_timeout() const noexcept {
  return servers_->options().call_timeout;
}

// Who belongs together is known, the TTL fits, nobody waits for a readmission
// that is due.
result<void> redlock_backend::ready_for(driver::session& in, duration ttl,
                                        time_point until) {
  if (ttl < std::chrono::milliseconds{1}) {
    return fail(errc::invalid_argument, "a TTL is 1 ms or more");
  }
  if (servers_->now() >= until) {
    return driver::overdue("asking the servers");
  }
  if (auto ok = servers_->learn(in, until); !ok) {
    return ok;
  }
  const auto longest = std::chrono::milliseconds{servers_->known()->max_ttl_ms};
  max_ttl_ms_ = longest.count();
  if (ttl > longest) {
    return fail(errc::invalid_argument,
                fmt::format("the cluster was set up for TTLs up to {} ms, "
                            "{} ms were asked for",
                            longest.count(), redlock::ttl_text(ttl)));
  }
  servers_->tend(in, until);
  return {};
}

result<lease_answer> redlock_backend::try_acquire(
    const lease_request& request) {
  driver::session in{servers_->loop()};
  auto ok = ready_for(in, request.ttl, request.deadline);
  auto got = ok ? elect(in, request) : result<lease_answer>{ok.error()};
  if (!got) {
    return error{got.error()}.about(request.resource.str());
  }
  return got;
}

result<lease_answer> redlock_backend::elect(driver::session& in,
                                            const lease_request& request) {
  const auto start = servers_->now();
  const auto valid_until = start + request.ttl - drift(request.ttl);
  // A little longer than it could be granted, to hear that somebody has it.
  const auto until = std::min(
      request.deadline, start + request.ttl + servers_->options().node_timeout);
  redlock::election vote{*servers_, in, request};
  const auto node_timeout = servers_->options().node_timeout;
  bool decided = false;
  do {
    decided = in.wait(
        [&] { return vote.step(); },
        std::min({until, vote.next_limit(), servers_->now() + node_timeout}));
  } while (!decided && servers_->now() < until);
  second_rounds_ += vote.took_two() ? 1U : 0U;

  if (const auto& c = vote.granted(); c && c->t <= redlock::highest_value) {
    if (servers_->now() + servers_->options().least_validity < valid_until) {
      return lease_answer{*fencing_token::from(redlock::token_of(*c)),
                          valid_until};
    }
    undo(in, vote.votes(), request);
    return fail(errc::too_slow,
                "nothing was left of the TTL when a quorum had granted");
  }
  undo(in, vote.votes(), request);
  if (vote.granted()) {
    return exhausted();
  }
  if (!decided && servers_->now() >= valid_until) {
    return fail(errc::too_slow, "the TTL was over before a quorum had granted");
  }
  return vote.failure();
}

// On the same connections, so behind the votes; on new ones as strays.
void redlock_backend::undo(driver::session& in, const round& votes,
                           const lease_request& request) {
  const auto until = servers_->now() + request.ttl + call_timeout();
  for (unsigned k = 0; k < servers_->n(); ++k) {
    const bool on_its_way = votes.of(k) == round::state::asked;
    const bool refused =
        votes.of(k) == round::state::answered && !votes.answer(k).is_integer();
    if (on_its_way || (votes.may_have(k) && !refused)) {
      auto& s = servers_->at(k);
      servers_->add_stray(s,
                          {request.resource.str(), request.owner.str(), until});
      servers_->send_strays(in, s);
    }
  }
}

// ---- renew, release, the rest

result<time_point> redlock_backend::renew(const grant& held, duration ttl,
                                          time_point deadline) {
  const auto& resource = held.resource().str();
  driver::session in{servers_->loop()};
  if (auto ok = ready_for(in, ttl, deadline); !ok) {
    return error{ok.error()}.about(resource);
  }
  const auto start = servers_->now();
  const auto lock = servers_->names().lock(resource);
  const auto ttl_ms = ttl_text(ttl);
  round asking{*servers_, in};
  asking.ask_all([&](server& s) {
    const auto& mine = servers_->marker_of(s);
    return driver::script_call{scripts::redlock_renew,
                               {lock, servers_->names().marker},
                               {held.owner().str(), ttl_ms, mine}};
  });
  unsigned yes = 0;
  unsigned no = 0;
  unsigned unsettled = 0;
  asking.run(
      [&] {
        yes = no = unsettled = 0;
        for (unsigned k = 0; k < servers_->n(); ++k) {
          if (asking.of(k) == round::state::answered) {
            ++(asking.answer(k).integer() == 1 ? yes : no);
          } else if (!asking.settled(k)) {
            ++unsettled;
          }
        }
        return yes >= servers_->q() || yes + unsettled < servers_->q();
      },
      deadline);
  if (yes >= servers_->q()) {
    return start + ttl - drift(ttl);
  }
  if (no >= redlock::blocking(servers_->n())) {
    return fail(errc::not_owner, "the lease is gone or another's")
        .about(resource)
        .presented(held.token().value());
  }
  return fail(errc::unavailable,
              fmt::format("{} of {} servers renewed the lease, {} were needed",
                          yes, servers_->n(), servers_->q()))
      .about(resource);
}

void redlock_backend::remember_released(const std::string& owner) {
  released_[next_released_++ % released_.size()] = owner;
}

bool redlock_backend::was_released(const std::string& owner) const noexcept {
  return std::find(released_.begin(), released_.end(), owner) !=
         released_.end();
}

result<void> redlock_backend::release(const grant& held, time_point deadline) {
  const auto& resource = held.resource().str();
  const auto& owner = held.owner().str();
  driver::session in{servers_->loop()};
  const auto value = held.token().value() / redlock::places;
  const auto own = servers_->release_part(resource, owner, value);
  round asking{*servers_, in};
  asking.ask_all([&](server& s) { return servers_->release_call(s, own); });
  const unsigned n = servers_->n();
  const unsigned most_lost = n - servers_->q();
  // Released before: it is another's now, or nobody's, and the first answers
  // need not tell which. Asked anew each time, as another thread may release
  // the same lease while this one waits.
  const auto again = [&] { return was_released(owner); };
  freeing said;
  asking.run(
      [&] {
        said = freeing{};
        for (unsigned k = 0; k < n; ++k) {
          if (asking.of(k) == round::state::answered) {
            said.count(asking.answer(k).integer());
          }
        }
        return said.freed >= servers_->q() ||
               (said.absent > most_lost &&
                (!again() || said.foreign >= servers_->q() ||
                 said.freed + said.absent - said.foreign > most_lost));
      },
      deadline);
  const auto until = servers_->now() + max_ttl() + call_timeout();
  std::vector<unsigned> left_out;
  for (unsigned k = 0; k < n; ++k) {
    if (asking.of(k) != round::state::answered) {
      left_out.push_back(k);
      servers_->add_stray(servers_->at(k),
                          {resource, owner, until, asking.let_go(k)});
    }
  }
  if (said.absent > most_lost) {
    if (again() && said.foreign < servers_->q()) {
      return {};
    }
    return fail(errc::not_owner, "the lease is gone or another's")
        .about(resource)
        .presented(held.token().value());
  }
  // Those that did not answer may hold it still, but too few of them to keep
  // a quorum from anybody.
  if (n - said.freed - said.absent <= most_lost) {
    remember_released(owner);
    return {};
  }
  std::string why;
  bool sent = false;
  for (const auto k : left_out) {
    sent = sent || asking.may_have(k);
    why += why.empty() ? "" : "; ";
    why += asking.settled(k) ? asking.why(k).text()
                             : servers_->at(k).node->name() + ": no connection";
  }
  if (sent || said.freed > 0) {
    remember_released(owner);
  }
  return fail(sent || said.freed > 0 ? errc::in_doubt : errc::unavailable,
              fmt::format("{} of {} servers freed the lease; it is released "
                          "on the others as soon as they are back ({})",
                          said.freed, n, why))
      .about(resource);
}

// On each connection it stays behind what was sent before and ahead of what
// comes after. Where there is no answer in the end it is sent again.
result<void> redlock_backend::let_go(const grant& held, time_point deadline) {
  const auto& resource = held.resource().str();
  const auto& owner = held.owner().str();
  {
    driver::session in{servers_->loop()};
    const auto value = held.token().value() / redlock::places;
    const auto own = servers_->release_part(resource, owner, value);
    round telling{*servers_, in};
    // By its text: nobody is there to hear that the hash is unknown.
    telling.ask_all(
        [&](server& s) { return servers_->release_call(s, own).by_text(); });
    telling.advance();
    unsigned told = 0;
    for (unsigned k = 0; k < servers_->n(); ++k) {
      told += telling.of(k) == round::state::asked ? 1U : 0U;
    }
    if (told >= servers_->q()) {
      const auto until = servers_->now() + max_ttl() + call_timeout();
      for (unsigned k = 0; k < servers_->n(); ++k) {
        servers_->add_stray(servers_->at(k),
                            {resource, owner, until, telling.let_go(k)});
      }
      remember_released(owner);
      return {};
    }
  }
  return release(held, deadline);  // too few connections to be content
}

result<lease_status> redlock_backend::inspect(const resource_name& resource) {
  driver::session in{servers_->loop()};
  const auto until = servers_->now() + call_timeout();
  if (auto ok = servers_->learn(in, until); !ok) {
    return error{ok.error()}.about(resource.str());
  }
  const auto lock = servers_->names().lock(resource.str());
  round asking{*servers_, in};
  asking.ask_all([&](server& /*s*/) {
    return driver::script_call{scripts::redis_inspect, {lock}, {}};
  });
  asking.run([] { return false; }, until);
  struct holding {
    std::string owner;
    std::string holder;
    std::vector<std::int64_t> left;
  };
  std::vector<holding> found;
  unsigned answered = 0;
  for (unsigned k = 0; k < servers_->n(); ++k) {
    if (asking.of(k) != round::state::answered) {
      continue;
    }
    ++answered;
    const auto value = parse_value(asking.answer(k)[0].text());
    if (!value) {
      continue;
    }
    auto at = std::find_if(found.begin(), found.end(), [&](const holding& h) {
      return h.owner == value->owner;
    });
    if (at == found.end()) {
      found.push_back(
          {std::string{value->owner}, std::string{value->holder}, {}});
      at = found.end() - 1;
    }
    at->left.push_back(
        std::max<std::int64_t>(asking.answer(k)[1].integer(), 0));
  }
  if (answered < servers_->q()) {
    return no_quorum(answered, servers_->n(), "the others do not answer")
        .about(resource.str());
  }
  lease_status status;
  for (auto& h : found) {
    if (h.left.size() >= servers_->q()) {
      std::sort(h.left.rbegin(), h.left.rend());
      status.held = true;
      status.holder = h.holder;
      status.remaining = std::chrono::milliseconds{h.left[servers_->q() - 1]};
    }
  }
  return status;
}

// One server is enough for a hint: a release tells all of them.
std::shared_ptr<void> redlock_backend::watch(const resource_name& resource,
                                             alarm& bell) {
  const auto channel = servers_->names().channel(resource.str());
  unsigned place = 0;
  {
    driver::session in{servers_->loop()};
    while (place + 1 < servers_->n() &&
           servers_->at(place).node->now() != driver::node::condition::ready) {
      ++place;
    }
  }
  return wakeups_[place]->watch(channel, bell);
}

result<void> redlock_backend::raise_floor(mark floor) {
  driver::session in{servers_->loop()};
  const auto until = servers_->now() + call_timeout();
  if (auto ok = servers_->learn(in, until); !ok) {
    return ok;
  }
  const auto value = std::to_string(redlock::value_below(floor));
  const auto lock = servers_->names().lock("");
  round asking{*servers_, in};
  asking.ask_all([&](server& s) {
    const auto& mine = servers_->marker_of(s);
    return driver::script_call{
        scripts::redlock_raise,
        {lock, servers_->names().counter, servers_->names().marker},
        {"", value, mine}};
  });
  unsigned raised = 0;
  asking.run(
      [&] {
        raised = 0;
        for (unsigned k = 0; k < servers_->n(); ++k) {
          raised += asking.of(k) == round::state::answered &&
                            asking.answer(k)[0].text() == "raised"
                        ? 1U
                        : 0U;
        }
        return raised == servers_->n();
      },
      until);
  // As with a grant: a quorum stands there, so every later vote meets it.
  if (raised < servers_->q()) {
    return no_quorum(raised, servers_->n(),
                     "the others could not be raised to the floor");
  }
  return {};
}

}  // namespace lastdoor
