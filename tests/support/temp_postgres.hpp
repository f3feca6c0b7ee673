// temp_postgres.hpp: a private Postgres for one test program.
//
//   TEST(Leases, AreGranted) {
//     LASTDOOR_NEEDS_POSTGRES();
//     temp_database db;                       // in the program's one cluster
//     auto locks = open_postgres_locks(db.url()).value();
//     EXPECT_EQ(db.value("SELECT count(*) FROM lastdoor.leases"), "0");
//   }
//
// The cluster listens on a Unix socket in a temporary folder and, for relays,
// on a free loopback port. Its thousand files are in memory where there is a
// place for that, unless a test asks for writes that are synced to disk;
// killing processes loses nothing either way.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "support/server_process.hpp"

struct pg_conn;  // libpq's connection

namespace lastdoor::support {

/// Why tests with Postgres cannot run here; empty when they can.
[[nodiscard]] std::string postgres_missing();

/// Skips the test, visibly, where there is no Postgres; fails it when
/// LASTDOOR_REQUIRE_SERVERS=1.
#define LASTDOOR_NEEDS_POSTGRES()                                              \
  if (const auto why = ::lastdoor::support::postgres_missing(); why.empty()) { \
  } else if (::lastdoor::support::servers_required()) {                        \
    FAIL() << why;                                                             \
  } else                                                                       \
    GTEST_SKIP() << why

using rows = std::vector<std::vector<std::string>>;  // NULL is "<null>"

/// A plain connection of the test's own, for looking behind the library.
/// Every member throws std::runtime_error with the server's words.
class sql_session {
 public:
  explicit sql_session(const std::string& url);
  ~sql_session();
  sql_session(const sql_session&) = delete;
  sql_session& operator=(const sql_session&) = delete;

  rows query(const std::string& sql);
  /// The one value of the one row.
  std::string value(const std::string& sql);
  /// Sends without waiting for the answer; `finish` waits.
  void send(const std::string& sql);
  void finish();
  [[nodiscard]] int backend_pid() const;
  [[nodiscard]] pg_conn* raw() const noexcept { return conn_; }

 private:
  pg_conn* conn_;
};

struct postgres_options {
  bool fsync{false};
  std::vector<std::string> settings{};  // "name=value", as for postgres -c
};

/// A folder in memory for one server's data, gone with the object; what a
/// test program left that was killed, the next one clears away.
class memory_folder {
 public:
  /// Nothing where there is no such place, or little room.
  [[nodiscard]] static std::unique_ptr<memory_folder> make();
  ~memory_folder();
  memory_folder(const memory_folder&) = delete;
  memory_folder& operator=(const memory_folder&) = delete;
  [[nodiscard]] const std::filesystem::path& path() const noexcept {
    return path_;
  }

 private:
  explicit memory_folder(std::filesystem::path path) : path_{std::move(path)} {}
  std::filesystem::path path_;
};

class temp_postgres {
 public:
  /// Makes and starts a cluster. Throws std::runtime_error with its log.
  explicit temp_postgres(postgres_options options = {});
  ~temp_postgres();
  temp_postgres(const temp_postgres&) = delete;
  temp_postgres& operator=(const temp_postgres&) = delete;

  /// The one cluster of this test program, started when first asked for.
  static temp_postgres& shared();

  /// As superuser "postgres", without a password, over the Unix socket.
  [[nodiscard]] std::string url(const std::string& database) const;
  /// The same over 127.0.0.1, at `port` (0: the server's own).
  [[nodiscard]] std::string tcp_url(const std::string& database,
                                    int port = 0) const;
  [[nodiscard]] int port() const noexcept { return port_; }
  [[nodiscard]] std::filesystem::path socket_folder() const;
  [[nodiscard]] std::filesystem::path data() const;
  [[nodiscard]] std::string log() const;
  [[nodiscard]] server_process& process() { return *process_; }

  void start();
  /// Orderly, with a checkpoint; sessions are cut.
  void stop();
  void restart();
  /// SIGKILL to all processes of the cluster at one stroke.
  void kill_hard();
  /// SIGSTOP and SIGCONT to all processes of the cluster.
  void pause();
  void resume();
  /// Stops it and starts it as recovery from a backup does: on a new
  /// timeline.
  void restart_on_new_timeline();

 private:
  [[nodiscard]] argument_list command() const;
  [[nodiscard]] bool wait_until_ready();

  postgres_options options_;
  temp_folder folder_;
  std::unique_ptr<memory_folder> memory_;
  int port_{0};
  std::unique_ptr<server_process> process_;
};

/// A fresh database with a name of its own; dropped with the object.
class temp_database {
 public:
  explicit temp_database(temp_postgres& server = temp_postgres::shared());
  ~temp_database();
  temp_database(const temp_database&) = delete;
  temp_database& operator=(const temp_database&) = delete;

  [[nodiscard]] temp_postgres& server() const noexcept { return server_; }
  [[nodiscard]] const std::string& name() const noexcept { return name_; }
  [[nodiscard]] std::string url() const { return server_.url(name_); }
  [[nodiscard]] std::string tcp_url(int port = 0) const {
    return server_.tcp_url(name_, port);
  }
  /// Each on a connection of its own.
  rows query(const std::string& sql) const;
  std::string value(const std::string& sql) const;

 private:
  temp_postgres& server_;
  std::string name_;
};

}  // namespace lastdoor::support
