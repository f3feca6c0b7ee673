// TLS through hiredis' own library for it, which came with hiredis 1.0.
#include <fmt/format.h>

#include "redis_stream.hpp"

#ifdef LASTDOOR_REDIS_TLS

#include <hiredis/hiredis_ssl.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

#include <csignal>
#include <ctime>

namespace lastdoor::redis_driver {

namespace {

std::string openssl_text() {
  const auto code = ERR_get_error();
  ERR_clear_error();
  const char* text = code != 0 ? ERR_reason_error_string(code) : nullptr;
  return text != nullptr ? text : "no reason given";
}

// OpenSSL writes to sockets in the way that raises SIGPIPE when the other
// side is gone. That is held back here, and taken back if it came.
class without_sigpipe {
 public:
  without_sigpipe() noexcept {
    sigset_t pending{};
    ::sigpending(&pending);
    was_pending_ = ::sigismember(&pending, SIGPIPE) == 1;
    ::sigemptyset(&pipe_);
    ::sigaddset(&pipe_, SIGPIPE);
    ::pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  without_sigpipe(const without_sigpipe&) = delete;
  without_sigpipe& operator=(const without_sigpipe&) = delete;
  ~without_sigpipe() {
    if (!was_pending_) {
      const timespec at_once{};
      ::sigtimedwait(&pipe_, nullptr, &at_once);
    }
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t pipe_{};
  sigset_t before_{};
  bool was_pending_{false};
};

struct context_deleter {
  void operator()(redisContext* c) const noexcept {
    // The socket belongs to the stream.
    redisFreeKeepFd(c);
  }
};

class hiredis_tls final : public tls_layer {
 public:
  hiredis_tls(std::unique_ptr<redisContext, context_deleter> c, SSL* ssl)
      : c_{std::move(c)}, ssl_{ssl} {}

  result<progress> write(std::string_view bytes) override {
    const without_sigpipe quiet;
    if (!bytes.empty() &&
        redisAppendFormattedCommand(c_.get(), bytes.data(), bytes.size()) !=
            REDIS_OK) {
      return broken("sending");
    }
    int done = 0;
    if (redisBufferWrite(c_.get(), &done) != REDIS_OK) {
      return broken("sending");
    }
    return done != 0 ? progress::done : progress::would_block;
  }

  result<void> read() override {
    const without_sigpipe quiet;
    for (;;) {
      const auto before = c_->reader->len;
      if (redisBufferRead(c_.get()) != REDIS_OK) {
        return broken("receiving");
      }
      if (c_->reader->len == before) {
        return {};
      }
    }
  }

  bool waits_for_peer() const noexcept override {
    return SSL_want_read(ssl_) != 0;
  }

  redisReader* parser() noexcept override { return c_->reader; }

 private:
  error broken(std::string_view doing) {
    const auto detail = openssl_text();
    const bool certificate = detail.find("certificate") != std::string::npos;
    return fail(certificate ? errc::misconfigured : errc::unavailable,
                fmt::format("{}: {} ({})", doing, c_->errstr, detail));
  }

  std::unique_ptr<redisContext, context_deleter> c_;
  SSL* ssl_;  // belongs to c_
};

}  // namespace

class tls_context {
 public:
  tls_context() : ctx{SSL_CTX_new(TLS_client_method()), &SSL_CTX_free} {}
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> ctx;
};

result<std::shared_ptr<tls_context>> make_tls_context(const tls_files& files) {
  auto made = std::make_shared<tls_context>();
  auto* ctx = made->ctx.get();
  const auto bad = [](std::string_view what) {
    return fail(errc::misconfigured,
                fmt::format("TLS: {}: {}", what, openssl_text()));
  };
  if (ctx == nullptr) {
    return bad("setting up");
  }
  SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, nullptr);
  SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
  const bool trusted = files.authorities.empty()
                           ? SSL_CTX_set_default_verify_paths(ctx) == 1
                           : SSL_CTX_load_verify_locations(
                                 ctx, files.authorities.c_str(), nullptr) == 1;
  if (!trusted) {
    return bad("reading the authorities");
  }
  if (!files.certificate.empty() &&
      SSL_CTX_use_certificate_chain_file(ctx, files.certificate.c_str()) != 1) {
    return bad("reading the client's certificate");
  }
  if (!files.key.empty() &&
      SSL_CTX_use_PrivateKey_file(ctx, files.key.c_str(), SSL_FILETYPE_PEM) !=
          1) {
    return bad("reading the client's key");
  }
  return made;
}

result<std::unique_ptr<tls_layer>> tls_layer::start(int fd,
                                                    const std::string& host,
                                                    tls_context& context) {
  std::unique_ptr<redisContext, context_deleter> c{redisConnectFd(fd)};
  SSL* ssl = SSL_new(context.ctx.get());
  if (c == nullptr || ssl == nullptr) {
    SSL_free(ssl);
    return fail(errc::unavailable, "TLS: out of memory");
  }
  c->flags &= ~REDIS_BLOCK;
  // hiredis keeps unsent bytes in a buffer that moves when it grows.
  SSL_set_mode(
      ssl, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  // hiredis itself compares no names, so any valid certificate would do.
  auto* wanted = SSL_get0_param(ssl);
  if (X509_VERIFY_PARAM_set1_ip_asc(wanted, host.c_str()) != 1) {
    SSL_set1_host(ssl, host.c_str());
    // SSL_set_tlsext_host_name, whose macro casts in the old style.
    SSL_ctrl(ssl, SSL_CTRL_SET_TLSEXT_HOSTNAME, TLSEXT_NAMETYPE_host_name,
             const_cast<char*>(host.c_str()));
  }
  const without_sigpipe quiet;
  if (redisInitiateSSL(c.get(), ssl) != REDIS_OK) {
    SSL_free(ssl);  // not taken over
    return fail(errc::unavailable,
                fmt::format("TLS: {} ({})", c->errstr, openssl_text()));
  }
  return std::unique_ptr<tls_layer>{new hiredis_tls{std::move(c), ssl}};
}

bool tls_available() noexcept { return true; }

}  // namespace lastdoor::redis_driver

#else

namespace lastdoor::redis_driver {

class tls_context {};

namespace {
error absent() {
  return fail(errc::misconfigured,
              fmt::format("rediss:// needs TLS, which this build does not "
                          "have: it was made with hiredis {}.{} without its "
                          "TLS library (hiredis_ssl, from 1.0 on)",
                          HIREDIS_MAJOR, HIREDIS_MINOR));
}
}  // namespace

result<std::shared_ptr<tls_context>> make_tls_context(
    const tls_files& /*files*/) {
  return absent();
}

result<std::unique_ptr<tls_layer>> tls_layer::start(int /*fd*/,
                                                    const std::string& /*host*/,
                                                    tls_context& /*context*/) {
  return absent();
}

bool tls_available() noexcept { return false; }

}  // namespace lastdoor::redis_driver

#endif
