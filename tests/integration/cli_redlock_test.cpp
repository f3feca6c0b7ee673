// The tool with three Redis servers that form a quorum.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/output.hpp"
#include "support/tool_process.hpp"

namespace lastdoor {
namespace {

using namespace support;
using cli::exit_code;
using nlohmann::json;

int free_port() {
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

class CliRedlock : public testing::Test {
 protected:
  void SetUp() override {
    if (run_tool({"redis-server", "--version"}, by_path()).code != 0) {
      const char* const required = std::getenv("LASTDOOR_REQUIRE_SERVERS");
      if (required != nullptr && std::string_view{required} == "1") {
        FAIL() << "no redis-server";
      }
      GTEST_SKIP() << "no redis-server";
    }
    for (std::size_t k = 0; k < 3; ++k) {
      ports_[k] = std::to_string(free_port());
      start(k);
    }
    url_ = url_of({0, 1, 2});
  }
  std::string url_of(const std::vector<std::size_t>& which) const {
    std::string out;
    for (const auto k : which) {
      out += (out.empty() ? "redlock://127.0.0.1:" : ",127.0.0.1:") + ports_[k];
    }
    return out;
  }
  // Looks a program up as a shell does.
  static tool_setup by_path() {
    tool_setup s;
    s.program = "/usr/bin/env";
    return s;
  }
  // What was there before is killed, and with it all that it remembers.
  void start(std::size_t k) {
    servers_[k].reset();
    servers_[k] = std::make_unique<tool_process>(
        std::vector<std::string>{"redis-server", "--bind", "127.0.0.1",
                                 "--port", ports_[k], "--save", "", "--dir",
                                 folder_ / ""},
        by_path());
    ASSERT_TRUE(eventually([&] {
      return run_tool({"redis-cli", "-p", ports_[k], "PING"}, by_path()).out ==
             "PONG\n";
    }));
  }

  json answer(std::vector<std::string> arguments, int code = 0) const {
    arguments.insert(arguments.end(), {"--locks", url_, "--json"});
    const auto r = run_tool(std::move(arguments));
    EXPECT_EQ(r.code, code) << r.out << r.err;
    return json::parse(r.out, nullptr, false);
  }
  std::vector<std::string> conditions() const {
    std::vector<std::string> out;
    const auto all = answer({"redlock", "status"});
    for (const auto& s : all["servers"]) {
      out.push_back(s["is"]);
    }
    return out;
  }

  temp_folder folder_;
  std::string ports_[4];
  std::unique_ptr<tool_process> servers_[4];
  std::string url_;
};

TEST_F(CliRedlock, FromBlankServersToALease) {
  const auto misconfigured = exit_code(errc::misconfigured);
  answer({"acquire", "--resource", "r", "--ttl", "5s"}, misconfigured);
  answer({"redlock", "init", "--max-ttl", "20s", "--floor", "1600"});
  answer({"redlock", "init"}, misconfigured);
  EXPECT_EQ(conditions(),
            (std::vector<std::string>{"admitted", "admitted", "admitted"}));
  const auto lease = answer({"acquire", "--resource", "r", "--ttl", "20s"});
  EXPECT_GT(std::stoll(lease["token"].get<std::string>()), 1600);
  answer({"release", "--resource", "r", "--owner", lease["owner"]});
  answer({"acquire", "--resource", "r", "--ttl", "21s"},
         exit_code(errc::invalid_argument));
}

TEST_F(CliRedlock, AServerThatForgotIsShownAndReadmitted) {
  answer({"redlock", "init", "--max-ttl", "4s"});
  start(1);
  EXPECT_EQ(conditions()[1], "quarantined");
  EXPECT_EQ(answer({"redlock", "admit"})["servers"][1]["is"], "admitted");
  servers_[2].reset();
  EXPECT_EQ(conditions()[2], "unreachable");
  answer({"acquire", "--resource", "r", "--ttl", "3s"});
}

TEST_F(CliRedlock, ServersAreChanged) {
  answer({"redlock", "init", "--max-ttl", "1s"});
  const auto first = answer({"acquire", "--resource", "r", "--ttl", "1s"});
  ports_[3] = std::to_string(free_port());
  const auto next = url_of({0, 3, 2});
  answer({"redlock", "change", "--to", next}, exit_code(errc::unavailable));
  start(3);
  answer({"redlock", "change", "--to", "redis://h"},
         exit_code(errc::invalid_argument));
  servers_[1].reset();
  const auto done = answer({"redlock", "change", "--to", next});
  EXPECT_EQ(done["servers"], 3);
  EXPECT_EQ(done["left_open"].size(), 1U);
  EXPECT_GE(16 * std::stoll(done["floor"].get<std::string>()) + 15,
            std::stoll(first["token"].get<std::string>()));
  // It was not there when the others were closed.
  start(1);
  EXPECT_EQ(conditions()[1], "quarantined");
  answer({"redlock", "admit"}, exit_code(errc::misconfigured));
  url_ = next;
  EXPECT_EQ(conditions(),
            (std::vector<std::string>{"admitted", "admitted", "admitted"}));
  const auto second = answer({"acquire", "--resource", "r", "--ttl", "1s"});
  EXPECT_GT(std::stoll(second["token"].get<std::string>()),
            std::stoll(first["token"].get<std::string>()));
}

}  // namespace
}  // namespace lastdoor
