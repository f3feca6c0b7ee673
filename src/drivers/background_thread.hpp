// background_thread.hpp: a thread of the library inside somebody's program.
#pragma once

#include <pthread.h>

#include <csignal>
#include <thread>
#include <utility>

namespace lastdoor {

// Starts a thread that takes no signals: the program's handlers run on the
// program's own threads. (Threads inherit the mask of their maker.) Throws
// std::system_error when there is none to have.
template <class Function>
std::thread background_thread(Function&& body) {
  sigset_t all;
  sigset_t before;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &before);
  struct restore {
    const sigset_t& mask;
    ~restore() { ::pthread_sigmask(SIG_SETMASK, &mask, nullptr); }
  } const at_end{before};
  return std::thread{std::forward<Function>(body)};
}

}  // namespace lastdoor
