#include "waiting_room.hpp"

namespace lastdoor::detail {

void waiting_room::line::ring_front() noexcept {
  // Who has no bell is awake and looks again before it sleeps.
  if (!waiters.empty() && waiters.front().bell != nullptr)
    waiters.front().bell->ring();
}

void waiting_room::drop_if_unused(lines::iterator at) {
  // A lapsed lease alone does not keep a line: names of lost leases would
  // pile up. Whoever comes next asks the back end and hears the same.
  if (at->second.waiters.empty() && !at->second.holder)
    lines_.erase(at);
}

void waiting_room::leaving(const resource_name& resource, const owner_id& owner,
                           time_point until) {
  const locked lock{mutex_};
  const auto at = lines_.find(resource.str());
  if (at != lines_.end() && at->second.held_by(owner))
    at->second.held_until = until;
}

void waiting_room::vacate(const resource_name& resource,
                          const owner_id& owner) {
  lapse(resource, owner, time_point::min());
}

void waiting_room::lapse(const resource_name& resource, const owner_id& owner,
                         time_point until) {
  const locked lock{mutex_};
  const auto at = lines_.find(resource.str());
  if (at == lines_.end())
    return;
  line& l = at->second;
  if (l.held_by(owner)) {
    l.holder.reset();
    l.held_until = until;
  }
  l.ring_front();
  drop_if_unused(at);
}

void waiting_room::knock(const resource_name& resource) {
  const locked lock{mutex_};
  const auto at = lines_.find(resource.str());
  if (at != lines_.end())
    at->second.ring_front();
}

void waiting_room::knock_all() noexcept {
  const locked lock{mutex_};
  for (auto& [name, l] : lines_) {
    for (waiter& w : l.waiters) {
      if (w.bell != nullptr)
        w.bell->ring();
    }
  }
}

waiting_room::place::place(waiting_room& room, const resource_name& resource,
                           bool patient, time_point now)
    : room_{room} {
  const locked lock{room_.mutex_};
  line_ = room_.lines_.try_emplace(resource.str()).first;
  line& l = line_->second;
  held_until_ = l.busy_until();
  if (!patient && (!l.waiters.empty() || now < held_until_))
    return;
  me_ = l.waiters.insert(l.waiters.end(), waiter{});
  taken_ = true;
}

waiting_room::place::~place() {
  const locked lock{room_.mutex_};
  if (taken_)
    leave();
}

std::optional<time_point> waiting_room::place::blocked_until(time_point now) {
  const locked lock{room_.mutex_};
  line& l = line_->second;
  held_until_ = l.busy_until();
  if (me_ != l.waiters.begin())
    return time_point::max();
  if (now < held_until_)
    return held_until_;
  return std::nullopt;
}

void waiting_room::place::use_bell(alarm* bell) {
  const locked lock{room_.mutex_};
  if (taken_)
    me_->bell = bell;
}

void waiting_room::place::granted(const grant& g) {
  const locked lock{room_.mutex_};
  line_->second.holder = g;
  line_->second.held_until = time_point::min();
  // The next one need not be woken: the holder's end will ring for it.
  line_->second.waiters.erase(me_);
  taken_ = false;
}

void waiting_room::place::leave() {
  line& l = line_->second;
  const bool first = me_ == l.waiters.begin();
  l.waiters.erase(me_);
  taken_ = false;
  if (first)
    l.ring_front();
  room_.drop_if_unused(line_);
}

}  // namespace lastdoor::detail
