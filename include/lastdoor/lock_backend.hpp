// lock_backend.hpp: what a lock service must be able to do; for authors of
// back ends. Users see `lock_service`, which adds waiting, renewal, loss.
//
// Invariants every back end keeps (testing/lock_contract.hpp checks them)
//   - G1, G2: tokens are unique and ordered without trusting any clock. The
//     token is drawn in the same atomic step that grants the lease.
//   - Expiry is decided by the TTL that the holder stored.
//   - `renew` never creates a lease and never takes one over; `release` frees
//     nothing but the lease of the given owner.
//   - A failed or partial acquisition is undone by its own owner value.
//   - A repeated `renew` or `release` recognises its own earlier success.
//   - Validity is counted from before the first request was sent, and never
//     rounded up.
//   - G8: a token source that forgot is raised or refuses; it never hands out
//     a token at or below one it handed out before.
//
// One attempt is one deadline: each verb returns by its `deadline`, up to
// scheduling, with an answer or an error (`unavailable`: provably nothing
// happened; `in_doubt`: it may have).
//
// Thread safety: every member may be called from any thread.
// Errors: by `result`; nothing throws for a runtime condition.
#pragma once

#include <lastdoor/clock.hpp>
#include <lastdoor/grant.hpp>
#include <lastdoor/token.hpp>
#include <memory>
#include <string>

namespace lastdoor {

/// One acquisition attempt. `ttl` has been checked against the back end's
/// limits before it gets here.
struct lease_request {
  const resource_name& resource;
  const owner_id& owner;  // fresh for every attempt
  duration ttl;
  std::string holder;   // free text for people: who holds it, "host:pid"
  time_point deadline;  // of this attempt
};

struct lease_answer {
  fencing_token token;
  time_point valid_until;
};

/// What a service knows of a resource now; for people and for tests.
struct lease_status {
  bool held{false};
  std::string holder;     // free text of the holder; empty when not held
  mark last_token;        // of the last grant of this resource, if known
  duration remaining{0};  // by the service's own clock
};

class lock_backend {
 public:
  virtual ~lock_backend() = default;

  /// The configured name; see `source_name`.
  [[nodiscard]] virtual const source_name& source() const noexcept = 0;

  /// The longest TTL it grants. The shortest is 1 ms everywhere.
  [[nodiscard]] virtual duration max_ttl() const noexcept = 0;

  /// The usual limit of one call; a renewal that fails is tried again within
  /// validity, so `renew_every` + this + the loss margin must fit in the TTL.
  [[nodiscard]] virtual duration call_timeout() const noexcept = 0;

  /// `busy` (with `retry_after_ms` when known), `unavailable`, `in_doubt`,
  /// `no_quorum`, `too_slow`, `token_exhausted`, `damaged`, `misconfigured`.
  [[nodiscard]] virtual result<lease_answer> try_acquire(
      const lease_request& request) = 0;

  /// The new end of validity. `not_owner` when the lease is gone or foreign;
  /// `unavailable` or `in_doubt` when the service did not tell.
  [[nodiscard]] virtual result<time_point> renew(const grant& held,
                                                 duration ttl,
                                                 time_point deadline) = 0;

  /// `not_owner` when the lease is gone or foreign. The owner alone decides:
  /// where an acquisition is undone whose answer was lost, nobody knows the
  /// token and the grant carries the lowest one.
  [[nodiscard]] virtual result<void> release(const grant& held,
                                             time_point deadline) = 0;

  /// The same for a holder that waits for no answer, a destructor for one:
  /// success may mean that the request is on its way. What is lost on the way
  /// ends with its TTL.
  [[nodiscard]] virtual result<void> let_go(const grant& held,
                                            time_point deadline) {
    return release(held, deadline);
  }

  [[nodiscard]] virtual result<lease_status> inspect(
      const resource_name& resource) = 0;

  /// Rings `bell` whenever `resource` may have become free, until the answer
  /// is destroyed. Only a hint: rings may be missed or come for nothing, the
  /// waiter polls all the same. Null: this back end has no notifications.
  [[nodiscard]] virtual std::shared_ptr<void> watch(
      const resource_name& /*resource*/, alarm& /*bell*/) {
    return nullptr;
  }

  /// Afterwards every new token is above `floor`. Never lowers anything.
  [[nodiscard]] virtual result<void> raise_floor(mark floor) = 0;
};

}  // namespace lastdoor
