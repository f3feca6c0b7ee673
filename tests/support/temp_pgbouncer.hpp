// temp_pgbouncer.hpp: a PgBouncer in transaction mode before a temp_postgres.
#pragma once

#include <memory>
#include <string>

#include "support/server_process.hpp"
#include "support/temp_postgres.hpp"

namespace lastdoor::support {

/// Why tests with PgBouncer cannot run here; empty when they can.
[[nodiscard]] std::string pgbouncer_missing();

#define LASTDOOR_NEEDS_PGBOUNCER()                               \
  LASTDOOR_NEEDS_POSTGRES();                                     \
  if (const auto why = ::lastdoor::support::pgbouncer_missing(); \
      why.empty()) {                                             \
  } else if (::lastdoor::support::servers_required()) {          \
    FAIL() << why;                                               \
  } else                                                         \
    GTEST_SKIP() << why

struct pgbouncer_options {
  std::string pool_mode{"transaction"};
  int pool_size{2};
};

class temp_pgbouncer {
 public:
  /// Starts it. Throws std::runtime_error with its log.
  explicit temp_pgbouncer(temp_postgres& server,
                          pgbouncer_options options = {});
  temp_pgbouncer(const temp_pgbouncer&) = delete;
  temp_pgbouncer& operator=(const temp_pgbouncer&) = delete;

  /// As superuser "postgres" of the server, over a Unix socket.
  [[nodiscard]] std::string url(const std::string& database) const;

 private:
  temp_folder folder_;
  int port_{0};
  std::unique_ptr<server_process> process_;
};

}  // namespace lastdoor::support
