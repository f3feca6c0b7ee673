// redis_stream.hpp: a non-blocking byte stream to one server, with or without
// TLS, and the parser that is fed from it.
//
// hiredis parses the protocol; the socket is ours. hiredis' own socket calls
// raise SIGPIPE in the user's process, look names up in a blocking way, and
// do not say how much of a command has left, which decides between "not sent"
// and "in doubt".
//
// Thread safety: one thread at a time.
#pragma once

#include <hiredis/hiredis.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <lastdoor/errors.hpp>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "redis_url.hpp"

namespace lastdoor::redis_driver {

// Files in PEM form. Empty: the system's authorities; no client certificate.
struct tls_files {
  std::string authorities;
  std::string certificate;
  std::string key;
};

// What all TLS connections of a service share; nothing of it shows here.
class tls_context;

// `misconfigured` when a file does not fit or this build has no TLS.
[[nodiscard]] result<std::shared_ptr<tls_context>> make_tls_context(
    const tls_files& files);

// Whether this build has TLS.
[[nodiscard]] bool tls_available() noexcept;

struct address {
  sockaddr_storage data{};
  socklen_t size{0};
};

[[nodiscard]] address unix_address(const std::string& path) noexcept;

// What a host name stands for. With `numeric_only` nothing is asked of any
// server and the call returns at once; without, it may take its time.
[[nodiscard]] result<std::vector<address>> look_up(const endpoint& where,
                                                   bool numeric_only);

// How a read or write went when no error came up.
enum class progress : std::uint8_t { done, would_block };

// TLS on top of a connected socket (redis_tls.cpp).
class tls_layer {
 public:
  // The certificate must be good for `host`.
  [[nodiscard]] static result<std::unique_ptr<tls_layer>> start(
      int fd, const std::string& host, tls_context& context);
  virtual ~tls_layer() = default;
  // Takes over `bytes` and sends what can be sent now.
  virtual result<progress> write(std::string_view bytes) = 0;
  // Feeds the parser until there is nothing more to read now.
  virtual result<void> read() = 0;
  // True when the negotiation waits for the other side, so that there is no
  // sense in waiting for room to write.
  [[nodiscard]] virtual bool waits_for_peer() const noexcept = 0;
  [[nodiscard]] virtual redisReader* parser() noexcept = 0;
};

class stream {
 public:
  stream() = default;
  stream(stream&&) = delete;
  stream& operator=(stream&&) = delete;
  ~stream() { close(); }

  // Starts to connect. `open()` is true afterwards unless it failed.
  [[nodiscard]] result<void> start(const address& to);
  // To be called when the socket is writable: the outcome of `start`; with
  // TLS the negotiation begins, and goes on within read() and write().
  [[nodiscard]] result<void> finish(const endpoint& where, tls_context* tls);
  void close() noexcept;

  [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }
  [[nodiscard]] int fd() const noexcept { return fd_; }

  // The number of bytes that are on their way; fewer than given when the
  // socket is full.
  [[nodiscard]] result<std::size_t> write(std::span<const iovec> parts);
  // True while bytes that write() has taken wait for the socket (TLS only).
  [[nodiscard]] bool congested() const noexcept { return congested_; }
  // False while there is something else to wait for than room to write.
  [[nodiscard]] bool waits_for_room() const noexcept {
    return tls_ == nullptr || !tls_->waits_for_peer();
  }

  // Feeds the parser with all there is. `unavailable` at the end of it.
  [[nodiscard]] result<void> read();
  // The next answer; one without value when none is complete.
  // `misconfigured` when the server does not speak the protocol.
  [[nodiscard]] result<redisReply*> next_reply();

 private:
  struct reader_deleter {
    void operator()(redisReader* r) const noexcept { redisReaderFree(r); }
  };

  int fd_{-1};
  std::unique_ptr<redisReader, reader_deleter> own_parser_;
  std::unique_ptr<tls_layer> tls_;
  bool congested_{false};
};

}  // namespace lastdoor::redis_driver
