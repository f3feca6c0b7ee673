#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "redis.hpp"

namespace lastdoor::redis_driver {

namespace {

// No sleep is longer than this. The kernel's time-outs stand still during
// suspend and know nothing of a clock that was put in by the user; looking at
// the clock now and then costs nothing while somebody waits anyway.
constexpr duration longest_sleep = std::chrono::milliseconds{100};

duration time_left(time_point until, time_point now) noexcept {
  if (until <= now) {
    return duration{0};
  }
  // Compared first: `until` may be the end of time.
  return until > now + longest_sleep ? longest_sleep : until - now;
}

}  // namespace

result<std::shared_ptr<wake_up>> wake_up::make() {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (fd < 0) {
    return fail(errc::unavailable, "out of file descriptors");
  }
  return std::make_shared<wake_up>(fd);
}

wake_up::~wake_up() { ::close(fd_); }

void wake_up::ring() const noexcept {
  const std::uint64_t one = 1;
  // Can only fail when the bell rings already.
  static_cast<void>(::write(fd_, &one, sizeof one) > 0);
}

void wake_up::silence() const noexcept {
  std::uint64_t count = 0;
  static_cast<void>(::read(fd_, &count, sizeof count) > 0);
}

struct loop::waiter {
  bool (*step)(void*) noexcept;
  void* state;
  time_point until;
  bool done{false};
  std::condition_variable bell;
};

result<std::unique_ptr<loop>> loop::open(std::shared_ptr<clock> time) {
  auto bell = wake_up::make();
  if (!bell) {
    return bell.error();
  }
  return std::unique_ptr<loop>{new loop{std::move(time), std::move(*bell)}};
}

loop::loop(std::shared_ptr<clock> time, std::shared_ptr<wake_up> bell)
    : time_{std::move(time)}, bell_{std::move(bell)} {}

loop::~loop() = default;

node& loop::add(node_options options) {
  const std::lock_guard lock{mutex_};
  nodes_.push_back(std::unique_ptr<node>{new node{*this, std::move(options)}});
  return *nodes_.back();
}

void loop::flush() {
  for (const auto& n : nodes_) {
    n->flush();
  }
  if (polling_ && changed_ && !rung_) {
    rung_ = true;
    bell_->ring();
  }
}

bool session::wait_for(step_function step, void* state, time_point until) {
  loop::waiter me{step, state, until, false, {}};
  bool done = step(state);
  // Once at least: what has arrived is read, however late it is.
  for (bool late = false; !done && !late; late = loop_.now() >= until) {
    done = loop_.led_ ? loop_.follow(lock_, me) : loop_.lead(lock_, me);
  }
  loop_.flush();
  loop_.pass_on();
  return done;
}

bool loop::lead(std::unique_lock<std::mutex>& lock, waiter& me) {
  led_ = true;
  // Also when memory runs out: the others must not wait for nobody.
  struct retire {
    bool& led;
    ~retire() { led = false; }
  } const at_end{led_};
  bool done = false;
  do {
    turn(lock, me.until);
    done = me.step(me.state);
  } while (!done && now() < me.until);
  return done;
}

bool loop::follow(std::unique_lock<std::mutex>& lock, waiter& me) {
  flush();
  followers_.push_back(&me);
  me.bell.wait_for(lock, time_left(me.until, now()),
                   [&] { return me.done || !led_; });
  // Gone already when the leader found it done.
  followers_.erase(std::remove(followers_.begin(), followers_.end(), &me),
                   followers_.end());
  return me.done;
}

void loop::pass_on() noexcept {
  if (!led_ && !followers_.empty()) {
    followers_.front()->bell.notify_one();
  }
}

void loop::turn(std::unique_lock<std::mutex>& lock, time_point until) {
  flush();
  polled_.clear();
  generations_.clear();
  polled_.push_back({bell_->fd(), POLLIN, 0});
  for (const auto& n : nodes_) {
    polled_.push_back({n->fd(), n->interest(), 0});
    generations_.push_back(n->generation());
    until = std::min(until, n->timer());
  }
  changed_ = false;
  const auto pause = time_left(until, now()).count();
  const timespec timeout{pause / 1'000'000'000, pause % 1'000'000'000};

  polling_ = true;
  lock.unlock();
  // EINTR, too, means to look at the clock and come again.
  const int ready = ::ppoll(polled_.data(), polled_.size(), &timeout, nullptr);
  lock.lock();
  polling_ = false;

  if (ready > 0 && polled_.front().revents != 0) {
    bell_->silence();
    rung_ = false;
  }
  for (std::size_t i = 0; ready > 0 && i < generations_.size(); ++i) {
    // A connection that somebody else lost meanwhile has no events.
    if (polled_[i + 1].revents != 0 &&
        nodes_[i]->generation() == generations_[i]) {
      nodes_[i]->handle(polled_[i + 1].revents);
    }
  }
  const auto moment = now();
  for (const auto& n : nodes_) {
    n->expire(moment);
  }
  serve_followers();
}

void loop::serve_followers() {
  const auto content = [](waiter* w) {
    if (!w->step(w->state)) {
      return false;
    }
    w->done = true;
    w->bell.notify_one();
    return true;
  };
  followers_.erase(
      std::remove_if(followers_.begin(), followers_.end(), content),
      followers_.end());
}

}  // namespace lastdoor::redis_driver
