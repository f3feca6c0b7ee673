// lease_state.hpp: what a `lease` is a handle of, and its state machine.
//
// Invariants
//   - `held` is left once and never entered again, so a loss is signalled at
//     most once and a late answer revives nothing.
//   - The end of validity only moves forward, and only in `held`.
//   - The owner value is kept until the service confirmed the release.
//
// phase     | entered by                    | next
// ----------|-------------------------------|------------------------------
// held      | the grant                     | all others
// lost      | `lose`, with a reason         | -
// ending    | a release that is not (yet)   | released, lost (not_owner)
//           | confirmed                     |
// released  | a confirmed release           | -
// orphaned  | `orphan`                      | -
//
// Thread safety: all members may be called from any thread. No lock is held
// during a call to the back end, a stop callback or an observer.
#pragma once

#include <lastdoor/lease.hpp>
#include <memory>
#include <optional>

#include "backoff.hpp"
#include "keeper.hpp"
#include "lease_terms.hpp"
#include "mutex.hpp"

namespace lastdoor::detail {

class service_core;

class lease_state : public std::enable_shared_from_this<lease_state> {
 public:
  /// `started` is the moment before the acquisition was sent.
  lease_state(std::shared_ptr<service_core> core, grant g,
              const lease_terms& terms, time_point started, std::uint64_t seed);

  [[nodiscard]] const grant& identity() const noexcept { return grant_; }
  [[nodiscard]] bool in_child() const noexcept;
  [[nodiscard]] std::stop_token lost() const { return lost_.get_token(); }
  [[nodiscard]] std::optional<loss_reason> why_lost() const;
  [[nodiscard]] result<void> check();
  [[nodiscard]] duration remaining() const;
  [[nodiscard]] result<void> renew();
  [[nodiscard]] result<void> release();
  /// What a destructor does: one call at most, and errors to the observer.
  void end_quietly() noexcept;
  grant orphan();

  /// Signals the loss unless the lease is no longer held.
  void lose(loss_reason reason, const error* why = nullptr);

  // For the keeper.

  struct plan {
    std::optional<time_point> loss_at;
    std::optional<time_point> call_at;
  };
  [[nodiscard]] plan next_steps() const;
  /// The timer came to the loss; `asked` is when it wanted to wake up.
  void time_is_up(time_point asked);
  /// The renewal thread came to the call.
  void make_call();

  agenda_slot slot;  // the keeper's, under the keeper's mutex

 private:
  enum class phase : std::uint8_t { held, lost, ending, released, orphaned };

  [[nodiscard]] time_point loss_at() const LASTDOOR_REQUIRES(mutex_);
  [[nodiscard]] error lease_lost(const char* what) const;
  void tell(event_kind kind, const error* why, duration took) const noexcept;
  void plan_renewal(time_point started, time_point now)
      LASTDOOR_REQUIRES(mutex_);
  void plan_retry(time_point now) LASTDOOR_REQUIRES(mutex_);
  [[nodiscard]] bool jumped() const noexcept;
  [[nodiscard]] loss_reason reason_at(time_point now, time_point asked) const
      LASTDOOR_REQUIRES(mutex_);

  void leave(phase from, loss_reason reason, const error* why);
  result<void> renew_once(bool retry);
  result<void> renewed(time_point started, time_point until);
  result<void> renewed_too_late();
  result<void> not_renewed(const error& why, bool retry, duration took);
  void farewell();
  result<void> release_once(bool quiet);
  result<bool> begin_release();
  result<void> finish_release(const result<void>& answer, bool quiet,
                              duration took);
  void sync();

  const std::shared_ptr<service_core> core_;
  const grant grant_;
  const lease_terms terms_;
  const unsigned jumps_;  // of the clock, when it was granted
  std::stop_source lost_;

  mutable mutex mutex_;
  phase phase_ LASTDOOR_GUARDED_BY(mutex_){phase::held};
  loss_reason reason_ LASTDOOR_GUARDED_BY(mutex_){};
  time_point valid_until_ LASTDOOR_GUARDED_BY(mutex_);
  std::optional<time_point> call_at_ LASTDOOR_GUARDED_BY(mutex_);
  backoff retry_ LASTDOOR_GUARDED_BY(mutex_);
  bool renewal_failed_ LASTDOOR_GUARDED_BY(mutex_){false};  // the last one
  bool lingers_ LASTDOOR_GUARDED_BY(mutex_){false};         // renewed too late
  bool release_in_doubt_ LASTDOOR_GUARDED_BY(mutex_){false};
  bool failure_reported_ LASTDOOR_GUARDED_BY(mutex_){false};
  int releases_under_way_ LASTDOOR_GUARDED_BY(mutex_){0};
};

}  // namespace lastdoor::detail
