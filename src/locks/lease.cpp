#include <lastdoor/lease.hpp>

#include "lease_state.hpp"
#include "service_core.hpp"

namespace lastdoor {

namespace {

error moved_from() {
  return fail(errc::lease_lost, "the lease was moved from");
}

// What `lost()` gives where nobody could signal: a loss that has happened.
std::stop_token lost_already() {
  std::stop_source source;
  source.request_stop();
  return source.get_token();
}

}  // namespace

lease::lease(std::shared_ptr<detail::lease_state> state) noexcept
    : state_{std::move(state)} {}

lease& lease::operator=(lease&& other) noexcept {
  if (this != &other) {
    end_quietly();
    state_ = std::move(other.state_);
  }
  return *this;
}

lease::~lease() { end_quietly(); }

void lease::end_quietly() noexcept {
  if (!state_)
    return;
  if (state_->in_child()) {
    detail::keep_for_ever(std::move(state_));
  } else {
    state_->end_quietly();
  }
}

const lastdoor::grant& lease::grant() const {
  if (!state_) {
    throw failure{fail(errc::invalid_argument, "the lease was moved from")};
  }
  return state_->identity();
}

std::stop_token lease::lost() const {
  if (!state_ || state_->in_child())
    return lost_already();
  return state_->lost();
}

std::optional<loss_reason> lease::why_lost() const noexcept {
  if (!state_ || state_->in_child())
    return std::nullopt;
  return state_->why_lost();
}

result<void> lease::check() const {
  if (!state_)
    return moved_from();
  if (state_->in_child())
    return detail::service_core::refuse_in_child();
  return state_->check();
}

duration lease::remaining() const noexcept {
  if (!state_ || state_->in_child())
    return duration::zero();
  return state_->remaining();
}

result<void> lease::renew() {
  if (!state_)
    return moved_from();
  if (state_->in_child())
    return detail::service_core::refuse_in_child();
  return state_->renew();
}

result<void> lease::release() {
  if (!state_)
    return moved_from();
  if (state_->in_child())
    return detail::service_core::refuse_in_child();
  return state_->release();
}

void lease::overtaken() noexcept {
  if (state_ && !state_->in_child())
    state_->lose(loss_reason::overtaken);
}

lastdoor::grant lease::orphan() && {
  lastdoor::grant identity = grant();
  if (state_->in_child()) {
    detail::keep_for_ever(std::move(state_));
  } else {
    state_->orphan();
  }
  state_.reset();
  return identity;
}

}  // namespace lastdoor
