// tcp_proxy.hpp: a loopback relay with which a test disturbs a connection.
//
//   tcp_proxy between{server.port()};
//   auto locks = open_redis_locks(between.redis_url()).value();
//   between.lose_next_reply();
//
// Thread safety: all members may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lastdoor::support {

class tcp_proxy {
 public:
  /// Listens on a free loopback port and relays to `port` on loopback.
  explicit tcp_proxy(int port);
  ~tcp_proxy();
  tcp_proxy(const tcp_proxy&) = delete;
  tcp_proxy& operator=(const tcp_proxy&) = delete;

  [[nodiscard]] int port() const noexcept { return port_; }
  [[nodiscard]] std::string redis_url() const {
    return "redis://127.0.0.1:" + std::to_string(port_);
  }

  /// Each chunk travels this much later, in each direction.
  void delay(std::chrono::microseconds each_way);
  /// Keeps back what clients (servers) send until told otherwise.
  void hold_requests(bool on);
  void hold_replies(bool on);
  /// The next request of any connection reaches the server; when the answer
  /// comes, it is thrown away and the connection is closed.
  void lose_next_reply();
  /// Closes all connections.
  void cut();
  /// While on, new connections are closed at once.
  void refuse(bool on);
  /// New connections go to another server, as after a failover.
  void lead_to(int port);

  [[nodiscard]] std::int64_t connections() const noexcept {
    return connections_.load();
  }
  [[nodiscard]] std::int64_t bytes_to_server() const noexcept {
    return to_server_.load();
  }
  [[nodiscard]] std::int64_t bytes_to_client() const noexcept {
    return to_client_.load();
  }
  [[nodiscard]] std::int64_t lost_replies() const noexcept {
    return lost_.load();
  }

 private:
  using moment = std::chrono::steady_clock::time_point;
  struct chunk {
    std::string bytes;
    moment due;
  };
  struct side {
    int fd{-1};
    std::deque<chunk> to_write;
    bool ended{false};
  };
  struct pair {
    side client;
    side server;
    bool asked{false};  // a request went through since lose_next_reply()
    bool gone{false};
  };

  void run();
  void accept_one();
  void read_from(pair& p, bool from_client);
  void write_to(pair& p, bool to_client);
  void close(pair& p);
  void wake() const;

  int listener_;
  int wake_;
  int port_{0};
  int target_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<pair>> pairs_;
  std::chrono::microseconds delay_{0};
  bool hold_requests_{false};
  bool hold_replies_{false};
  bool lose_{false};
  bool refuse_{false};
  bool stop_{false};
  std::atomic<std::int64_t> connections_{0};
  std::atomic<std::int64_t> to_server_{0};
  std::atomic<std::int64_t> to_client_{0};
  std::atomic<std::int64_t> lost_{0};
  std::thread thread_;
};

}  // namespace lastdoor::support
