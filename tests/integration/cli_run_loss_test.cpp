// lastdoor run: signals, and the loss of the lock.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <lastdoor/clock.hpp>
#include <nlohmann/json.hpp>

#include "cli/output.hpp"
#include "drivers/sqlite.hpp"
#include "support/cli_run_fixture.hpp"
#include "support/tool_process.hpp"

namespace lastdoor {
namespace {

using namespace support;
using namespace std::chrono_literals;
using cli::exit_code;
using nlohmann::json;

time_point now() { return boot_clock()->now(); }

class CliRunLoss : public run_fixture {};

// ---- C02: signals ----------------------------------------------------------

class CliRunSignal : public run_fixture,
                     public testing::WithParamInterface<int> {};

// From then on a signal is the tool's to read, and no longer its end.
bool blocks_signals(pid_t pid) {
  const auto status = read_file("/proc/" + std::to_string(pid) + "/status");
  const auto at = status.find("SigBlk:\t");
  return at != std::string::npos &&
         (std::stoull(status.substr(at + 8), nullptr, 16) &
          (1ULL << (SIGTERM - 1))) != 0;
}

// It has got as far as the lock service.
bool has_open(pid_t pid, const std::string& path) {
  const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
  std::error_code ec;
  for (const auto& fd : std::filesystem::directory_iterator{folder, ec}) {
    if (std::filesystem::read_symlink(fd.path(), ec) == path) {
      return true;
    }
  }
  return false;
}

TEST_P(CliRunSignal, C02_BeforeTheGrantItEndsTheWaitAndLeavesNothing) {
  ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  tool_process holder{holding()};
  wait_for_pid("holder");
  tool_process waiting{call({"touch", folder_ / "started"}, {"--wait", "1h"})};
  ASSERT_TRUE(eventually([&] {
    return blocks_signals(waiting.pid()) &&
           has_open(waiting.pid(), folder_ / "locks.db");
  }));
  waiting.send(GetParam());
  const auto r = waiting.wait();
  EXPECT_EQ(r.code, exit_code(errc::canceled)) << r.err;
  holder.send(SIGTERM);
  holder.wait();
  EXPECT_FALSE(is_held());
  EXPECT_EQ(::access((folder_ / "started").c_str(), F_OK), -1);
}

TEST_P(CliRunSignal, C02_AfterTheGrantTheCommandGetsItAndTheLockOutlastsIt) {
  // The command notes the signal and whether the lock is still held then.
  const std::string name = std::to_string(GetParam());
  const std::string script =
      "trap '" LASTDOOR_TOOL " status --json --locks " + locks() +
      " --resource r > " + (folder_ / "seen") + "; exit 5' " + name +
      "; echo $$ > " + (folder_ / "child") + "; while :; do sleep 0.05; done";
  tool_process run{call(shell(script))};
  wait_for_pid("child");
  run.send(GetParam());
  EXPECT_EQ(run.wait().code, 5) << run.err();
  const json seen = json::parse(read_file(folder_ / "seen"));
  EXPECT_EQ(seen.at("resources").at(0).at("held"), true);
  EXPECT_FALSE(is_held());
}

INSTANTIATE_TEST_SUITE_P(Each, CliRunSignal,
                         testing::Values(SIGTERM, SIGINT, SIGHUP, SIGQUIT,
                                         SIGUSR1, SIGUSR2),
                         [](const auto& each) {
                           return std::string{::sigabbrev_np(each.param)};
                         });

TEST_F(CliRunLoss, C02_TheWholeGroupGetsTheSignal) {
  const std::string script = "sleep 100 & echo $! > " + (folder_ / "second") +
                             "; echo $$ > " + (folder_ / "child") + "; wait";
  tool_process run{call(shell(script))};
  wait_for_pid("child");
  const pid_t second = wait_for_pid("second");
  run.send(SIGTERM);
  EXPECT_EQ(run.wait().code, 128 + SIGTERM);
  EXPECT_TRUE(is_gone(second));
}

TEST_F(CliRunLoss, C02_AnIgnoredHangupStaysIgnored) {
  tool_setup nohup;
  nohup.program = "/bin/sh";
  tool_process run{
      {"-c", "trap '' HUP; exec \"$0\" \"$@\"", LASTDOOR_TOOL, "run", "--locks",
       locks(), "--resource", "r", "--", "/bin/sh", "-c",
       "echo $$ > " + (folder_ / "child") + "; sleep 100"},
      nohup};
  const pid_t child = wait_for_pid("child");
  run.send(SIGHUP);
  run.send(SIGTERM);
  EXPECT_EQ(run.wait().code, 128 + SIGTERM);
  EXPECT_TRUE(is_gone(child));
}

TEST_F(CliRunLoss, C02_WhenTheToolIsKilledTheCommandDiesAndTheTtlFreesTheLock) {
  tool_process run{call(shell("echo $$ > " + (folder_ / "child") +
                              "; trap '' TERM HUP INT; while :; do sleep 0.1; "
                              "done"),
                        {"--ttl", "2s"})};
  const pid_t child = wait_for_pid("child");
  run.send(SIGKILL);
  EXPECT_EQ(run.wait().signal, SIGKILL);
  EXPECT_TRUE(eventually([&] { return is_gone(child); }));
  EXPECT_EQ(code_of({"true"}, {"--wait", "30s"}), 0);
}

// ---- C01: the loss of the lock ---------------------------------------------

// Nobody can write the lock service's file while this lives: renewals fail.
class cut_off {
 public:
  explicit cut_off(const std::string& path)
      : db_{sqlite_driver::connection::open(path,
                                            sqlite_driver::open_mode::existing)
                .value()} {
    // Patiently: the tool writes there now and then.
    EXPECT_TRUE(eventually([&] {
      return db_.exec("BEGIN IMMEDIATE", "cutting off").has_value();
    }));
  }

 private:
  sqlite_driver::connection db_;
};

TEST_F(CliRunLoss, C01_AfterALossNoDescendantOutlivesTheValidity) {
  // One of each kind: obedient, deaf to TERM, a daemon that left the group
  // and lost its parent, and a stopped one.
  const auto note = [&](const std::string& name) {
    return "echo $$ > " + (folder_ / name) + "; ";
  };
  const std::string deaf = "trap \"\" TERM; while :; do sleep 0.1; done";
  const std::string script =
      "sh -c '" + note("deaf") + deaf + "' & " + "setsid sh -c '" +
      note("daemon") + deaf + "' & " + "sh -c '" + note("stopped") +
      "kill -STOP $$; exec sleep 100' & " + "sleep 100 & echo $! > " +
      (folder_ / "obedient") + "; " + note("child") + "wait";
  tool_process run{call(shell(script), {"--ttl", "6s", "--json"})};
  std::vector<pid_t> all;
  for (const char* name : {"child", "obedient", "deaf", "daemon", "stopped"}) {
    all.push_back(wait_for_pid(name));
  }
  ASSERT_TRUE(eventually([&] { return state_of(all.back()) == 'T'; }));
  const cut_off cut{folder_ / "locks.db"};
  const auto last_renewal = now();  // or earlier
  EXPECT_TRUE(
      eventually([&] { return std::all_of(all.begin(), all.end(), is_gone); }));
  EXPECT_LT(now() - last_renewal, 6s);
  const auto r = run.wait();
  EXPECT_EQ(r.code, exit_code(errc::lease_lost)) << r.err;
  const json answer = json::parse(r.out);
  EXPECT_EQ(answer.at("error").at("code"), "lease_lost");
  EXPECT_EQ(answer.at("error").at("resource"), "r");
  EXPECT_EQ(answer.at("error").at("presented"), answer.at("token"));
}

TEST_F(CliRunLoss, C01_TermComesFirstAndTheGraceIsRespected) {
  tool_process run{
      call(shell("trap 'echo term >> " + (folder_ / "log") +
                 "; sleep 0.2; echo tidy >> " + (folder_ / "log") +
                 "; exit 0' TERM; echo $$ > " + (folder_ / "child") +
                 "; while :; do sleep 0.05; done"),
           {"--ttl", "8s", "--grace", "3s"})};
  wait_for_pid("child");
  const cut_off cut{folder_ / "locks.db"};
  EXPECT_EQ(run.wait().code, exit_code(errc::lease_lost));
  EXPECT_EQ(read_file(folder_ / "log"), "term\ntidy\n");
}

TEST_F(CliRunLoss, C01_AToolThatWasStoppedEndsTheCommandAtOnceWhenItRunsAgain) {
  tool_process run{
      call(shell("echo $$ > " + (folder_ / "child") + "; trap 'echo term > " +
                 (folder_ / "log") + "' TERM; while :; do sleep 0.05; done"),
           {"--ttl", "2s"})};
  const pid_t child = wait_for_pid("child");
  ASSERT_TRUE(stop_and_see(run.pid()));
  // Somebody else gets the lock: the TTL is over.
  ASSERT_EQ(code_of({"true"}, {"--wait", "30s"}), 0);
  ASSERT_FALSE(is_gone(child));
  run.send(SIGCONT);
  EXPECT_EQ(run.wait().code, exit_code(errc::lease_lost));
  EXPECT_TRUE(is_gone(child));
  EXPECT_EQ(read_file(folder_ / "log"), "");  // no TERM, no grace: KILL
}

TEST_F(CliRunLoss, C01_AReleaseByAnotherHandEndsTheCommand) {
  tool_process run{call(shell("echo \"$LASTDOOR_OWNER\" > " +
                              (folder_ / "owner") + "; exec sleep 100"),
                        {"--ttl", "3s"})};
  std::string owner;
  ASSERT_TRUE(eventually([&] {
    owner = read_file(folder_ / "owner");
    return owner.ends_with('\n');
  }));
  owner.pop_back();
  ASSERT_EQ(run_tool({"release", "--locks", locks(), "--resource", "r",
                      "--owner", owner})
                .code,
            0);
  EXPECT_EQ(run.wait().code, exit_code(errc::lease_lost));
}

TEST_F(CliRunLoss, C01_WhatTheCommandLeavesBehindEndsBeforeTheLockIsReleased) {
  // The daemon holds on for a while after TERM, and then notes whether the
  // lock was still held.
  const std::string daemon =
      "trap \"sleep 0.3; " LASTDOOR_TOOL " status --json --locks " + locks() +
      " --resource r > " + (folder_ / "seen") + "; exit 0\" TERM; echo $$ > " +
      (folder_ / "daemon") + "; while :; do sleep 0.05; done";
  const auto r = run_tool(
      call(shell("setsid sh -c '" + daemon + "' & while [ ! -s " +
                 (folder_ / "daemon") + " ]; do sleep 0.05; done; exit 9"),
           {"--ttl", "20s", "--grace", "8s"}));
  EXPECT_EQ(r.code, 9) << r.err;
  EXPECT_NE(r.err.find("left behind"), std::string::npos) << r.err;
  EXPECT_TRUE(is_gone(pid_in(folder_ / "daemon")));
  const json seen = json::parse(read_file(folder_ / "seen"));
  EXPECT_EQ(seen.at("resources").at(0).at("held"), true);
  EXPECT_FALSE(is_held());
}

TEST_F(CliRunLoss, C01_ChildrenFromBeforeTheExecAreLeftAlone) {
  tool_setup shell_first;
  shell_first.program = "/bin/sh";
  const auto r = run_tool({"-c",
                           "sleep 100 > /dev/null 2>&1 & echo $! > " +
                               (folder_ / "older") + "; exec \"$0\" \"$@\"",
                           LASTDOOR_TOOL, "run", "--locks", locks(),
                           "--resource", "r", "--", "true"},
                          shell_first);
  EXPECT_EQ(r.code, 0);
  const pid_t older = wait_for_pid("older");
  EXPECT_FALSE(is_gone(older));
  send_signal(older, SIGKILL);
}

}  // namespace
}  // namespace lastdoor
