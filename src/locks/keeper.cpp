#include "keeper.hpp"

#include <pthread.h>

#include <algorithm>
#include <system_error>

#include "drivers/background_thread.hpp"
#include "lease_state.hpp"
#include "service_core.hpp"

namespace lastdoor::detail {

void keeper::worker::wake_for(time_point at) noexcept {
  if (bell && at < sleeps_until)
    bell->ring();
}

result<void> keeper::start(const std::shared_ptr<service_core>& core) {
  const locked lock{mutex_};
  if (started_ || stopping_)
    return {};
  try {
    // Piece by piece: what an earlier, failed start left is used again.
    if (!timer_.bell)
      timer_.bell = core->time()->make_alarm();
    if (!renewer_.bell)
      renewer_.bell = core->time()->make_alarm();
    if (!timer_.thread.joinable()) {
      timer_.thread = background_thread(
          [this, core, &bell = *timer_.bell] { signal_losses(*core, bell); });
    }
    renewer_.thread = background_thread(
        [this, core, &bell = *renewer_.bell] { make_calls(*core, bell); });
  } catch (const std::system_error& e) {
    return fail(errc::unavailable,
                std::string{"cannot start to look after leases: "} + e.what());
  }
  ::pthread_setname_np(timer_.thread.native_handle(), "lastdoor-timer");
  ::pthread_setname_np(renewer_.thread.native_handle(), "lastdoor-renew");
  started_ = true;
  return {};
}

void keeper::put(worker& w, agenda& on, std::optional<agenda::iterator>& at,
                 const std::optional<time_point>& when,
                 const std::shared_ptr<lease_state>& lease) {
  if (at && when && (*at)->first == *when)
    return;
  agenda::node_type node;
  if (at) {
    node = on.extract(*at);
    at.reset();
  }
  if (!when)
    return;
  if (node) {
    node.key() = *when;
    at = on.insert(std::move(node));
  } else {
    at = on.emplace(*when, lease);
  }
  w.wake_for(*when);
}

bool keeper::sync(const std::shared_ptr<lease_state>& lease) {
  const locked lock{mutex_};
  if (stopping_)
    return false;
  const auto steps = lease->next_steps();
  put(timer_, losses_, lease->slot.loss, steps.loss_at, lease);
  put(renewer_, calls_, lease->slot.call, steps.call_at, lease);
  return true;
}

void keeper::look_again() noexcept {
  const locked lock{mutex_};
  if (timer_.bell)
    timer_.bell->ring();
}

keeper::leases keeper::stop() {
  agenda losses;
  agenda calls;
  leases held;
  {
    const locked lock{mutex_};
    stopping_ = true;
    losses.swap(losses_);
    calls.swap(calls_);
    for (const auto& [at, lease] : losses) {
      lease->slot = {};
      held.push_back(lease);
    }
    for (const auto& [at, lease] : calls)
      lease->slot = {};
    for (worker* w : {&timer_, &renewer_}) {
      if (w->bell)
        w->bell->ring();
    }
  }
  return held;
}

void keeper::join() noexcept {
  std::thread timer;
  std::thread renewer;
  {
    const locked lock{mutex_};
    timer.swap(timer_.thread);
    renewer.swap(renewer_.thread);
  }
  for (std::thread* t : {&timer, &renewer}) {
    if (!t->joinable())
      continue;
    // A stop callback may let go of the last handle on our own thread.
    if (t->get_id() == std::this_thread::get_id()) {
      t->detach();
    } else {
      t->join();
    }
  }
}

void keeper::retire(worker& w) {
  const locked lock{mutex_};
  w.bell.reset();
}

void keeper::signal_losses(const service_core& core, alarm& bell) {
  time_point asked = time_point::max();
  while (auto due = next_losses(core)) {
    for (const auto& lease : due->now)
      lease->time_is_up(asked);
    // Only a sleep can have lasted too long; a slow stop callback is not a
    // pause of the process.
    asked = due->now.empty() ? due->next : time_point::max();
    if (due->now.empty())
      bell.wait_until(asked);
  }
  retire(timer_);
}

std::optional<keeper::losses_due> keeper::next_losses(
    const service_core& core) {
  const locked lock{mutex_};
  timer_.sleeps_until = time_point::min();
  if (stopping_)
    return std::nullopt;
  losses_due due{{}, time_point::max()};
  const time_point now = core.now();
  // After a step back every lease has to answer, whatever its time.
  const bool all = core.jumps() != jumps_seen_;
  jumps_seen_ = core.jumps();
  while (!losses_.empty() && (all || losses_.begin()->first <= now)) {
    auto first = losses_.extract(losses_.begin());
    first.mapped()->slot.loss.reset();
    due.now.push_back(std::move(first.mapped()));
  }
  if (!losses_.empty())
    due.next = losses_.begin()->first;
  if (due.now.empty())
    timer_.sleeps_until = due.next;
  return due;
}

void keeper::make_calls(const service_core& core, alarm& bell) {
  while (auto due = next_call(core)) {
    if (due->now) {
      due->now->make_call();
    } else {
      bell.wait_until(due->next);
    }
  }
  retire(renewer_);
}

std::optional<keeper::call_due> keeper::next_call(const service_core& core) {
  const locked lock{mutex_};
  renewer_.sleeps_until = time_point::min();
  if (stopping_)
    return std::nullopt;
  const time_point now = core.now();
  const auto ends = [](const lease_state& l) {
    return l.slot.loss ? (*l.slot.loss)->first : time_point::max();
  };
  auto first = calls_.end();
  for (auto at = calls_.begin(); at != calls_.end() && at->first <= now; ++at) {
    if (first == calls_.end() || ends(*at->second) < ends(*first->second))
      first = at;
  }
  call_due due{nullptr, time_point::max()};
  if (first != calls_.end()) {
    first->second->slot.call.reset();
    due.now = std::move(first->second);
    calls_.erase(first);
  } else {
    if (!calls_.empty())
      due.next = calls_.begin()->first;
    renewer_.sleeps_until = due.next;
  }
  return due;
}

}  // namespace lastdoor::detail
