// redis_url.hpp: where a Redis server is and how to log in.
//
//   redis://[user[:password]@]host[:port][/db]      rediss:// with TLS
//   redis+unix:///path/to/socket[?db=N]             [user:password@] before /
//
// "redis://:secret@host" logs in by password alone. User, password and path
// are percent-decoded; an IPv6 address stands in brackets.
//
// No message made here, and no other text, holds the password or any part of
// a URL that could not be parsed.
#pragma once

#include <cstdint>
#include <lastdoor/errors.hpp>
#include <string>
#include <string_view>

namespace lastdoor::redis_driver {

struct endpoint {
  std::string host;  // empty for a Unix socket
  std::uint16_t port{6379};
  std::string path;  // of the Unix socket
  std::string user;
  std::string password;
  bool log_in{false};
  int db{0};
  bool tls{false};

  // For messages: "redis://user:***@host:6379/2".
  [[nodiscard]] std::string shown() const;
};

// `invalid_argument`, with what is wrong but without what was written.
[[nodiscard]] result<endpoint> parse_url(std::string_view url);

}  // namespace lastdoor::redis_driver
