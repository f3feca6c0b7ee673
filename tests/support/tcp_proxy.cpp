#include "support/tcp_proxy.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <system_error>

namespace lastdoor::support {

namespace {

[[noreturn]] void throw_errno(const std::string& doing) {
  throw std::system_error{errno, std::generic_category(), doing};
}

sockaddr_in loopback(int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  return address;
}

void no_delay(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace

tcp_proxy::tcp_proxy(int port)
    : listener_{::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC,
                         0)},
      wake_{::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)},
      target_{port} {
  auto address = loopback(0);
  socklen_t size = sizeof address;
  auto* raw = reinterpret_cast<sockaddr*>(&address);
  if (listener_ < 0 || wake_ < 0 || ::bind(listener_, raw, size) != 0 ||
      ::listen(listener_, 64) != 0 ||
      ::getsockname(listener_, raw, &size) != 0) {
    throw_errno("making a relay");
  }
  port_ = ntohs(address.sin_port);
  thread_ = std::thread{[this] { run(); }};
}

tcp_proxy::~tcp_proxy() {
  {
    const std::lock_guard lock{mutex_};
    stop_ = true;
  }
  wake();
  thread_.join();
  for (const auto& p : pairs_) {
    close(*p);
  }
  ::close(listener_);
  ::close(wake_);
}

void tcp_proxy::wake() const {
  const std::uint64_t one = 1;
  static_cast<void>(::write(wake_, &one, sizeof one) > 0);
}

void tcp_proxy::delay(std::chrono::microseconds each_way) {
  const std::lock_guard lock{mutex_};
  delay_ = each_way;
}

void tcp_proxy::hold_requests(bool on) {
  const std::lock_guard lock{mutex_};
  hold_requests_ = on;
  wake();
}

void tcp_proxy::hold_replies(bool on) {
  const std::lock_guard lock{mutex_};
  hold_replies_ = on;
  wake();
}

void tcp_proxy::lose_next_reply() {
  const std::lock_guard lock{mutex_};
  lose_ = true;
  for (const auto& p : pairs_) {
    p->asked = false;
  }
}

void tcp_proxy::cut() {
  const std::lock_guard lock{mutex_};
  for (const auto& p : pairs_) {
    close(*p);
  }
  wake();
}

void tcp_proxy::refuse(bool on) {
  const std::lock_guard lock{mutex_};
  refuse_ = on;
}

void tcp_proxy::lead_to(int port) {
  const std::lock_guard lock{mutex_};
  target_ = port;
}

void tcp_proxy::close(pair& p) {
  for (auto* s : {&p.client, &p.server}) {
    if (s->fd >= 0) {
      // At once, even while our thread sleeps in a poll of it.
      ::shutdown(s->fd, SHUT_RDWR);
      ::close(s->fd);
    }
    s->fd = -1;
  }
  p.gone = true;
}

void tcp_proxy::accept_one() {
  const int client =
      ::accept4(listener_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
  if (client < 0) {
    return;
  }
  ++connections_;
  if (refuse_) {
    ::close(client);
    return;
  }
  // On loopback it is there or it is not: no need to wait for it.
  const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const auto address = loopback(target_);
  if (::connect(server, reinterpret_cast<const sockaddr*>(&address),
                sizeof address) != 0) {
    ::close(client);
    ::close(server);
    return;
  }
  no_delay(client);
  no_delay(server);
  auto p = std::make_unique<pair>();
  p->client.fd = client;
  p->server.fd = server;
  pairs_.push_back(std::move(p));
}

void tcp_proxy::read_from(pair& p, bool from_client) {
  auto& from = from_client ? p.client : p.server;
  auto& to = from_client ? p.server : p.client;
  std::array<char, 65536> buffer;  // NOLINT: filled by recv
  const auto n = ::recv(from.fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
    return;
  }
  if (n <= 0) {
    from.ended = true;
    if (to.to_write.empty()) {
      close(p);
    }
    return;
  }
  if (from_client) {
    p.asked = true;
  } else if (lose_ && p.asked) {
    lose_ = false;
    ++lost_;
    close(p);
    return;
  }
  to.to_write.push_back(
      {std::string{buffer.data(), static_cast<std::size_t>(n)},
       std::chrono::steady_clock::now() + delay_});
}

void tcp_proxy::write_to(pair& p, bool to_client) {
  auto& to = to_client ? p.client : p.server;
  const auto& from = to_client ? p.server : p.client;
  const auto now = std::chrono::steady_clock::now();
  while (!p.gone && !to.to_write.empty() && to.to_write.front().due <= now) {
    auto& bytes = to.to_write.front().bytes;
    const auto n =
        ::send(to.fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
      if (errno != EAGAIN && errno != EINTR) {
        close(p);
      }
      return;
    }
    (to_client ? to_client_ : to_server_) += n;
    bytes.erase(0, static_cast<std::size_t>(n));
    if (bytes.empty()) {
      to.to_write.pop_front();
    }
  }
  if (!p.gone && from.ended && to.to_write.empty()) {
    close(p);
  }
}

void tcp_proxy::run() {
  std::unique_lock lock{mutex_};
  while (!stop_) {
    std::vector<pollfd> fds{{wake_, POLLIN, 0}, {listener_, POLLIN, 0}};
    int patience_us = 1'000'000;
    const auto now = std::chrono::steady_clock::now();
    for (const auto& p : pairs_) {
      for (auto* s : {&p->client, &p->server}) {
        fds.push_back({s->ended ? -1 : s->fd, POLLIN, 0});
        const bool held = s == &p->client ? hold_replies_ : hold_requests_;
        if (!held && !s->to_write.empty()) {
          const auto left =
              std::chrono::duration_cast<std::chrono::microseconds>(
                  s->to_write.front().due - now);
          patience_us =
              std::clamp(static_cast<int>(left.count()), 0, patience_us);
        }
      }
    }
    const timespec timeout{patience_us / 1'000'000,
                           patience_us % 1'000'000 * 1000L};
    lock.unlock();
    ::ppoll(fds.data(), fds.size(), &timeout, nullptr);
    lock.lock();
    std::uint64_t count = 0;
    static_cast<void>(::read(wake_, &count, sizeof count) > 0);
    // A pair may be gone by now; new ones are at the end.
    for (std::size_t i = 0; i < pairs_.size(); ++i) {
      auto& p = *pairs_[i];
      const auto at = 2 + 2 * i;
      if (!p.gone && at < fds.size() && fds[at].revents != 0) {
        read_from(p, true);
      }
      if (!p.gone && at + 1 < fds.size() && fds[at + 1].revents != 0) {
        read_from(p, false);
      }
      if (!p.gone && !hold_requests_) {
        write_to(p, false);
      }
      if (!p.gone && !hold_replies_) {
        write_to(p, true);
      }
    }
    pairs_.erase(std::remove_if(pairs_.begin(), pairs_.end(),
                                [](const auto& p) { return p->gone; }),
                 pairs_.end());
    if (fds[1].revents != 0) {
      accept_one();
    }
  }
}

}  // namespace lastdoor::support
