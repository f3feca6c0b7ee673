// mutex.hpp: a mutex that clang's -Wthread-safety can follow. The standard
// one carries no annotations in libstdc++.
#pragma once

#include <mutex>

#if defined(__clang__)
#define LASTDOOR_THREAD_ANNOTATION(x) __attribute__((x))
#else
#define LASTDOOR_THREAD_ANNOTATION(x)
#endif

#define LASTDOOR_GUARDED_BY(m) LASTDOOR_THREAD_ANNOTATION(guarded_by(m))
#define LASTDOOR_REQUIRES(m) LASTDOOR_THREAD_ANNOTATION(requires_capability(m))

namespace lastdoor::detail {

class LASTDOOR_THREAD_ANNOTATION(capability("mutex")) mutex {
 public:
  void lock() LASTDOOR_THREAD_ANNOTATION(acquire_capability()) {
    mutex_.lock();
  }
  void unlock() LASTDOOR_THREAD_ANNOTATION(release_capability()) {
    mutex_.unlock();
  }

 private:
  std::mutex mutex_;
};

/// Holds the mutex from construction to the end of the scope.
class LASTDOOR_THREAD_ANNOTATION(scoped_lockable) locked {
 public:
  explicit locked(mutex& m) LASTDOOR_THREAD_ANNOTATION(acquire_capability(m))
      : mutex_{m} {
    mutex_.lock();
  }
  ~locked() LASTDOOR_THREAD_ANNOTATION(release_capability()) {
    mutex_.unlock();
  }
  locked(const locked&) = delete;
  locked& operator=(const locked&) = delete;

 private:
  mutex& mutex_;
};

}  // namespace lastdoor::detail
