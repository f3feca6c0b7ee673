#include "service_core.hpp"

#include <exception>

#include "../drivers/forks.hpp"
#include "acquisition.hpp"
#include "entropy.hpp"
#include "lease_state.hpp"

namespace lastdoor::detail {

namespace {

template <class F>
auto caught(F&& ask) -> decltype(ask()) {
  try {
    return ask();
  } catch (const std::exception& e) {
    return fail(errc::internal, std::string{"the back end threw: "} + e.what());
  }
}

}  // namespace

service_core::service_core(std::unique_ptr<lock_backend> backend,
                           lock_service_options options)
    : backend_{std::move(backend)},
      options_{std::move(options)},
      forks_{forks()},
      seed_{options_.jitter_seed ? *options_.jitter_seed : random_seed()},
      latest_{options_.time->now().time_since_epoch().count()} {}

bool service_core::in_child() const noexcept { return forks() != forks_; }

error service_core::refuse_in_child() {
  return fail(errc::lease_lost,
              "this lock service belongs to the process that forked this one; "
              "open another here");
}

time_point service_core::now() const noexcept {
  // Read before the clock is: a time that somebody else saw before this
  // moment cannot be later than what this thread sees.
  const auto before = latest_.load();
  const time_point t = options_.time->now();
  const auto now = t.time_since_epoch().count();
  if (now < before) {
    jumps_.fetch_add(1);
    latest_.store(now);
  } else if (now - before > duration{std::chrono::milliseconds{1}}.count()) {
    // Not on every call, so that threads do not fight for the cache line.
    latest_.store(now);
  }
  return t;
}

std::uint64_t service_core::next_seed() noexcept { return seed_.fetch_add(1); }

void service_core::tell(event_kind kind, std::string_view resource,
                        std::int64_t token, const error* why,
                        duration took) const noexcept {
  if (!options_.observe)
    return;
  options_.observe->on_event({.kind = kind,
                              .resource = resource,
                              .token = token,
                              .why = why,
                              .took = took});
}

result<lease_answer> service_core::ask_for(const lease_request& request) {
  return caught([&] { return backend_->try_acquire(request); });
}

result<time_point> service_core::ask_to_renew(const grant& held, duration ttl,
                                              time_point deadline) {
  return caught([&] { return backend_->renew(held, ttl, deadline); });
}

result<void> service_core::ask_to_release(const grant& held,
                                          time_point deadline) {
  return caught([&] { return backend_->release(held, deadline); });
}

result<void> service_core::ask_to_let_go(const grant& held,
                                         time_point deadline) {
  return caught([&] { return backend_->let_go(held, deadline); });
}

result<std::shared_ptr<lease_state>> service_core::acquire(
    std::string_view resource, const acquire_options& options) {
  auto name = resource_name::parse(resource);
  if (!name)
    return name.error();
  auto terms = checked_terms(options, *backend_);
  if (!terms)
    return terms.error().about(resource);
  const time_point began = now();
  auto lease = acquisition{*this, *name, *terms, options}.run();
  if (!lease) {
    tell(event_kind::acquire_failed, resource, 0, &lease.error(),
         now() - began);
  }
  return lease;
}

result<void> service_core::release(const grant& held) {
  const time_point started = now();
  auto answer = ask_to_release(held, later(started, backend_->call_timeout()));
  const bool gone = answer || answer.code() == errc::not_owner;
  if (gone)
    room_.vacate(held.resource(), held.owner());
  if (!answer) {
    answer.error().about(held.resource().str()).presented(held.token().value());
  }
  tell(answer ? event_kind::released : event_kind::release_failed,
       held.resource().str(), held.token().value(),
       answer ? nullptr : &answer.error(), now() - started);
  return answer;
}

void service_core::shutdown() noexcept {
  stopping_.store(true);
  const auto held = keeper_.stop();
  room_.knock_all();
  for (const auto& lease : held)
    lease->lose(loss_reason::shutdown);
}

void keep_for_ever(std::shared_ptr<const void> kept) noexcept {
  struct node {
    std::shared_ptr<const void> kept;
    node* next;
  };
  // Reachable from here, so that no leak checker asks for it back.
  static std::atomic<node*> first{nullptr};
  auto* const n = new node{std::move(kept), first.load()};
  while (!first.compare_exchange_weak(n->next, n)) {
  }
}

}  // namespace lastdoor::detail
