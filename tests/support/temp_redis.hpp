// temp_redis.hpp: a private Redis server for one test.
//
//   TEST(RedisLocks, AreGranted) {
//     LASTDOOR_NEEDS_REDIS();
//     temp_redis server;
//     auto locks = open_redis_locks(server.url()).value();
//     EXPECT_EQ(server.say({"GET", "lastdoor:{default}:marker"}), "...");
//   }
//
// It lives in a temporary folder, listens on a Unix socket there and on a free
// loopback port, and is gone with the object. Data survive a restart only
// where a test asks for it.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "support/server_process.hpp"

struct redisContext;  // hiredis' connection

namespace lastdoor::support {

/// Why tests with Redis cannot run here; empty when they can.
[[nodiscard]] std::string redis_missing();

/// The major version of the server in PATH; Valkey's is 7 and more.
[[nodiscard]] int redis_major();

/// Skips the test, visibly, where there is no Redis; fails it when
/// LASTDOOR_REQUIRE_SERVERS=1.
#define LASTDOOR_NEEDS_REDIS()                                              \
  if (const auto why = ::lastdoor::support::redis_missing(); why.empty()) { \
  } else if (::lastdoor::support::servers_required()) {                     \
    FAIL() << why;                                                          \
  } else                                                                    \
    GTEST_SKIP() << why

/// The same for suites that start a server where a test cannot be skipped any
/// more: add it as a test environment.
class needs_redis : public ::testing::Environment {
  void SetUp() override {
    const auto why = redis_missing();
    if (!why.empty() && servers_required()) {
      FAIL() << why;
    }
    if (!why.empty()) {
      GTEST_SKIP() << "[  SKIPPED ] " << why;
    }
  }
};

/// A plain connection of the test's own, for looking behind the library.
/// Every member throws std::runtime_error when the connection is gone.
class redis_session {
 public:
  explicit redis_session(const std::string& socket);
  ~redis_session();
  redis_session(const redis_session&) = delete;
  redis_session& operator=(const redis_session&) = delete;

  /// The answer as text: "7", "<nil>", "READONLY ...", "a,b" for a list.
  std::string say(const argument_list& words);
  /// Sends without waiting for the answer.
  void send(const argument_list& words);

 private:
  redisContext* connection_;
};

struct redis_options {
  bool persistent{false};               // keep an append-only file
  std::vector<std::string> settings{};  // "name value", as in redis.conf
  argument_list launcher{};  // stands before the program: /usr/bin/env A=B
};

/// Settings of a Redis Cluster's node.
[[nodiscard]] std::vector<std::string> cluster_settings();

class temp_redis {
 public:
  /// Starts a server. Throws std::runtime_error with its log.
  explicit temp_redis(redis_options options = {});
  ~temp_redis();
  temp_redis(const temp_redis&) = delete;
  temp_redis& operator=(const temp_redis&) = delete;

  [[nodiscard]] std::string url() const;      // by the Unix socket
  [[nodiscard]] std::string tcp_url() const;  // by the loopback port
  [[nodiscard]] std::string socket() const;
  [[nodiscard]] int port() const noexcept { return port_; }
  [[nodiscard]] std::filesystem::path folder() const { return folder_.path(); }
  [[nodiscard]] std::string log() const;
  [[nodiscard]] server_process& process() { return *process_; }

  /// One command on a connection of its own; see redis_session::say.
  std::string say(const argument_list& words) const;
  std::int64_t number(const argument_list& words) const;
  /// One field of INFO.
  std::string info(const std::string& field) const;
  /// How often a command was carried out since the start or CONFIG RESETSTAT.
  std::int64_t calls(const std::string& name) const;
  void set(const std::string& parameter, const std::string& value) const;

  /// Adds to or replaces what the next start will be told.
  void add_setting(const std::string& setting);

  void start(bool wait = true);
  /// SIGKILL, as a crash. With `persistent`, the data are still there.
  void kill_hard();
  /// Crash and start again.
  void restart();
  /// Crash and start again without the data.
  void restart_empty();
  /// SIGSTOP and SIGCONT.
  void pause() { process_->signal(SIGSTOP); }
  void resume() { process_->signal(SIGCONT); }

  /// Makes it a replica of `primary` and waits until it has caught up.
  void follow(const temp_redis& primary) const;
  void promote() const { say({"REPLICAOF", "NO", "ONE"}); }

  /// A cluster's node: gets all slots, and is waited for until it serves them.
  void own_all_slots() const;
  [[nodiscard]] bool serves_slots() const;
  /// Where the other nodes of the cluster reach it.
  [[nodiscard]] std::string cluster_port() const;

 private:
  [[nodiscard]] argument_list command() const;
  [[nodiscard]] bool wait_until_ready();

  redis_options options_;
  temp_folder folder_;
  int port_{0};
  std::unique_ptr<server_process> process_;
};

}  // namespace lastdoor::support
