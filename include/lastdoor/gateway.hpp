// gateway.hpp: the front door. A lock, then a barrier at the store, then
// writes that cannot be stale.
//
// Invariants
//   - G5: when `acquire` returns with the barrier at grant, no write of an
//     earlier grant of this resource can commit any more, on any row.
//   - G8: a token at or below the store's mark is never used. The source is
//     raised above the mark, that is reported, and a new grant is acquired.
//   - Nothing here retries a stale write, and nothing is sent once the lease
//     is locally too old.
//
// Thread safety: a gateway may be used from any thread; a session belongs to
// one thread at a time (its lease's `lost()` may be watched from others).
// Lifetime: the gateway refers to the store; the store must outlive it and
// its sessions.
//
// Example:
//
//   lastdoor::gateway gateway{locks, store};
//   auto session = gateway.acquire("inventory/sku-1001", {.ttl = 10s});
//   auto sold = session->write(
//       update("inventory").key("sku", "1001").subtract("qty", 3));
//   auto done = session->transaction(
//       [&](sqlite3* db) { orders.insert(db, order); });
#pragma once

#include <atomic>
#include <concepts>
#include <lastdoor/lock_service.hpp>
#include <lastdoor/stores/store.hpp>
#include <utility>

namespace lastdoor {

/// A store whose `transaction(grant, f, write_options)` runs `f` with the
/// driver's own transaction object behind the claim.
template <class S>
concept fenced_store = std::derived_from<S, store>;

/// Whatever else than a statement a store has a `write` for.
template <class Work, class Store>
concept written_by =
    !std::convertible_to<const Work&, const statement&> &&
    requires(Store & s, const Work& w, const grant& g, const write_options& o) {
  s.write(g, w, o);
};

enum class barrier : std::uint8_t {
  /// `acquire` raises the mark before it returns. The default.
  at_grant,
  /// The first write raises it. Saves a call; until then a delayed write of
  /// an earlier grant is still accepted, and a token source that forgot is
  /// noticed (and raised) only by that write, which is refused as stale.
  at_first_write,
};

struct gateway_options {
  lastdoor::barrier barrier{barrier::at_grant};
  /// How often a regressed token source is raised and asked again.
  int regressions_tolerated{2};
};

namespace detail {
/// Lock, barrier, regression handling; independent of the store's type.
[[nodiscard]] result<lease> acquire_behind_barrier(lock_service& locks,
                                                   store& s,
                                                   std::string_view resource,
                                                   const acquire_options& a,
                                                   const gateway_options& g);
/// The local check before every call.
[[nodiscard]] result<void> before_call(const lease& l);
/// Tells lease and observer what the store said. `first_call`: of the session;
/// without a barrier at grant it is the one that meets a forgetful source.
void after_call(lease& l, lock_service& locks, const error& e,
                bool first_call) noexcept;

/// True once, for whichever thread asks first; moves along.
class first_time {
 public:
  first_time() = default;
  first_time(first_time&& other) noexcept : left_{other.take()} {}
  first_time& operator=(first_time&& other) noexcept {
    left_ = other.take();
    return *this;
  }
  bool take() noexcept { return left_.exchange(false); }

 private:
  std::atomic<bool> left_{true};
};
}  // namespace detail

/// A lease together with the store it guards.
template <fenced_store Store>
class session {
 public:
  session(lease l, lock_service locks, Store& s) noexcept
      : lease_{std::move(l)}, locks_{std::move(locks)}, store_{&s} {}

  [[nodiscard]] const lastdoor::grant& grant() const { return lease_.grant(); }
  [[nodiscard]] fencing_token token() const { return lease_.token(); }
  [[nodiscard]] lease& held() noexcept { return lease_; }
  [[nodiscard]] std::stop_token lost() const { return lease_.lost(); }
  [[nodiscard]] result<void> check() const { return lease_.check(); }
  [[nodiscard]] result<void> release() { return lease_.release(); }

  /// One fenced statement; `lease_lost` when it is locally too late.
  [[nodiscard]] result<receipt> write(const statement& s,
                                      const write_options& o = {}) {
    if (auto ok = detail::before_call(lease_); !ok)
      return ok.error();
    return told(store_->write(lease_.grant(), s, o));
  }

  /// The same for what else the store writes, e.g. redis_commands.
  template <written_by<Store> Work>
  [[nodiscard]] auto write(const Work& w, const write_options& o = {}) {
    using answer = decltype(store_->write(lease_.grant(), w, o));
    if (auto ok = detail::before_call(lease_); !ok)
      return answer{ok.error()};
    return told(store_->write(lease_.grant(), w, o));
  }

  /// Any SQL behind the claim; see the store's `transaction`.
  template <class F>
  [[nodiscard]] auto transaction(F&& f, const write_options& o = {}) {
    using answer = decltype(store_->transaction(lease_.grant(), f, o));
    if (auto ok = detail::before_call(lease_); !ok)
      return answer{ok.error()};
    return told(store_->transaction(lease_.grant(), std::forward<F>(f), o));
  }

 private:
  template <class R>
  R told(R r) {
    const bool first_call = first_.take();
    if (!r)
      detail::after_call(lease_, locks_, r.error(), first_call);
    return r;
  }

  lease lease_;
  lock_service locks_;
  Store* store_;
  detail::first_time first_;
};

template <fenced_store Store>
class gateway {
 public:
  gateway(lock_service locks, Store& s, gateway_options options = {})
      : locks_{std::move(locks)}, store_{&s}, options_{options} {}

  /// Lock, then barrier. What `lock_service::acquire` and `store::claim` say;
  /// `token_regressed` when the source stayed behind the store's mark.
  [[nodiscard]] result<session<Store>> acquire(
      std::string_view resource, const acquire_options& options = {}) {
    auto l = detail::acquire_behind_barrier(locks_, *store_, resource, options,
                                            options_);
    if (!l)
      return l.error();
    return session<Store>{std::move(*l), locks_, *store_};
  }

 private:
  lock_service locks_;
  Store* store_;
  gateway_options options_;
};

}  // namespace lastdoor
