// cli_run_fixture.hpp: what the tests of `lastdoor run` share.
#pragma once

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/tool_process.hpp"

namespace lastdoor::support {

class run_fixture : public testing::Test {
 protected:
  std::string locks() const { return "sqlite:" + (folder_ / "locks.db"); }
  std::string store() const { return "sqlite:" + (folder_ / "shop.db"); }

  std::vector<std::string> call(std::vector<std::string> command,
                                std::vector<std::string> options = {}) const {
    std::vector<std::string> all{"run", "--locks", locks(), "--resource", "r"};
    all.insert(all.end(), options.begin(), options.end());
    all.emplace_back("--");
    all.insert(all.end(), command.begin(), command.end());
    return all;
  }
  int code_of(std::vector<std::string> command,
              std::vector<std::string> options = {}) const {
    return run_tool(call(std::move(command), std::move(options))).code;
  }
  std::vector<std::string> shell(const std::string& script) const {
    return {"/bin/sh", "-c", script};
  }

  bool is_held(const std::string& resource = "r") const {
    const auto r = run_tool(
        {"status", "--locks", locks(), "--resource", resource, "--json"});
    return nlohmann::json::parse(r.out).at("resources").at(0).at("held");
  }
  // A pid that a script has written with: echo $$ > file
  pid_t wait_for_pid(const std::string& name) const {
    pid_t pid = 0;
    EXPECT_TRUE(eventually([&] {
      pid = pid_in(folder_ / name);
      return pid != 0;
    })) << name;
    return pid;
  }
  // The holder of a lock for as long as a test wants it.
  std::vector<std::string> holding() const {
    return call(
        shell("echo $$ > " + (folder_ / "holder") + "; while :; do read x < " +
              (folder_ / "fifo") + "; done"),
        {"--ttl", "60s"});
  }

  temp_folder folder_;
};

}  // namespace lastdoor::support
