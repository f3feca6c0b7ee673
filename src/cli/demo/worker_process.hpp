// worker_process.hpp: the coordinator's hold on one worker.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "cli/demo/events.hpp"
#include "cli/run/signals.hpp"

namespace lastdoor::cli {

class worker_process {
 public:
  // Starts this very program as a worker and tells it its orders.
  [[nodiscard]] static result<worker_process> start(
      const demo_orders_to_worker& orders);

  worker_process(worker_process&& other) noexcept;
  worker_process& operator=(worker_process&&) = delete;
  // Kills and reaps.
  ~worker_process();

  [[nodiscard]] pid_t pid() const noexcept { return pid_; }
  // Readable when there are events, or at the end; -1 after the end.
  [[nodiscard]] int events_fd() const noexcept { return events_.get(); }
  // What is there to read now.
  [[nodiscard]] std::vector<demo_event> read_events();

  void tell(char order) noexcept;
  // SIGSTOP; returns when it has stopped. False if it cannot be shown that
  // every thread has.
  [[nodiscard]] bool stop() noexcept;
  void resume() noexcept;
  // Waits for the end. Answers the wait status.
  int reap() noexcept;

 private:
  worker_process(pid_t pid, descriptor orders, descriptor events) noexcept;
  pid_t pid_;
  descriptor orders_;
  descriptor events_;
  std::string unfinished_;  // the start of a line
};

}  // namespace lastdoor::cli
