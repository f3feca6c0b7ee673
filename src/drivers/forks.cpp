#include "forks.hpp"

#include <pthread.h>

#include <atomic>

namespace lastdoor {

namespace {

std::atomic<unsigned>& counter() noexcept {
  static std::atomic<unsigned> count{0};
  // Only the child counts. getpid() would do as well, at the price of a
  // system call for every write.
  static const int installed = ::pthread_atfork(
      nullptr, nullptr, [] { count.fetch_add(1, std::memory_order_relaxed); });
  static_cast<void>(installed);
  return count;
}

}  // namespace

unsigned forks() noexcept { return counter().load(std::memory_order_relaxed); }

}  // namespace lastdoor
