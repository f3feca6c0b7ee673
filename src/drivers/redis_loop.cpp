#include <semaphore.h>

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

// Where one thread sleeps, once. It is woken by whoever has let the loop's lock
// go, so that it finds the lock free. By then its time may have been up and
// the thread gone, so it is shared. Not kept from sleep to sleep: objects of a
// thread end before those of static storage, which may still call.
//
// Not a condition variable, which takes a mutex of its own after each sleep
// and pays a system call to leave it.
class loop::sleeper {
 public:
  sleeper() noexcept { ::sem_init(&woken_, 0, 0); }
  sleeper(const sleeper&) = delete;
  sleeper& operator=(const sleeper&) = delete;
  ~sleeper() { ::sem_destroy(&woken_); }

  void wake() noexcept { ::sem_post(&woken_); }
  // Shorter than that when woken, or for no reason.
  void wait(duration at_most) noexcept {
    timespec until{};
    ::clock_gettime(CLOCK_MONOTONIC, &until);
    const auto ns = until.tv_nsec + at_most.count();
    until.tv_sec += ns / 1'000'000'000;
    until.tv_nsec = ns % 1'000'000'000;
    ::sem_clockwait(&woken_, CLOCK_MONOTONIC, &until);
  }

 private:
  sem_t woken_{};
};

struct loop::waiter {
  bool (*step)(void*) noexcept;
  void* state;
  time_point until;
  bool done{false};
  std::shared_ptr<sleeper> thread{};  // set while it follows
};

result<std::unique_ptr<loop>> loop::open(std::shared_ptr<clock> time) {
  auto bell = std::make_shared<event_bell>();
  if (!bell->works()) {
    return fail(errc::unavailable, "out of file descriptors");
  }
  return std::unique_ptr<loop>{new loop{std::move(time), std::move(bell)}};
}

loop::loop(std::shared_ptr<clock> time, std::shared_ptr<event_bell> bell)
    : time_{std::move(time)}, bell_{std::move(bell)} {}

loop::~loop() = default;

node& loop::add(node_options options) {
  const std::lock_guard lock{mutex_};
  nodes_.push_back(std::unique_ptr<node>{new node{*this, std::move(options)}});
  return *nodes_.back();
}

// Whoever has just been served is likely to come back with the next command.
// So while some are on their way, what was sent waits for the last of them,
// and travels in one write to each server instead of one for each caller.
void loop::write_gathered() {
  if (coming_ == 0) {
    for (const auto& n : nodes_) {
      n->flush();
    }
  }
}

// Lets the lock go and wakes the next one: of those that are served, or to
// lead. One at a time, as many would only queue for the lock.
void loop::leave(holding& lock) noexcept {
  if (polling_ && changed_ && !rung_) {
    rung_ = true;
    bell_->ring();
  }
  std::shared_ptr<sleeper> next;
  if (!served_.empty()) {
    next = served_.front()->thread;
    served_.erase(served_.begin());
  } else if (!led_ && coming_ == 0 && !followers_.empty()) {
    next = followers_.front()->thread;
  }
  lock.unlock();
  if (next) {
    next->wake();
  }
}

session::~session() {
  loop_.write_gathered();
  loop_.leave(lock_);
}

bool session::wait_for(step_function step, void* state, time_point until) {
  loop::waiter me{step, state, until};
  bool done = step(state);
  // Once at least: what has arrived is read, however late it is.
  for (bool late = false; !done && !late; late = loop_.now() >= until) {
    done = loop_.led_ ? loop_.follow(lock_, me) : loop_.lead(lock_, me);
  }
  return done;
}

bool loop::lead(holding& lock, waiter& me) {
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

bool loop::follow(holding& lock, waiter& me) {
  write_gathered();
  const auto pause = time_left(me.until, now());
  me.thread = std::make_shared<sleeper>();
  served_.reserve(served_.size() + followers_.size() + 1);  // not to fail later
  followers_.push_back(&me);
  leave(lock);
  me.thread->wait(pause);
  lock.lock();
  if (me.done) {
    --coming_;
    std::erase(served_, &me);  // still there if its time was up
  } else {
    std::erase(followers_, &me);
  }
  return me.done;
}

void loop::turn(holding& lock, time_point until) {
  write_gathered();
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
  leave(lock);
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
  std::erase_if(followers_, [this](waiter* w) {
    if (!w->step(w->state)) {
      return false;
    }
    w->done = true;
    ++coming_;
    served_.push_back(w);
    return true;
  });
}

}  // namespace lastdoor::redis_driver
