// service_core.hpp: what a `lock_service` is a handle of.
//
// It is shared by handles, leases and threads. Handles are counted apart (see
// `service_handle`): when the last of them is gone the leases are lost, but
// their releases still need the back end.
//
// Fork: the process that made it is remembered. In a child its threads do not
// exist and its mutexes may be held for ever, so nothing here may be touched;
// see `in_child` and `keep_for_ever`.
//
// Thread safety: all members may be called from any thread.
#pragma once

#include <atomic>
#include <lastdoor/lock_service.hpp>
#include <memory>

#include "keeper.hpp"
#include "lease_terms.hpp"
#include "waiting_room.hpp"

namespace lastdoor::detail {

class service_core : public std::enable_shared_from_this<service_core> {
 public:
  service_core(std::unique_ptr<lock_backend> backend,
               lock_service_options options);

  /// True in a process that was forked off the one that made this.
  [[nodiscard]] bool in_child() const noexcept;
  /// What every member answers there.
  [[nodiscard]] static error refuse_in_child();

  /// The time; a step back of the clock is counted in `jumps()`.
  [[nodiscard]] time_point now() const noexcept;
  [[nodiscard]] unsigned jumps() const noexcept { return jumps_.load(); }

  [[nodiscard]] lock_backend& backend() const noexcept { return *backend_; }
  // The three verbs, for a back end that throws against its contract too: on
  // our threads and in destructors an exception would end the process.
  [[nodiscard]] result<lease_answer> ask_for(const lease_request& request);
  [[nodiscard]] result<time_point> ask_to_renew(const grant& held, duration ttl,
                                                time_point deadline);
  [[nodiscard]] result<void> ask_to_release(const grant& held,
                                            time_point deadline);
  // Success may mean that it is on its way.
  [[nodiscard]] result<void> ask_to_let_go(const grant& held,
                                           time_point deadline);
  [[nodiscard]] const std::shared_ptr<lastdoor::clock>& time() const noexcept {
    return options_.time;
  }
  [[nodiscard]] const std::shared_ptr<observer>& observe() const noexcept {
    return options_.observe;
  }
  [[nodiscard]] waiting_room& room() noexcept { return room_; }
  [[nodiscard]] detail::keeper& keeper() noexcept { return keeper_; }
  [[nodiscard]] std::uint64_t next_seed() noexcept;

  void tell(event_kind kind, std::string_view resource, std::int64_t token,
            const error* why, duration took) const noexcept;

  [[nodiscard]] result<std::shared_ptr<lease_state>> acquire(
      std::string_view resource, const acquire_options& options);
  [[nodiscard]] result<void> release(const grant& held);
  [[nodiscard]] bool stopping() const noexcept { return stopping_.load(); }
  void shutdown() noexcept;
  void join() noexcept { keeper_.join(); }

 private:
  const std::unique_ptr<lock_backend> backend_;
  const lock_service_options options_;
  const unsigned forks_;
  std::atomic<std::uint64_t> seed_;
  std::atomic<bool> stopping_{false};
  // The latest time seen by anyone, and how often the clock fell behind it.
  mutable std::atomic<duration::rep> latest_;
  mutable std::atomic<unsigned> jumps_{0};
  waiting_room room_;
  detail::keeper keeper_;
};

/// Never destroys what it is given. For a forked child, whose copies of
/// threads and mutexes cannot be destroyed.
void keep_for_ever(std::shared_ptr<const void> kept) noexcept;

}  // namespace lastdoor::detail
