#include "support/pg_relay.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <stdexcept>
#include <system_error>
#include <utility>

namespace lastdoor::support {

namespace {

// How long a thread may take to notice that the relay is going away.
constexpr int look_up_every_ms = 50;

sockaddr_in loopback(int port) {
  sockaddr_in a{};
  a.sin_family = AF_INET;
  a.sin_port = htons(static_cast<std::uint16_t>(port));
  a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return a;
}

int checked(int rc, const char* what) {
  if (rc < 0) {
    throw std::system_error{errno, std::generic_category(), what};
  }
  return rc;
}

int connect_to(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto a = loopback(port);
  if (fd >= 0 &&
      ::connect(fd, reinterpret_cast<const sockaddr*>(&a), sizeof a) == 0) {
    return fd;
  }
  ::close(fd);
  return -1;
}

void be_prompt(int fd) {
  const int on = 1;
  (void)::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

// Waits until one of the two can be read. False at the end of `stop`.
bool wait_for_input(std::array<pollfd, 2>& fds, const std::atomic<bool>& stop) {
  for (;;) {
    if (stop) {
      return false;
    }
    if (::poll(fds.data(), fds.size(), look_up_every_ms) > 0) {
      return true;
    }
  }
}

// What has come; empty at the end of the stream.
std::string read_some(int fd) {
  std::array<char, 65536> buffer;
  const auto n = ::recv(fd, buffer.data(), buffer.size(), 0);
  return n > 0 ? std::string(buffer.data(), static_cast<std::size_t>(n))
               : std::string{};
}

bool write_all(int fd, const std::string& bytes) {
  for (std::size_t done = 0; done < bytes.size();) {
    const auto n =
        ::send(fd, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (n <= 0) {
      return false;
    }
    done += static_cast<std::size_t>(n);
  }
  return true;
}

}  // namespace

pg_relay::pg_relay(int port)
    : listener_{checked(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
                        "socket")},
      target_{port} {
  auto a = loopback(0);
  socklen_t size = sizeof a;
  checked(::bind(listener_, reinterpret_cast<sockaddr*>(&a), size), "bind");
  checked(::listen(listener_, 16), "listen");
  checked(::getsockname(listener_, reinterpret_cast<sockaddr*>(&a), &size),
          "getsockname");
  port_ = ntohs(a.sin_port);
  accepting_ = std::thread{[this] { accept_all(); }};
}

pg_relay::~pg_relay() {
  stop_ = true;
  accepting_.join();
  ::close(listener_);
}

void pg_relay::on_next(std::string text, loss what) {
  const std::lock_guard lock{mutex_};
  text_ = std::move(text);
  loss_ = what;
}

pg_relay::loss pg_relay::fate_of(const std::string& message) {
  const std::lock_guard lock{mutex_};
  if (loss_ == loss::none || message.find(text_) == std::string::npos) {
    return loss::none;
  }
  return std::exchange(loss_, loss::none);
}

void pg_relay::accept_all() {
  while (!stop_) {
    pollfd fd{listener_, POLLIN, 0};
    if (::poll(&fd, 1, look_up_every_ms) <= 0) {
      continue;
    }
    const int client = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (client < 0) {
      continue;
    }
    const int server = refuse_ ? -1 : connect_to(target_);
    if (server < 0) {
      ::close(client);
      continue;
    }
    be_prompt(client);
    be_prompt(server);
    pairs_.emplace_back([this, client, server] { relay(client, server); });
  }
  for (auto& pair : pairs_) {
    pair.join();
  }
}

void pg_relay::relay(int client, int server) {
  std::array<pollfd, 2> fds{pollfd{client, POLLIN, 0},
                            pollfd{server, POLLIN, 0}};
  bool swallow = false;
  while (wait_for_input(fds, stop_)) {
    if (fds[0].revents != 0) {
      const auto message = read_some(client);
      const auto fate = message.empty() ? loss::none : fate_of(message);
      if (fate == loss::request) {
        ++lost_;
        ::close(client);
        // The server's end stays open until the relay goes away.
        fds[0].fd = -1;
        while (wait_for_input(fds, stop_) && !read_some(server).empty()) {
        }
        ::close(server);
        return;
      }
      swallow = fate == loss::answer;
      if (message.empty() || !write_all(server, message)) {
        break;
      }
    }
    if (fds[1].revents != 0) {
      const auto answer = read_some(server);
      if (swallow && !answer.empty()) {
        ++lost_;
        break;
      }
      if (answer.empty() || !write_all(client, answer)) {
        break;
      }
    }
  }
  ::close(client);
  ::close(server);
}

}  // namespace lastdoor::support
