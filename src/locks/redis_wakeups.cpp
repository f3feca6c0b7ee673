#include "redis_wakeups.hpp"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <system_error>
#include <thread>
#include <vector>

#include "drivers/background_thread.hpp"

namespace lastdoor {

namespace driver = redis_driver;

namespace {
// The thread outlives its last waiter by this: where there is contention, the
// next one is not far.
constexpr duration linger = std::chrono::seconds{1};
// Listening failed: the waiters poll meanwhile.
constexpr duration pause_after_failure = std::chrono::milliseconds{200};
}  // namespace

// All but `thread_` belongs to the loop's lock.
class redis_wakeups::listener {
 public:
  listener(std::unique_ptr<driver::loop> where, driver::node_options options)
      : loop_{std::move(where)}, node_{loop_->add([&] {
          options.on_push = [this](driver::reply_view said) { hear(said); };
          return std::move(options);
        }())} {}

  // False when no thread could be had.
  bool add(const std::string& channel, alarm& bell) {
    driver::session in{*loop_};
    if (!running_) {
      if (thread_.joinable()) {
        thread_.join();  // it has left the loop for good
      }
      try {
        thread_ = background_thread([this] { run(); });
      } catch (const std::system_error&) {
        return false;
      }
      running_ = true;
      home_ = ::getpid();
    }
    auto& here = channels_[channel];
    here.bells.push_back(&bell);
    if (here.begun) {
      bell.ring();
    } else if (here.bells.size() == 1 && heard_of_ == node_.generation()) {
      node_.send(in, {"SUBSCRIBE", channel});
    }
    in.nudge();
    return true;
  }

  void remove(const std::string& channel, const alarm& bell) {
    driver::session in{*loop_};
    const auto here = channels_.find(channel);
    auto& bells = here->second.bells;
    bells.erase(std::find(bells.begin(), bells.end(), &bell));
    if (!bells.empty()) {
      return;
    }
    channels_.erase(here);
    if (heard_of_ == node_.generation()) {
      node_.send(in, {"UNSUBSCRIBE", channel});
    }
    if (channels_.empty()) {
      in.nudge();
    }
  }

  void stop() {
    {
      driver::session in{*loop_};
      stop_ = true;
      in.nudge();
    }
    if (thread_.joinable()) {
      thread_.join();
    }
  }

  // In the child of a fork() there is no thread, and nobody will ever unlock
  // what it had locked.
  [[nodiscard]] bool is_elsewhere() const noexcept {
    return home_ != 0 && home_ != ::getpid();
  }
  void abandon() {
    if (thread_.joinable()) {
      thread_.detach();
    }
  }

 private:
  struct channel_state {
    std::vector<alarm*> bells;
    bool begun{false};  // the server has told that we listen
  };

  void hear(driver::reply_view said) {
    if (said.is_error()) {
      refused_ = true;
      return;
    }
    const auto kind = said[0].text();
    if (kind != "message" && kind != "subscribe") {
      return;
    }
    const auto here = channels_.find(said[1].text());
    if (here == channels_.end()) {
      return;
    }
    // What was freed before listening began was told to nobody.
    here->second.begun = true;
    for (alarm* bell : here->second.bells) {
      bell->ring();
    }
  }

  void run() {
    driver::session in{*loop_};
    while (!stop_) {
      if (channels_.empty()) {
        in.wait([&] { return stop_ || !channels_.empty(); },
                loop_->now() + linger);
        if (channels_.empty()) {
          break;
        }
      }
      if (refused_ || !node_.want(in)) {
        refused_ = false;
        drop(in);
        in.wait([&] { return stop_; }, loop_->now() + pause_after_failure);
        continue;
      }
      in.wait([&] { return something_to_do(); }, time_point::max());
      if (node_.now() == driver::node::condition::ready &&
          heard_of_ != node_.generation()) {
        subscribe_to_all(in);
      }
    }
    drop(in);
    running_ = false;
  }

  [[nodiscard]] bool something_to_do() const noexcept {
    using condition = driver::node::condition;
    return stop_ || refused_ || channels_.empty() ||
           node_.now() == condition::down ||
           (node_.now() == condition::ready && heard_of_ != node_.generation());
  }

  void subscribe_to_all(driver::session& in) {
    heard_of_ = node_.generation();
    for (auto& [name, here] : channels_) {
      here.begun = false;
      node_.send(in, {"SUBSCRIBE", name});
    }
  }

  void drop(driver::session& in) {
    node_.drop(in, fail(errc::unavailable, "nobody listens any more"));
  }

  std::unique_ptr<driver::loop> loop_;
  driver::node& node_;
  std::map<std::string, channel_state, std::less<>> channels_;
  std::uint64_t heard_of_{0};  // the connection on which we listen
  bool refused_{false};
  bool running_{false};
  bool stop_{false};
  pid_t home_{0};
  std::thread thread_;
};

redis_wakeups::redis_wakeups(std::shared_ptr<clock> time,
                             driver::node_options base) noexcept
    : time_{std::move(time)}, base_{std::move(base)} {}

redis_wakeups::~redis_wakeups() {
  if (listener_ == nullptr) {
    return;
  }
  if (listener_->is_elsewhere()) {
    listener_->abandon();
    static_cast<void>(new std::shared_ptr<listener>{std::move(listener_)});
    return;
  }
  listener_->stop();
}

std::shared_ptr<void> redis_wakeups::watch(const std::string& channel,
                                           alarm& bell) {
  std::shared_ptr<listener> here;
  {
    const std::lock_guard lock{mutex_};
    if (listener_ == nullptr) {
      auto made = driver::loop::open(time_);
      if (!made) {
        return nullptr;
      }
      listener_ = std::make_shared<listener>(std::move(*made), base_);
    }
    here = listener_;
  }
  if (!here->add(channel, bell)) {
    return nullptr;
  }
  auto* target = &bell;
  return {target,
          [here, channel](const alarm* a) { here->remove(channel, *a); }};
}

}  // namespace lastdoor
