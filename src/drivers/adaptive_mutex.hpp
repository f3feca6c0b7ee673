// adaptive_mutex.hpp: a mutex for sections of a few microseconds.
//
// Who finds it taken looks again a few times before going to sleep, where the
// C library offers that (glibc). With many threads on one loop of connections,
// each that leaves wakes the next and then comes back itself: asleep for the
// lock, it would cost two changes of threads for a wait of some microseconds.
// Measured with 32 threads on five servers: 3.3 changes a lease to 2.4.
#pragma once

#include <pthread.h>

namespace lastdoor::detail {

// What std::unique_lock and std::lock_guard ask for.
class adaptive_mutex {
 public:
  adaptive_mutex() = default;
  adaptive_mutex(const adaptive_mutex&) = delete;
  adaptive_mutex& operator=(const adaptive_mutex&) = delete;
  ~adaptive_mutex() { ::pthread_mutex_destroy(&mutex_); }

  void lock() noexcept { ::pthread_mutex_lock(&mutex_); }
  void unlock() noexcept { ::pthread_mutex_unlock(&mutex_); }

 private:
#ifdef PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP
  pthread_mutex_t mutex_ = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
#else
  pthread_mutex_t mutex_ = PTHREAD_MUTEX_INITIALIZER;
#endif
};

}  // namespace lastdoor::detail
