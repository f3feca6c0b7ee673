// drivers/postgres_undertaker.hpp: last words on connections that timed out.
//
// A statement that did not answer in time may still take effect. Where its
// effect has to be undone, the place to do it is behind it, on the same
// session: there it cannot come too early, and needs no connection that may
// not be had. Nobody waits for it; what it cannot do within half a minute is
// left to the TTL.
//
// Invariants
//   - At most four connections at once; of more the undo is not tried.
//   - No thread of it outlives the program's static objects.
//
// Thread safety: free functions; may be called from any thread.
#pragma once

#include "drivers/postgres.hpp"

namespace lastdoor::postgres_driver {

// A connection of which nothing but the handle is left.
class last_will {
 public:
  virtual ~last_will() = default;
  [[nodiscard]] virtual PGconn* raw() const noexcept = 0;
};

// Once `connection` has answered what it was asked, runs `sql` on it; then
// closes it.
void undo_in_background(std::unique_ptr<last_will> connection, std::string sql,
                        arguments with) noexcept;

}  // namespace lastdoor::postgres_driver
