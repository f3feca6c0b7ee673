// acquisition.hpp: one call of `acquire`: its place in the line, its attempts
// and its pauses.
//
// Invariants
//   - Every attempt has a fresh owner value and a deadline of its own.
//   - What an attempt may have left at the service is undone by that owner
//     before anything else happens.
//   - Nothing is sent before it is this call's turn.
//
// Thread safety: none; it lives on the stack of the caller.
#pragma once

#include <lastdoor/lock_service.hpp>
#include <memory>

#include "backoff.hpp"
#include "lease_terms.hpp"
#include "service_core.hpp"
#include "waiting_room.hpp"

namespace lastdoor::detail {

class acquisition {
 public:
  acquisition(service_core& core, const resource_name& resource,
              const lease_terms& terms, const acquire_options& options);

  [[nodiscard]] result<std::shared_ptr<lease_state>> run();

 private:
  using outcome = result<std::shared_ptr<lease_state>>;

  // Rings the bell that a waiter sleeps on, as long as it lives.
  class sleeper;

  [[nodiscard]] std::optional<error> interrupted() const;
  [[nodiscard]] error busy_here(time_point now) const;
  [[nodiscard]] outcome wait_and_try(sleeper& s);
  [[nodiscard]] outcome attempt();
  [[nodiscard]] outcome accept(const grant& g, time_point started);
  [[nodiscard]] error refuse_late(const grant& g, time_point now);
  void undo(const grant& g);

  service_core& core_;
  const resource_name& resource_;
  const lease_terms& terms_;
  const acquire_options& options_;
  const time_point began_;
  const time_point give_up_at_;
  waiting_room::place place_;
};

}  // namespace lastdoor::detail
