#include "redis_stream.hpp"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <system_error>

namespace lastdoor::redis_driver {

namespace {

error system_failure(int code, std::string_view doing) {
  return fail(
      errc::unavailable,
      fmt::format("{}: {}", doing, std::system_category().message(code)));
}

// EWOULDBLOCK is the same number on Linux.
bool not_now(int code) noexcept { return code == EAGAIN; }

void switch_on(int fd, int level, int option) noexcept {
  const int on = 1;
  // A socket that cannot have it works without.
  static_cast<void>(::setsockopt(fd, level, option, &on, sizeof on));
}

}  // namespace

address unix_address(const std::string& path) noexcept {
  address to;
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof name.sun_path - 1);
  std::memcpy(&to.data, &name, sizeof name);
  to.size = sizeof name;
  return to;
}

result<std::vector<address>> look_up(const endpoint& where, bool numeric_only) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  if (numeric_only) {
    hints.ai_flags |= AI_NUMERICHOST;
  }
  addrinfo* found = nullptr;
  const int rc = ::getaddrinfo(
      where.host.c_str(), std::to_string(where.port).c_str(), &hints, &found);
  if (rc != 0) {
    return fail(errc::unavailable,
                fmt::format("looking up the host: {}", ::gai_strerror(rc)));
  }
  std::vector<address> all;
  for (const auto* at = found; at != nullptr; at = at->ai_next) {
    address to;
    std::memcpy(&to.data, at->ai_addr, at->ai_addrlen);
    to.size = at->ai_addrlen;
    all.push_back(to);
  }
  ::freeaddrinfo(found);
  return all;
}

result<void> stream::start(const address& to) {
  close();
  own_parser_.reset(redisReaderCreate());
  const int family = to.data.ss_family;
  fd_ = ::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (own_parser_ == nullptr || fd_ < 0) {
    const auto why = system_failure(errno, "making a socket");
    close();
    return why;
  }
  if (family != AF_UNIX) {
    // A command is one write and waits for its answer: nothing to gather.
    switch_on(fd_, IPPROTO_TCP, TCP_NODELAY);
    switch_on(fd_, SOL_SOCKET, SO_KEEPALIVE);
  }
  const auto* name = reinterpret_cast<const sockaddr*>(&to.data);
  if (::connect(fd_, name, to.size) != 0 && errno != EINPROGRESS) {
    const auto why = system_failure(errno, "connecting");
    close();
    return why;
  }
  return {};
}

result<void> stream::finish(const endpoint& where, tls_context* tls) {
  int code = 0;
  socklen_t size = sizeof code;
  if (::getsockopt(fd_, SOL_SOCKET, SO_ERROR, &code, &size) != 0) {
    code = errno;
  }
  if (code != 0) {
    return system_failure(code, "connecting");
  }
  if (tls != nullptr) {
    auto layer = tls_layer::start(fd_, where.host, *tls);
    if (!layer) {
      return layer.error();
    }
    tls_ = std::move(*layer);
  }
  return {};
}

void stream::close() noexcept {
  tls_.reset();
  own_parser_.reset();
  if (fd_ >= 0) {
    ::close(fd_);
  }
  fd_ = -1;
  congested_ = false;
}

result<std::size_t> stream::write(std::span<const iovec> parts) {
  if (tls_ != nullptr) {
    std::string bytes;
    for (const auto& part : parts) {
      bytes.append(static_cast<const char*>(part.iov_base), part.iov_len);
    }
    auto went = tls_->write(bytes);
    if (!went) {
      return went.error();
    }
    congested_ = *went == progress::would_block;
    return bytes.size();
  }
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());  // NOLINT: C's interface
  message.msg_iovlen = parts.size();
  for (;;) {
    const auto n = ::sendmsg(fd_, &message, MSG_NOSIGNAL);
    if (n >= 0) {
      return static_cast<std::size_t>(n);
    }
    if (not_now(errno)) {
      return std::size_t{0};
    }
    if (errno != EINTR) {
      return system_failure(errno, "sending");
    }
  }
}

result<void> stream::read() {
  if (tls_ != nullptr) {
    return tls_->read();
  }
  std::array<char, 16384> buffer;  // NOLINT: filled by recv
  for (;;) {
    const auto n = ::recv(fd_, buffer.data(), buffer.size(), 0);
    if (n > 0) {
      const auto size = static_cast<std::size_t>(n);
      redisReaderFeed(own_parser_.get(), buffer.data(), size);
      if (size < buffer.size()) {
        return {};
      }
    } else if (n == 0) {
      return fail(errc::unavailable, "the server closed the connection");
    } else if (not_now(errno)) {
      return {};
    } else if (errno != EINTR) {
      return system_failure(errno, "receiving");
    }
  }
}

result<redisReply*> stream::next_reply() {
  auto* parser = tls_ != nullptr ? tls_->parser() : own_parser_.get();
  void* answer = nullptr;
  if (redisReaderGetReply(parser, &answer) != REDIS_OK) {
    return fail(errc::misconfigured,
                fmt::format("the server does not speak Redis' protocol: {}",
                            redisReaderGetError(parser)));
  }
  return static_cast<redisReply*>(answer);
}

}  // namespace lastdoor::redis_driver
