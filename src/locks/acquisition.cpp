#include "acquisition.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <system_error>

#include "../fencing/text.hpp"
#include "lease_state.hpp"

namespace lastdoor::detail {

namespace {

// What passes by itself, so that waiting for it makes sense. Everything else
// would fail again in the same way.
bool worth_waiting(errc code) noexcept {
  switch (code) {
    case errc::busy:
    case errc::unavailable:
    case errc::no_quorum:
    case errc::too_slow:
    case errc::in_doubt:
      return true;
    default:
      return false;
  }
}

// Asked once: a name that changes later would only confuse its readers.
const std::string& this_host() {
  static const std::string name = [] {
    std::array<char, 256> host{};
    if (::gethostname(host.data(), host.size() - 1) != 0)
      host[0] = '?';
    return printable(host.data());
  }();
  return name;
}

std::string this_process() {
  return fmt::format("{}:{}", this_host(), ::getpid());
}

long long whole_ms(duration d) noexcept {
  return std::chrono::ceil<std::chrono::milliseconds>(d).count();
}

}  // namespace

// A bell is a descriptor, so it is made only by those who have to sleep.
class acquisition::sleeper {
 public:
  sleeper(clock& time, waiting_room::place& place, std::stop_token stop)
      : time_{time}, place_{place}, stop_{std::move(stop)} {}
  ~sleeper() {
    on_stop_.reset();
    if (bell_)
      place_.use_bell(nullptr);
  }
  sleeper(const sleeper&) = delete;
  sleeper& operator=(const sleeper&) = delete;

  /// Throws std::system_error when there is no descriptor left. The caller
  /// looks again at what it waits for before it sleeps.
  alarm& bell() {
    if (!bell_) {
      bell_ = time_.make_alarm();
      place_.use_bell(bell_.get());
      on_stop_.emplace(stop_, ringer{bell_.get()});
    }
    return *bell_;
  }

 private:
  struct ringer {
    alarm* bell;
    void operator()() const noexcept { bell->ring(); }
  };

  clock& time_;
  waiting_room::place& place_;
  std::stop_token stop_;
  std::unique_ptr<alarm> bell_;
  std::optional<std::stop_callback<ringer>> on_stop_;
};

acquisition::acquisition(service_core& core, const resource_name& resource,
                         const lease_terms& terms,
                         const acquire_options& options)
    : core_{core},
      resource_{resource},
      terms_{terms},
      options_{options},
      began_{core.now()},
      give_up_at_{later(began_, options.wait_at_most)},
      place_{core.room(), resource, options.wait_at_most > duration::zero(),
             began_} {}

std::optional<error> acquisition::interrupted() const {
  if (options_.stop.stop_requested()) {
    return fail(errc::canceled, "the caller stopped the acquisition")
        .about(resource_.str());
  }
  if (core_.stopping()) {
    return fail(errc::canceled, "the lock service was shut down")
        .about(resource_.str());
  }
  return std::nullopt;
}

error acquisition::busy_here(time_point now) const {
  error e = fail(errc::busy, "held or waited for in this process already");
  e.about(resource_.str());
  const time_point until = place_.held_until();
  if (until > now)
    e.retry_after_ms(whole_ms(until - now));
  return e;
}

acquisition::outcome acquisition::run() {
  if (auto stop = interrupted())
    return *stop;
  if (!place_.taken())
    return busy_here(began_);
  try {
    sleeper s{*core_.time(), place_, options_.stop};
    return wait_and_try(s);
  } catch (const std::system_error& e) {
    return fail(errc::unavailable, std::string{"cannot wait: "} + e.what())
        .about(resource_.str());
  }
}

acquisition::outcome acquisition::wait_and_try(sleeper& s) {
  backoff pauses{terms_.backoff, core_.next_seed()};
  std::shared_ptr<void> hints;
  for (;;) {
    if (auto stop = interrupted())
      return *stop;
    time_point now = core_.now();
    if (const auto until = place_.blocked_until(now)) {
      if (now >= give_up_at_)
        return busy_here(now);
      alarm& bell = s.bell();
      // Once more with the bell in place, or a ring might be missed.
      if (place_.blocked_until(now) && !interrupted())
        bell.wait_until(std::min(*until, give_up_at_));
      continue;
    }
    auto tried = attempt();
    if (tried || !worth_waiting(tried.code()))
      return tried;
    now = core_.now();
    if (now >= give_up_at_)
      return tried;
    alarm& bell = s.bell();
    if (!hints)
      hints = core_.backend().watch(resource_, bell);
    if (interrupted())
      continue;
    const time_point until = later(now, pauses.next());
    if (!bell.wait_until(std::min(until, give_up_at_)) &&
        core_.now() >= give_up_at_) {
      return tried;
    }
  }
}

acquisition::outcome acquisition::attempt() {
  auto owner = owner_id::generate();
  if (!owner)
    return owner.error();
  const time_point started = core_.now();
  const duration limit = std::min(core_.backend().call_timeout(), terms_.ttl);
  const std::string holder =
      options_.holder.empty() ? this_process() : options_.holder;
  auto answer = core_.ask_for({.resource = resource_,
                               .owner = *owner,
                               .ttl = terms_.ttl,
                               .holder = holder,
                               .deadline = later(started, limit)});
  if (answer) {
    // No service can promise more than the TTL from before it was asked.
    const time_point until =
        std::min(answer->valid_until, later(started, terms_.ttl));
    return accept(grant{resource_, *owner, answer->token,
                        core_.backend().source(), until},
                  started);
  }
  error why = answer.error();
  why.about(resource_.str());
  if (why.code() == errc::in_doubt || why.code() == errc::internal) {
    // No token is known; the owner value alone says what to undo.
    undo(grant{resource_, *owner,
               fencing_token::from(fencing_token::min).value(),
               core_.backend().source(), started});
  }
  return why;
}

acquisition::outcome acquisition::accept(const grant& g, time_point started) {
  const time_point now = core_.now();
  if (g.valid_until() < later(now, terms_.minimum_validity))
    return refuse_late(g, now);
  if (auto started_keeper = core_.keeper().start(core_.shared_from_this());
      !started_keeper) {
    undo(g);
    return started_keeper.error().about(resource_.str());
  }
  auto lease = std::make_shared<lease_state>(
      core_.shared_from_this(), g, terms_, started, core_.next_seed());
  place_.granted(g);
  if (!core_.keeper().sync(lease)) {
    // Shut down while the grant was on its way: nobody would look after it.
    undo(g);
    core_.room().vacate(g.resource(), g.owner());
    return *interrupted();
  }
  core_.tell(event_kind::granted, resource_.str(), g.token().value(), nullptr,
             now - began_);
  return lease;
}

error acquisition::refuse_late(const grant& g, time_point now) {
  undo(g);
  const duration left =
      g.valid_at(now) ? g.valid_until() - now : duration::zero();
  return fail(errc::too_slow,
              fmt::format("granted with {} left of a TTL of {}, at least {} "
                          "are needed; undone",
                          in_ms(left), in_ms(terms_.ttl),
                          in_ms(terms_.minimum_validity)))
      .about(resource_.str())
      .presented(g.token().value());
}

void acquisition::undo(const grant& g) {
  // Best effort: what is not undone ends with its TTL.
  const time_point deadline =
      later(core_.now(), core_.backend().call_timeout());
  core_.ask_to_release(g, deadline).ignore();
}

}  // namespace lastdoor::detail
