// delay_relay.hpp: a loopback relay that hands on each chunk a fixed time
// after it came, in both directions. Makes round trips visible, as a LAN does.
//
// One thread per connection, which waits with poll and the finest sleep there
// is; meant for a handful of connections.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <deque>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace lastdoor::bench {

class delay_relay {
 public:
  delay_relay(int port, std::chrono::microseconds each_way)
      : listener_{::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)},
        target_{port},
        each_way_{each_way} {
    auto a = loopback(0);
    socklen_t size = sizeof a;
    if (listener_ < 0 ||
        ::bind(listener_, reinterpret_cast<sockaddr*>(&a), size) != 0 ||
        ::listen(listener_, 16) != 0 ||
        ::getsockname(listener_, reinterpret_cast<sockaddr*>(&a), &size) != 0) {
      throw std::runtime_error{"the relay cannot listen"};
    }
    port_ = ntohs(a.sin_port);
    accepting_ = std::thread{[this] { accept_all(); }};
  }
  ~delay_relay() {
    stop_ = true;
    accepting_.join();
    ::close(listener_);
  }
  delay_relay(const delay_relay&) = delete;
  delay_relay& operator=(const delay_relay&) = delete;

  [[nodiscard]] int port() const noexcept { return port_; }

 private:
  using moment = std::chrono::steady_clock::time_point;
  struct direction {
    int from;
    int to;
    std::deque<std::pair<moment, std::string>> chunks;
  };

  static sockaddr_in loopback(int port) {
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_port = htons(static_cast<std::uint16_t>(port));
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    return a;
  }

  void accept_all() {
    std::vector<std::thread> pairs;
    while (!stop_) {
      pollfd fd{listener_, POLLIN, 0};
      if (::poll(&fd, 1, 50) <= 0) {
        continue;
      }
      const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
      const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
      const auto a = loopback(target_);
      (void)::connect(server, reinterpret_cast<const sockaddr*>(&a), sizeof a);
      const int on = 1;
      for (const int s : {client, server}) {
        (void)::setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      }
      pairs.emplace_back([this, client, server] { relay(client, server); });
    }
    for (auto& p : pairs) {
      p.join();
    }
  }

  // False at the end of the stream.
  bool take(direction& d) const {
    std::array<char, 65536> buffer;
    const auto n = ::recv(d.from, buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (n > 0) {
      d.chunks.emplace_back(
          std::chrono::steady_clock::now() + each_way_,
          std::string(buffer.data(), static_cast<std::size_t>(n)));
    }
    return n != 0;
  }

  static void give(direction& d) {
    const auto now = std::chrono::steady_clock::now();
    while (!d.chunks.empty() && d.chunks.front().first <= now) {
      const auto& bytes = d.chunks.front().second;
      (void)::send(d.to, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      d.chunks.pop_front();
    }
  }

  void relay(int client, int server) const {
    direction out{client, server, {}};
    direction in{server, client, {}};
    bool open = true;
    while (open && !stop_) {
      const bool waiting = !out.chunks.empty() || !in.chunks.empty();
      std::array<pollfd, 2> fds{pollfd{client, POLLIN, 0},
                                pollfd{server, POLLIN, 0}};
      timespec nap{0, waiting ? 20'000 : 50'000'000};
      (void)::ppoll(fds.data(), fds.size(), &nap, nullptr);
      open = (fds[0].revents == 0 || take(out)) &&
             (fds[1].revents == 0 || take(in));
      give(out);
      give(in);
    }
    ::close(client);
    ::close(server);
  }

  int listener_;
  int target_;
  int port_{0};
  std::chrono::microseconds each_way_;
  std::atomic<bool> stop_{false};
  std::thread accepting_;
};

}  // namespace lastdoor::bench
