// pg_relay.hpp: a loopback relay before a Postgres that loses one message.
//
//   pg_relay between{server.port()};
//   auto store = open_postgres_store(db.tcp_url(between.port())).value();
//   between.on_next("COMMIT", pg_relay::loss::answer);
//
// It looks for the text in what clients send, so it can tell a COMMIT from
// the statements before it.
//
// Thread safety: all members may be called from any thread.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace lastdoor::support {

class pg_relay {
 public:
  enum class loss {
    none,
    answer,   // the server gets it and answers; nobody hears the answer
    request,  // nobody gets it, and the server is not told that we are gone
  };

  /// Listens on a free loopback port and relays to `port` on loopback.
  explicit pg_relay(int port);
  ~pg_relay();
  pg_relay(const pg_relay&) = delete;
  pg_relay& operator=(const pg_relay&) = delete;

  [[nodiscard]] int port() const noexcept { return port_; }

  /// What happens to the next message that holds `text`, once.
  void on_next(std::string text, loss what);
  /// How often that has happened.
  [[nodiscard]] int lost() const noexcept { return lost_.load(); }
  /// While on, new connections are closed at once.
  void refuse(bool on) noexcept { refuse_ = on; }

 private:
  void accept_all();
  void relay(int client, int server);
  // The loss that this message meets.
  [[nodiscard]] loss fate_of(const std::string& message);

  int listener_;
  int target_;
  int port_{0};
  std::atomic<bool> stop_{false};
  std::atomic<bool> refuse_{false};
  std::atomic<int> lost_{0};
  std::mutex mutex_;
  std::string text_;
  loss loss_{loss::none};
  std::vector<std::thread> pairs_;  // of the accepting thread alone
  std::thread accepting_;
};

}  // namespace lastdoor::support
