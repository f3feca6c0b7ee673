// redis_bench.hpp: a private Redis server, and a connection of plain hiredis
// as an expert would use it by hand.
#pragma once

#include <arpa/inet.h>
#include <fcntl.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>

#include "bench.hpp"

namespace lastdoor::bench {

/// Grant and release, in seconds.
struct spent {
  double grant{0};
  double release{0};
  [[nodiscard]] double both() const { return grant + release; }
  spent& operator+=(const spent& more) {
    grant += more.grant;
    release += more.release;
    return *this;
  }
};
inline double both_of(const spent& s) { return s.both(); }
inline double grant_of(const spent& s) { return s.grant; }
inline double release_of(const spent& s) { return s.release; }

/// The time of two calls, one after the other.
template <class Grant, class Release>
spent timed(const Grant& grant, const Release& release) {
  const double start = seconds();
  grant();
  const double middle = seconds();
  release();
  return {middle - start, seconds() - middle};
}

using words = std::initializer_list<std::string_view>;

struct reply_deleter {
  void operator()(redisReply* r) const { freeReplyObject(r); }
};
using reply = std::unique_ptr<redisReply, reply_deleter>;

/// One connection to a server on loopback.
class hand {
 public:
  explicit hand(int port) : c_{redisConnect("127.0.0.1", port)} {
    if (c_ == nullptr || c_->err != 0) {
      stop("cannot connect");
    }
  }
  hand(const hand&) = delete;
  hand& operator=(const hand&) = delete;
  ~hand() { redisFree(c_); }

  /// Asks and waits.
  reply say(words command) {
    append(command);
    void* r = nullptr;
    if (redisGetReply(c_, &r) != REDIS_OK) {
      stop(c_->errstr);
    }
    return checked(r);
  }

  // ---- the same without waiting, after `do_not_block`
  void do_not_block() {
    ::fcntl(c_->fd, F_SETFL, ::fcntl(c_->fd, F_GETFL) | O_NONBLOCK);
    c_->flags &= ~REDIS_BLOCK;
  }
  [[nodiscard]] int fd() const { return c_->fd; }
  void send(words command) {
    append(command);
    flush();
  }
  /// Commands that were appended travel in one write.
  void append(words command) {
    const char* argv[16];
    std::size_t sizes[16];
    int n = 0;
    for (const auto w : command) {
      argv[n] = w.data();
      sizes[n++] = w.size();
    }
    redisAppendCommandArgv(c_, n, argv, sizes);
  }
  void flush() {
    for (int done = 0; done == 0;) {
      if (redisBufferWrite(c_, &done) != REDIS_OK) {
        stop(c_->errstr);
      }
    }
  }
  void read() {
    if (redisBufferRead(c_) != REDIS_OK) {
      stop(c_->errstr);
    }
  }
  /// Null when none is complete.
  reply next() {
    void* r = nullptr;
    if (redisGetReplyFromReader(c_, &r) != REDIS_OK) {
      stop(c_->errstr);
    }
    return r == nullptr ? reply{} : checked(r);
  }

 private:
  static reply checked(void* r) {
    reply answer{static_cast<redisReply*>(r)};
    if (answer->type == REDIS_REPLY_ERROR) {
      stop(answer->str);
    }
    return answer;
  }
  redisContext* c_;
};

/// A server of our own on a free loopback port, gone with the object.
class private_server {
 public:
  private_server() : port_{free_port()} {
    pid_ = ::fork();
    if (pid_ == 0) {
      ::prctl(PR_SET_PDEATHSIG, SIGKILL);
      const auto port = std::to_string(port_);
      ::execlp("redis-server", "redis-server", "--port", port.c_str(), "--bind",
               "127.0.0.1", "--save", "", "--appendonly", "no", "--loglevel",
               "warning", "--logfile", "/dev/null", nullptr);
      ::_exit(127);
    }
    if (pid_ < 0) {
      stop("cannot fork");
    }
    for (int i = 0; i < 500; ++i) {
      auto* c = redisConnect("127.0.0.1", port_);
      const bool up = c != nullptr && c->err == 0;
      redisFree(c);
      if (up) {
        return;
      }
      ::usleep(10'000);
    }
    stop("redis-server does not start");
  }
  private_server(const private_server&) = delete;
  private_server& operator=(const private_server&) = delete;
  ~private_server() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  [[nodiscard]] int port() const { return port_; }
  void pause() const { ::kill(pid_, SIGSTOP); }
  void resume() const { ::kill(pid_, SIGCONT); }

 private:
  static int free_port() {
    const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in a{};
    a.sin_family = AF_INET;
    a.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof a;
    ::bind(fd, reinterpret_cast<sockaddr*>(&a), size);
    ::getsockname(fd, reinterpret_cast<sockaddr*>(&a), &size);
    ::close(fd);
    return ntohs(a.sin_port);
  }
  int port_;
  pid_t pid_{-1};
};

}  // namespace lastdoor::bench
