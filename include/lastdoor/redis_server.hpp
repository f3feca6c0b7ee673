// redis_server.hpp: how the Redis lock service and the Redis store are told
// where their server is.
//
// A URL is one of
//
//   redis://[user[:password]@]host[:port][/db]       rediss:// with TLS
//   redis+unix://[user:password@]/path/to/socket[?db=N]
//
// with percent-encoding in user, password and path. Messages show it without
// its password. TLS needs a hiredis that has it (1.0 or newer); without, a
// rediss:// URL is `misconfigured`.
//
// A user who is not allowed everything needs for the lock services (Redis 6):
//
//   ~lastdoor:{<name space>}:*  &lastdoor:{<name space>}:*
//   +info +select +eval +evalsha +script|load +get +mget +set +incr +incrby
//   +del +pttl +pexpire +time +publish +subscribe +unsubscribe
//
// and `+wait` for `wait_replicas`, `+config|get` to set up durable servers.
// Without the channels (&, Redis 6.2) waiters poll.
//
// Thread safety: values.
#pragma once

#include <string>

namespace lastdoor {

/// Files in PEM form, for rediss:// URLs.
struct redis_tls_options {
  std::string authorities{};  // empty: those of the system
  std::string certificate{};  // of this client; empty: none
  std::string key{};          // of that certificate
};

}  // namespace lastdoor
