// The tool with lock service and store on a real Redis server.
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "cli/output.hpp"
#include "support/tool_process.hpp"

namespace lastdoor {
namespace {

using namespace support;
using cli::exit_code;
using nlohmann::json;

class CliRedis : public testing::Test {
 protected:
  void SetUp() override {
    if (run_tool({"redis-server", "--version"}, by_path()).code != 0) {
      const char* const required = std::getenv("LASTDOOR_REQUIRE_SERVERS");
      if (required != nullptr && std::string_view{required} == "1") {
        FAIL() << "no redis-server";
      }
      GTEST_SKIP() << "no redis-server";
    }
    start();
  }

  void start() {
    server_.reset();
    server_ = std::make_unique<tool_process>(
        std::vector<std::string>{"redis-server", "--port", "0", "--unixsocket",
                                 socket(), "--save", "", "--dir", folder_ / ""},
        by_path());
    ASSERT_TRUE(eventually([&] { return say({"PING"}) == "PONG"; }));
  }

  // Looks a program up as a shell does.
  static tool_setup by_path() {
    tool_setup s;
    s.program = "/usr/bin/env";
    return s;
  }
  std::string socket() const { return folder_ / "s"; }
  std::string url(const std::string& more = "") const {
    return "redis+unix://" + socket() + more;
  }
  // What the server's own shell prints, without the line's end.
  std::string say(std::vector<std::string> words) const {
    words.insert(words.begin(), {"redis-cli", "-s", socket()});
    auto out = run_tool(std::move(words), by_path()).out;
    return out.substr(0, out.find_last_not_of('\n') + 1);
  }

  static json answer(std::vector<std::string> arguments, int code = 0) {
    arguments.emplace_back("--json");
    const auto r = run_tool(std::move(arguments));
    EXPECT_EQ(r.code, code) << r.out << r.err;
    return json::parse(r.out, nullptr, false);
  }
  json acquire(const std::string& locks, int code = 0) {
    return answer({"acquire", "--locks", locks, "--resource", "job", "--ttl",
                   "60s", "--holder", "a test"},
                  code);
  }

  temp_folder folder_;
  std::unique_ptr<tool_process> server_;
};

TEST_F(CliRedis, AcquireStatusReleaseAndRun) {
  const json held = acquire(url());
  EXPECT_EQ(held.at("source"), "redis/default");
  acquire(url(), exit_code(errc::busy));
  const json seen = answer({"status", "--locks", url(), "--resource", "job"});
  EXPECT_EQ(seen.at("resources").at(0).at("held"), true);
  EXPECT_EQ(seen.at("resources").at(0).at("holder"), "a test");
  EXPECT_EQ(seen.at("resources").at(0).at("last_token"), held.at("token"));
  answer({"release", "--locks", url(), "--resource", "job", "--owner",
          held.at("owner")});
  EXPECT_EQ(say({"EXISTS", "lastdoor:{default}:lock:job"}), "0");
  const auto ran =
      run_tool({"run", "--locks", url(), "--resource", "job", "--ttl", "30s",
                "--", "sh", "-c", "echo $LASTDOOR_TOKEN $LASTDOOR_SOURCE"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("redis/default"), std::string::npos);
  EXPECT_GT(std::stoll(ran.out),
            std::stoll(held.at("token").get<std::string>()));
}

TEST_F(CliRedis, ANamespaceIsASourceOfItsOwn) {
  const json one = acquire(url());
  const json two = acquire(url("?namespace=jobs"));
  EXPECT_EQ(two.at("source"), "redis/jobs");
  const json three = acquire(url("?db=1&namespace=jobs"));
  EXPECT_EQ(three.at("source"), "redis/jobs");
  EXPECT_EQ(say({"-n", "1", "EXISTS", "lastdoor:{jobs}:lock:job"}), "1");
  acquire(url("?namespace="), exit_code(errc::invalid_argument));
  acquire(url("?namespace=a%20b{"), exit_code(errc::invalid_argument));
}

TEST_F(CliRedis, MigrateMakesTheLedgerAndHandoverMovesItsMarks) {
  EXPECT_EQ(answer({"migrate", "verify", "--store", url()},
                   exit_code(errc::schema_mismatch))
                .at("differences")
                .size(),
            1U);
  answer({"status", "--store", url()}, exit_code(errc::schema_mismatch));
  EXPECT_EQ(answer({"migrate", "up", "--store", url()}).at("applied"),
            json::array({1}));
  EXPECT_EQ(answer({"migrate", "up", "--store", url()}).at("applied"),
            json::array());
  EXPECT_EQ(answer({"migrate", "status", "--store", url()})
                .at("migrations")
                .at(0)
                .at("applied"),
            true);
  answer({"migrate", "down", "--to", "0", "--store", url()},
         exit_code(errc::invalid_argument));
  answer({"migrate", "add-fence", "--table", "t", "--store", url()},
         exit_code(errc::invalid_argument));
  // A mark far above any clock, so that the new source has to be raised.
  const std::string mark = "8000000000000000";
  say({"HSET", "lastdoor:{default}:ledger", "job",
       mark + " " + std::string(40, 'a') + " 0 1 redis/default"});
  const json done =
      answer({"handover", "--store", url(), "--locks", url("?namespace=next"),
              "--from", "redis/default", "--to", "redis/next"});
  EXPECT_EQ(done.at("marks"), 1);
  EXPECT_EQ(done.at("floor"), mark);
  const json listed = answer({"status", "--store", url()});
  EXPECT_EQ(listed.at("resources").at(0).at("mark_source"), "redis/next");
  const json held = acquire(url("?namespace=next"));
  EXPECT_GT(std::stoll(held.at("token").get<std::string>()), std::stoll(mark));
}

TEST_F(CliRedis, X01_TheDemoShowsThePausedHolderOnRedis) {
  const std::vector<std::string> call{"demo", "--seconds", "1",   "--locks",
                                      url(),  "--store",   url(), "--json"};
  EXPECT_EQ(run_tool(call).code, exit_code(errc::schema_mismatch))
      << "nothing is set up behind the user's back";
  ASSERT_EQ(run_tool({"migrate", "up", "--store", url()}).code, 0);
  const auto r = run_tool(call);
  ASSERT_EQ(r.code, 0) << r.out << r.err;
  const json j = json::parse(r.out);
  EXPECT_GT(j.at("rounds").at(0).at("units_off"), 0);
  EXPECT_EQ(j.at("rounds").at(1).at("units_off"), 0);
  EXPECT_GT(j.at("rounds").at(1).at("late_writes").at("refused_by_store"), 0);
  EXPECT_EQ(say({"--scan", "--pattern", "*demo_lastdoor*"}), "");
}

TEST_F(CliRedis, APasswordIsNeverShown) {
  say({"CONFIG", "SET", "requirepass", "geheim"});
  const auto with = [&](const std::string& login) {
    return "redis+unix://" + login + "@" + socket();
  };
  EXPECT_EQ(acquire(with(":geheim")).at("resource"), "job");
  for (const auto& locks :
       {with(":hunter2"), with("u:hunter2"), std::string{"redis://:hunter2@"},
        std::string{"redis://:hunter2@127.0.0.1:1/x"},
        std::string{"redis://:hunter2@127.0.0.1:1"},
        std::string{"rediss://:hunter2@127.0.0.1:1"}}) {
    const auto r = run_tool(
        {"acquire", "--locks", locks, "--resource", "job", "--ttl", "1s"});
    EXPECT_NE(r.code, 0);
    EXPECT_EQ((r.out + r.err).find("hunter2"), std::string::npos)
        << r.out << r.err;
  }
}

}  // namespace
}  // namespace lastdoor
