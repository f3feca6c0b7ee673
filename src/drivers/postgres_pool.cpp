#include "drivers/postgres_pool.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "drivers/forks.hpp"

namespace lastdoor::postgres_driver {

pool::pool(endpoint where, open_options options, std::size_t size)
    : where_{std::move(where)},
      options_{std::move(options)},
      size_{std::max<std::size_t>(size, 1)},
      forks_{forks()} {
  idle_.reserve(size_);
}

result<pool::loan> pool::borrow(time_point deadline) {
  std::unique_lock lock{mutex_};
  forget_parents();
  for (;;) {
    while (!idle_.empty()) {
      auto c = std::move(idle_.back());
      idle_.pop_back();
      if (c->usable()) {
        return loan{*this, std::move(c)};
      }
      --open_;
    }
    if (open_ < size_) {
      break;
    }
    const auto left = deadline - options_.time->now();
    if (left <= duration{0}) {
      return fail(errc::unavailable,
                  fmt::format("all {} connections to {} are in use", size_,
                              where_.shown));
    }
    returned_.wait_for(lock, left);
  }
  ++open_;
  lock.unlock();
  auto fresh = connection::open(where_, options_, deadline);
  if (!fresh) {
    lock.lock();
    --open_;
    returned_.notify_one();
    return fresh.error();
  }
  return loan{*this, std::make_unique<connection>(std::move(*fresh))};
}

void pool::take_back(std::unique_ptr<connection> c) noexcept {
  const bool good = c->idle();  // whoever takes it looks closer
  const std::lock_guard lock{mutex_};
  forget_parents();
  if (good && idle_.size() < size_) {
    idle_.push_back(std::move(c));  // within the reserve: cannot throw
  } else if (open_ > 0) {
    --open_;
  }
  returned_.notify_one();
}

void pool::close_all() noexcept {
  const std::lock_guard lock{mutex_};
  open_ -= idle_.size();
  idle_.clear();
}

void pool::forget_parents() noexcept {
  if (forks_ != forks()) {
    forks_ = forks();
    idle_.clear();
    open_ = 0;
  }
}

}  // namespace lastdoor::postgres_driver
