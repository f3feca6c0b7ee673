// drivers/postgres_pool.hpp: a few connections, shared by threads.
//
// Invariants
//   - At most `size` connections at once, those on loan included.
//   - Only a connection in no transaction and without an unread answer goes
//     back; everything else is closed.
//   - After fork() the child finds the pool empty and opens its own.
//
// Thread safety: all members may be called from any thread. A loan belongs
// to one thread at a time and must not outlive the pool.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "drivers/postgres.hpp"

namespace lastdoor::postgres_driver {

class pool {
 public:
  pool(endpoint where, open_options options, std::size_t size);

  class loan {
   public:
    loan(pool& from, std::unique_ptr<connection> c) noexcept
        : from_{&from}, connection_{std::move(c)} {}
    loan(loan&&) noexcept = default;
    loan& operator=(loan&&) = delete;
    ~loan() {
      if (connection_ != nullptr) {
        from_->take_back(std::move(connection_));
      }
    }
    [[nodiscard]] connection& operator*() noexcept { return *connection_; }
    [[nodiscard]] connection* operator->() noexcept {
      return connection_.get();
    }

   private:
    pool* from_;
    std::unique_ptr<connection> connection_;
  };

  // An idle connection, the one used last first; or a new one. Waits while
  // all are on loan. `unavailable` at the deadline.
  [[nodiscard]] result<loan> borrow(time_point deadline);
  // Closes what is idle; loans are closed when they come back.
  void close_all() noexcept;

  [[nodiscard]] const endpoint& where() const noexcept { return where_; }

 private:
  void take_back(std::unique_ptr<connection> c) noexcept;
  void forget_parents() noexcept;  // with `mutex_` held

  const endpoint where_;
  const open_options options_;
  const std::size_t size_;
  std::mutex mutex_;
  std::condition_variable returned_;
  std::vector<std::unique_ptr<connection>> idle_;
  std::size_t open_{0};
  unsigned forks_;
};

}  // namespace lastdoor::postgres_driver
