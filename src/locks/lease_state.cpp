#include "lease_state.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "service_core.hpp"

namespace lastdoor::detail {

lease_state::lease_state(std::shared_ptr<service_core> core, grant g,
                         const lease_terms& terms, time_point started,
                         std::uint64_t seed)
    : core_{std::move(core)},
      grant_{std::move(g)},
      terms_{terms},
      jumps_{core_->jumps()},
      valid_until_{grant_.valid_until()},
      retry_{terms.backoff, seed} {
  const locked lock{mutex_};
  plan_renewal(started, core_->now());
}

bool lease_state::in_child() const noexcept { return core_->in_child(); }

time_point lease_state::loss_at() const {
  return later(valid_until_, -terms_.loss_margin);
}

bool lease_state::jumped() const noexcept { return core_->jumps() != jumps_; }

error lease_state::lease_lost(const char* what) const {
  error e = fail(errc::lease_lost, what);
  e.about(grant_.resource().str()).presented(grant_.token().value());
  if (const auto why = why_lost())
    e.backend(name_of(*why));
  return e;
}

void lease_state::tell(event_kind kind, const error* why,
                       duration took) const noexcept {
  core_->tell(kind, grant_.resource().str(), grant_.token().value(), why, took);
}

void lease_state::sync() {
  // After a shutdown nobody would signal the loss any more.
  if (!core_->keeper().sync(shared_from_this()))
    lose(loss_reason::shutdown);
}

// --- time -------------------------------------------------------------------

// Counted from before the last call was sent, as validity is. A renewal that
// would leave no room for a whole call is brought forward.
void lease_state::plan_renewal(time_point started, time_point now) {
  retry_.reset();
  if (!terms_.renew)
    return;
  const time_point last = loss_at();
  const time_point latest =
      std::max(later(last, -terms_.call_timeout), now + (last - now) / 2);
  call_at_ = std::min(later(started, terms_.renew_every), latest);
}

void lease_state::plan_retry(time_point now) {
  const time_point last = loss_at();
  const duration pause = std::min(retry_.next(), (last - now) / 2);
  // Too close to the loss for another try: the halves would never end.
  if (last - now > terms_.backoff.first)
    call_at_ = now + pause;
}

lease_state::plan lease_state::next_steps() const {
  const locked lock{mutex_};
  plan steps;
  if (phase_ == phase::held)
    steps.loss_at = loss_at();
  if (phase_ == phase::held || lingers_)
    steps.call_at = call_at_;
  return steps;
}

loss_reason lease_state::reason_at(time_point now, time_point asked) const {
  // Asked to be woken before the loss and woken after the end: this process
  // did not run in between.
  if (jumped() || (asked <= loss_at() && now >= valid_until_))
    return loss_reason::clock_jump;
  return terms_.renew || renewal_failed_ ? loss_reason::unconfirmed
                                         : loss_reason::not_renewed;
}

void lease_state::time_is_up(time_point asked) {
  const time_point now = core_->now();
  std::optional<loss_reason> reason;
  {
    const locked lock{mutex_};
    if (phase_ != phase::held)
      return;
    if (jumped() || now >= loss_at())
      reason = reason_at(now, asked);
  }
  if (reason) {
    lose(*reason);
  } else {
    sync();  // renewed in the meantime
  }
}

void lease_state::lose(loss_reason reason, const error* why) {
  leave(phase::held, reason, why);
}

void lease_state::leave(phase from, loss_reason reason, const error* why) {
  time_point until;
  {
    const locked lock{mutex_};
    if (phase_ != from)
      return;
    phase_ = phase::lost;
    reason_ = reason;
    until = valid_until_;
    call_at_.reset();
    grant_.end();
  }
  static_cast<void>(core_->keeper().sync(shared_from_this()));
  if (reason == loss_reason::clock_jump)
    core_->keeper().look_again();
  lost_.request_stop();
  // Only where the service may still hold the lease is it worth waiting.
  const bool stands =
      reason == loss_reason::unconfirmed || reason == loss_reason::not_renewed;
  core_->room().lapse(grant_.resource(), grant_.owner(),
                      stands ? until : time_point::min());
  const error told = why != nullptr ? *why : lease_lost("the lease was lost");
  tell(event_kind::lost, &told, {});
}

// --- what the holder asks ---------------------------------------------------

std::optional<loss_reason> lease_state::why_lost() const {
  const locked lock{mutex_};
  if (phase_ != phase::lost)
    return std::nullopt;
  return reason_;
}

result<void> lease_state::check() {
  const time_point now = core_->now();
  if (jumped())
    lose(loss_reason::clock_jump);
  if (grant_.valid_at(now))
    return {};
  return lease_lost("the lease is not held now");
}

duration lease_state::remaining() const {
  const time_point now = core_->now();
  if (jumped() || !grant_.valid_at(now))
    return duration::zero();
  return grant_.valid_until() - now;
}

grant lease_state::orphan() {
  {
    const locked lock{mutex_};
    if (phase_ != phase::held)
      return grant_;
    phase_ = phase::orphaned;
    call_at_.reset();
  }
  static_cast<void>(core_->keeper().sync(shared_from_this()));
  core_->room().vacate(grant_.resource(), grant_.owner());
  return grant_;
}

// --- renewal ----------------------------------------------------------------

result<void> lease_state::renew() { return renew_once(false); }

void lease_state::make_call() {
  bool farewell_due = false;
  {
    const locked lock{mutex_};
    call_at_.reset();
    farewell_due = phase_ == phase::lost && lingers_;
  }
  if (farewell_due) {
    farewell();
  } else {
    renew_once(true).ignore();
  }
}

result<void> lease_state::renew_once(bool retry) {
  const time_point started = core_->now();
  time_point deadline;
  bool in_time = false;
  {
    const locked lock{mutex_};
    in_time = phase_ == phase::held && !jumped() && started < loss_at();
    deadline = std::min(later(started, terms_.call_timeout), loss_at());
  }
  if (!in_time)
    return lease_lost("it is too late to renew the lease");
  const auto answer = core_->ask_to_renew(grant_, terms_.ttl, deadline);
  // No service can promise more than the TTL from before it was asked.
  if (answer) {
    return renewed(started, std::min(*answer, later(started, terms_.ttl)));
  }
  error why = answer.error();
  why.about(grant_.resource().str()).presented(grant_.token().value());
  return not_renewed(why, retry, core_->now() - started);
}

result<void> lease_state::renewed(time_point started, time_point until) {
  const time_point now = core_->now();
  bool in_time = false;
  {
    const locked lock{mutex_};
    in_time = phase_ == phase::held && !jumped() && now < loss_at();
    if (in_time) {
      valid_until_ = std::max(valid_until_, until);
      grant_.extend(valid_until_);
      renewal_failed_ = false;
      plan_renewal(started, now);
    }
  }
  if (!in_time)
    return renewed_too_late();
  sync();
  tell(event_kind::renewed, nullptr, now - started);
  return {};
}

result<void> lease_state::renewed_too_late() {
  lose(jumped() ? loss_reason::clock_jump : loss_reason::unconfirmed);
  {
    const locked lock{mutex_};
    // The service holds it for another TTL. It is let go, but not before the
    // margin is over that the holder has for winding up.
    if (phase_ == phase::lost && reason_ != loss_reason::shutdown) {
      lingers_ = true;
      call_at_ = valid_until_;
    }
  }
  static_cast<void>(core_->keeper().sync(shared_from_this()));
  return lease_lost("the renewal was confirmed too late");
}

result<void> lease_state::not_renewed(const error& why, bool retry,
                                      duration took) {
  if (why.code() == errc::not_owner) {
    lose(loss_reason::refused, &why);
    return why;
  }
  {
    const locked lock{mutex_};
    if (phase_ != phase::held)
      return why;
    renewal_failed_ = true;
    if (retry)
      plan_retry(core_->now());
  }
  if (retry)
    sync();
  tell(event_kind::renew_failed, &why, took);
  return why;
}

void lease_state::farewell() {
  {
    const locked lock{mutex_};
    lingers_ = false;
  }
  const time_point deadline = later(core_->now(), terms_.call_timeout);
  core_->ask_to_release(grant_, deadline).ignore();
}

// --- release ----------------------------------------------------------------

result<void> lease_state::release() { return release_once(false); }

void lease_state::end_quietly() noexcept {
  try {
    release_once(true).ignore();
  } catch (...) {
    // A back end or the allocator threw; a destructor may not, and the TTL
    // ends the lease all the same.
    return;
  }
}

result<void> lease_state::release_once(bool quiet) {
  // Before the grant ends, or a newcomer would take the moment between for
  // its turn and find the back end busy.
  core_->room().leaving(grant_.resource(), grant_.owner(),
                        grant_.valid_until());
  auto send = begin_release();
  if (!send)
    return send.error();
  if (!*send)
    return {};
  static_cast<void>(core_->keeper().sync(shared_from_this()));
  const time_point started = core_->now();
  const auto deadline = later(started, core_->backend().call_timeout());
  const auto answer = quiet ? core_->ask_to_let_go(grant_, deadline)
                            : core_->ask_to_release(grant_, deadline);
  return finish_release(answer, quiet, core_->now() - started);
}

// Whether there is something to send; `lease_lost` when it is too late.
result<bool> lease_state::begin_release() {
  const time_point now = core_->now();
  {
    const locked lock{mutex_};
    if (phase_ == phase::released)
      return false;
    const bool over = jumped() || now >= valid_until_;
    if (phase_ == phase::ending || (phase_ == phase::held && !over)) {
      phase_ = phase::ending;
      call_at_.reset();
      grant_.end();
      ++releases_under_way_;
      return true;
    }
  }
  // If it is still held, its time is over and this thread runs before the
  // timer, which had asked to be woken earlier.
  lose(loss_reason::clock_jump);
  return lease_lost("the lease was lost before its release");
}

result<void> lease_state::finish_release(const result<void>& answer, bool quiet,
                                         duration took) {
  bool confirmed = answer.has_value();
  bool foreign = !confirmed && answer.code() == errc::not_owner;
  bool report = true;
  {
    const locked lock{mutex_};
    --releases_under_way_;
    // "Not yours" is how an earlier request of ours that was carried out
    // looks to a service that keeps no memory of it.
    if (foreign && (phase_ == phase::released || release_in_doubt_ ||
                    releases_under_way_ > 0)) {
      foreign = false;
      confirmed = true;
    }
    if (confirmed) {
      report = phase_ == phase::ending;
      if (phase_ == phase::ending)
        phase_ = phase::released;
    } else if (!foreign) {
      release_in_doubt_ =
          release_in_doubt_ || answer.code() != errc::unavailable;
      report = !quiet || !failure_reported_;
      failure_reported_ = true;
    }
  }
  core_->room().vacate(grant_.resource(), grant_.owner());
  if (confirmed) {
    if (report)
      tell(event_kind::released, nullptr, took);
    return {};
  }
  error why = answer.error();
  why.about(grant_.resource().str()).presented(grant_.token().value());
  if (foreign) {
    leave(phase::ending, loss_reason::refused, &why);
  } else if (report) {
    tell(event_kind::release_failed, &why, took);
  }
  return why;
}

}  // namespace lastdoor::detail
