// lastdoor run, through the real executable and real processes.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <lastdoor/clock.hpp>
#include <lastdoor/locks/sqlite.hpp>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cli/output.hpp"
#include "cli/run/run.hpp"
#include "drivers/sqlite.hpp"
#include "support/tool_process.hpp"

namespace lastdoor {
namespace {

using namespace support;
using namespace std::chrono_literals;
using cli::exit_code;
using nlohmann::json;

time_point now() { return boot_clock()->now(); }

class CliRun : public testing::Test {
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
    const auto r = run_tool({"status", "--locks", locks(), "--resource",
                             resource, "--json"});
    return json::parse(r.out).at("resources").at(0).at("held");
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
    return call(shell("echo $$ > " + (folder_ / "holder") +
                      "; while :; do read x < " + (folder_ / "fifo") +
                      "; done"),
                {"--ttl", "60s"});
  }

  temp_folder folder_;
};

// ---- C03: exit codes -------------------------------------------------------

TEST_F(CliRun, C03_SevenEndingsHaveSevenDocumentedResults) {
  const int zero = code_of({"true"});
  const int one = code_of(shell("exit 1"));
  const int seventy_seven = code_of(shell("exit 77"));
  const int killed = code_of(shell("kill -KILL $$"));
  const int absent = code_of({"lastdoor-no-such-command"});
  const int not_executable = code_of({"/etc/passwd"});
  ASSERT_EQ(run_tool({"acquire", "--locks", locks(), "--resource", "r"}).code,
            0);
  const int busy = code_of(shell("echo started > " + (folder_ / "started")));
  write_file(folder_ / "text.db", "no database at all, it is only a text");
  const int down =
      run_tool({"run", "--locks", "sqlite:" + (folder_ / "text.db"),
                "--resource", "r", "--", "touch", folder_ / "started"})
          .code;
  EXPECT_EQ(zero, 0);
  EXPECT_EQ(one, 1);
  EXPECT_EQ(seventy_seven, 77);
  EXPECT_EQ(killed, 128 + SIGKILL);
  EXPECT_EQ(absent, 127);
  EXPECT_EQ(not_executable, 126);
  EXPECT_EQ(busy, exit_code(errc::busy));
  EXPECT_EQ(down, exit_code(errc::misconfigured));
  EXPECT_EQ(std::set({zero, one, seventy_seven, killed, absent, not_executable,
                      busy, down})
                .size(),
            8U);
  EXPECT_EQ(read_file(folder_ / "started"), "");  // never started
}

TEST_F(CliRun, C03_EveryCodeOfTheCommandIsPassedOn) {
  for (const int code : {2, 125, 128, 200, 255}) {
    EXPECT_EQ(code_of(shell("exit " + std::to_string(code))), code);
  }
}

TEST_F(CliRun, C03_ACommandThatIsNotThereLeavesTheLockFree) {
  const auto r = run_tool(call({"lastdoor-no-such-command"}));
  EXPECT_EQ(r.code, 127);
  EXPECT_NE(r.err.find("lastdoor-no-such-command"), std::string::npos) << r.err;
  EXPECT_FALSE(is_held());
}

TEST_F(CliRun, NoCommandIsAUsageError) {
  for (const auto& command :
       {std::vector<std::string>{}, std::vector<std::string>{""}}) {
    EXPECT_EQ(code_of(command), exit_code(errc::invalid_argument));
  }
  EXPECT_EQ(
      run_tool({"run", "--locks", locks(), "--resource", "r", "true"}).code,
      exit_code(errc::invalid_argument));
  EXPECT_EQ(code_of({"true"}, {"--grace", "9s"}),
            exit_code(errc::invalid_argument));
}

TEST_F(CliRun, TheCommandGetsItsArgumentsUntouched) {
  const auto r = run_tool(call({"printf", "<%s>", "--", "[a,b]", "--json", "",
                                "-- --", "$HOME", "*"}));
  EXPECT_EQ(r.out, "<[a,b]><--json><><-- --><$HOME><*>");
}

TEST_F(CliRun, JsonTellsTheGrantAndTheEnd) {
  const auto r = run_tool(call(shell("echo out; exit 3"), {"--json"}));
  EXPECT_EQ(r.code, 3);
  std::istringstream lines{r.out};
  std::string first, second;
  std::getline(lines, first);
  std::getline(lines, second);
  EXPECT_EQ(first, "out");
  const json j = json::parse(second);
  EXPECT_EQ(j.at("exit_code"), 3);
  EXPECT_TRUE(j.at("token").is_string());
  EXPECT_NE(r.err.find("token " + j.at("token").get<std::string>()),
            std::string::npos);
}

TEST_F(CliRun, TheLockIsHeldAndRenewedWhileTheCommandRuns) {
  tool_process run{call(shell("echo $$ > " + (folder_ / "child") +
                              "; exec sleep 100"),
                        {"--ttl", "1s"})};
  const pid_t child = wait_for_pid("child");
  const auto start = now();
  EXPECT_TRUE(eventually([&] { return now() - start > 3s; }));
  EXPECT_TRUE(is_held());
  EXPECT_FALSE(is_gone(child));
  run.send(SIGTERM);
  EXPECT_EQ(run.wait().code, 128 + SIGTERM);
  EXPECT_FALSE(is_held());
}

// ---- C04: environment and descriptors --------------------------------------

TEST_F(CliRun, C04_TheEnvironmentDiffersByTheFourNamesOnly) {
  const auto sorted = [](const std::string& text) {
    std::set<std::string> all;
    std::istringstream lines{text};
    for (std::string line; std::getline(lines, line);) {
      all.insert(line);
    }
    return all;
  };
  tool_setup setup;
  setup.environment = {"KEPT=as it is", "LASTDOOR_TOKEN=stale",
                       "LASTDOOR_OTHER=kept"};
  tool_setup bare = setup;
  bare.program = "/usr/bin/env";
  auto before = sorted(run_tool({}, bare).out);
  auto after = sorted(run_tool(call({"/usr/bin/env"}), setup).out);
  EXPECT_EQ(before.erase("LASTDOOR_TOKEN=stale"), 1U);
  std::set<std::string> added;
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                      std::inserter(added, added.end()));
  std::set<std::string> names;
  for (const auto& line : added) {
    names.insert(line.substr(0, line.find('=')));
    EXPECT_NE(line.back(), '=') << line;
  }
  EXPECT_EQ(names, (std::set<std::string>{"LASTDOOR_RESOURCE", "LASTDOOR_TOKEN",
                                          "LASTDOOR_OWNER", "LASTDOOR_SOURCE"}));
  EXPECT_TRUE(std::includes(after.begin(), after.end(), before.begin(),
                            before.end()));
}

TEST_F(CliRun, C04_NoDescriptorBeyondTheStandardThreeIsInherited) {
  ASSERT_EQ(run_tool({"migrate", "up", "--store", store()}).code, 0);
  // The shell hands 7 to the tool, as a careless caller would.
  tool_setup setup;
  setup.program = "/bin/sh";
  const auto r = run_tool(
      {"-c", "exec 7</dev/null; exec \"$0\" \"$@\"", LASTDOOR_TOOL, "run",
       "--locks", locks(), "--store", store(), "--resource", "r", "--quiet",
       "--", "/bin/ls", "/proc/self/fd"},
      setup);
  // 3 is the folder that ls itself has open.
  EXPECT_EQ(r.out, "0\n1\n2\n3\n") << r.err;
}

TEST_F(CliRun, C04_TheSignalMaskAndDispositionsAreNotOurs) {
  const auto fields = [](const std::string& status) {
    std::string kept;
    std::istringstream lines{status};
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with("SigBlk") || line.starts_with("SigIgn")) {
        kept += line + "\n";
      }
    }
    return kept;
  };
  tool_setup bare;
  bare.program = "/bin/cat";
  const auto before = fields(run_tool({"/proc/self/status"}, bare).out);
  const auto after =
      fields(run_tool(call({"/bin/cat", "/proc/self/status"})).out);
  EXPECT_EQ(before, after);
  EXPECT_NE(before, "");
}

// ---- C02: signals ----------------------------------------------------------

class CliRunSignal : public CliRun, public testing::WithParamInterface<int> {};

TEST_P(CliRunSignal, C02_BeforeTheGrantItEndsTheWaitAndLeavesNothing) {
  ASSERT_EQ(::mkfifo((folder_ / "fifo").c_str(), 0600), 0);
  tool_process holder{holding()};
  wait_for_pid("holder");
  tool_process waiting{call({"touch", folder_ / "started"}, {"--wait", "1h"})};
  // It is waiting when its signals are blocked and its threads run.
  ASSERT_TRUE(eventually([&] {
    const auto text = read_file("/proc/" + std::to_string(waiting.pid()) +
                                "/status");
    return text.find("Threads:\t1\n") == std::string::npos &&
           text.find("Threads:\t") != std::string::npos;
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
                         [](const auto& info) {
                           return std::string{::sigabbrev_np(info.param)};
                         });

TEST_F(CliRun, C02_TheWholeGroupGetsTheSignal) {
  const std::string script = "sleep 100 & echo $! > " + (folder_ / "second") +
                             "; echo $$ > " + (folder_ / "child") + "; wait";
  tool_process run{call(shell(script))};
  wait_for_pid("child");
  const pid_t second = wait_for_pid("second");
  run.send(SIGTERM);
  EXPECT_EQ(run.wait().code, 128 + SIGTERM);
  EXPECT_TRUE(is_gone(second));
}

TEST_F(CliRun, C02_AnIgnoredHangupStaysIgnored) {
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

TEST_F(CliRun, C02_WhenTheToolIsKilledTheCommandDiesAndTheTtlFreesTheLock) {
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

TEST_F(CliRun, C01_AfterALossNoDescendantOutlivesTheValidity) {
  // One of each kind: obedient, deaf to TERM, a daemon that left the group
  // and lost its parent, and a stopped one.
  const auto note = [&](const std::string& name) {
    return "echo $$ > " + (folder_ / name) + "; ";
  };
  const std::string deaf = "trap \"\" TERM; while :; do sleep 0.1; done";
  const std::string script =
      "sh -c '" + note("deaf") + deaf + "' & " +
      "setsid sh -c '" + note("daemon") + deaf + "' & " +
      "sh -c '" + note("stopped") + "kill -STOP $$; exec sleep 100' & " +
      "sleep 100 & echo $! > " + (folder_ / "obedient") + "; " +
      note("child") + "wait";
  tool_process run{call(shell(script), {"--ttl", "6s", "--json"})};
  std::vector<pid_t> all;
  for (const char* name : {"child", "obedient", "deaf", "daemon", "stopped"}) {
    all.push_back(wait_for_pid(name));
  }
  ASSERT_TRUE(eventually([&] { return state_of(all.back()) == 'T'; }));
  const cut_off cut{folder_ / "locks.db"};
  const auto last_renewal = now();  // or earlier
  EXPECT_TRUE(eventually([&] {
    return std::all_of(all.begin(), all.end(), is_gone);
  }));
  EXPECT_LT(now() - last_renewal, 6s);
  const auto r = run.wait();
  EXPECT_EQ(r.code, exit_code(errc::lease_lost)) << r.err;
  const json answer = json::parse(r.out);
  EXPECT_EQ(answer.at("error").at("code"), "lease_lost");
  EXPECT_EQ(answer.at("error").at("resource"), "r");
  EXPECT_EQ(answer.at("error").at("presented"), answer.at("token"));
}

TEST_F(CliRun, C01_TermComesFirstAndTheGraceIsRespected) {
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

TEST_F(CliRun, C01_AToolThatWasStoppedEndsTheCommandAtOnceWhenItRunsAgain) {
  tool_process run{call(shell("echo $$ > " + (folder_ / "child") +
                              "; trap 'echo term > " + (folder_ / "log") +
                              "' TERM; while :; do sleep 0.05; done"),
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

TEST_F(CliRun, C01_AReleaseByAnotherHandEndsTheCommand) {
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

TEST_F(CliRun, C01_WhatTheCommandLeavesBehindEndsBeforeTheLockIsReleased) {
  // The daemon holds on for a while after TERM, and then notes whether the
  // lock was still held.
  const std::string daemon =
      "trap \"sleep 0.3; " LASTDOOR_TOOL " status --json --locks " + locks() +
      " --resource r > " + (folder_ / "seen") + "; exit 0\" TERM; echo $$ > " +
      (folder_ / "daemon") + "; while :; do sleep 0.05; done";
  const auto r = run_tool(call(
      shell("setsid sh -c '" + daemon + "' & while [ ! -s " +
            (folder_ / "daemon") + " ]; do sleep 0.05; done; exit 9"),
      {"--ttl", "20s", "--grace", "8s"}));
  EXPECT_EQ(r.code, 9) << r.err;
  EXPECT_NE(r.err.find("left behind"), std::string::npos) << r.err;
  EXPECT_TRUE(is_gone(pid_in(folder_ / "daemon")));
  const json seen = json::parse(read_file(folder_ / "seen"));
  EXPECT_EQ(seen.at("resources").at(0).at("held"), true);
  EXPECT_FALSE(is_held());
}

TEST_F(CliRun, C01_ChildrenFromBeforeTheExecAreLeftAlone) {
  tool_setup shell_first;
  shell_first.program = "/bin/sh";
  const auto r = run_tool(
      {"-c",
       "sleep 100 > /dev/null 2>&1 & echo $! > " + (folder_ / "older") +
           "; exec \"$0\" \"$@\"",
       LASTDOOR_TOOL, "run", "--locks", locks(), "--resource", "r", "--",
       "true"},
      shell_first);
  EXPECT_EQ(r.code, 0);
  const pid_t older = wait_for_pid("older");
  EXPECT_FALSE(is_gone(older));
  ::kill(older, SIGKILL);
}

// ---- C09: between grant and exec -------------------------------------------

TEST_F(CliRun, C09_ACommandThatComesTooLateIsNotStarted) {
  cli::run_options o;
  o.locks = locks();
  o.resource = "r";
  o.ttl = 500ms;
  o.command = {"/usr/bin/touch", folder_ / "started"};
  o.before_exec = [] { ::usleep(1'000'000); };
  const pid_t tool = ::fork();
  if (tool == 0) {
    ::_exit(cli::run_command(o, cli::output{false}));
  }
  int status = 0;
  ASSERT_EQ(::waitpid(tool, &status, 0), tool);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), exit_code(errc::lease_lost));
  EXPECT_EQ(::access((folder_ / "started").c_str(), F_OK), -1);
  EXPECT_EQ(code_of({"true"}, {"--wait", "30s"}), 0);
}

// ---- X01: a stopped holder at the store ------------------------------------

class CliRunStore : public CliRun {
 protected:
  void SetUp() override {
    ASSERT_EQ(run_tool({"migrate", "up", "--store", store()}).code, 0);
    auto db = open_shop();
    db.exec("CREATE TABLE stock (id INTEGER PRIMARY KEY, qty INTEGER,"
            " fence_token INTEGER NOT NULL DEFAULT 0);"
            "INSERT INTO stock (id, qty) VALUES (1, 100)",
            "a test's SQL")
        .value();
  }
  sqlite_driver::connection open_shop() const {
    return sqlite_driver::connection::open(folder_ / "shop.db",
                                           sqlite_driver::open_mode::existing)
        .value();
  }
  std::int64_t quantity() const {
    auto db = open_shop();
    auto read = db.prepare("SELECT qty FROM stock", "a test's SQL").value();
    EXPECT_TRUE(read.step("a test's SQL").value());
    return read.integer(0);
  }
  std::vector<std::string> writer(const std::string& name, int value) const {
    return call({LASTDOOR_LATE_WRITER, folder_ / "shop.db",
                 std::to_string(value), folder_ / (name + ".ready"),
                 folder_ / (name + ".go"), folder_ / (name + ".result")},
                {"--store", store(), "--ttl", "2s", "--wait", "30s"});
  }
};

TEST_F(CliRunStore, X01_AWriteAfterAPauseIsRefusedAtTheStore) {
  tool_process first{writer("first", 111)};
  const pid_t child = wait_for_pid("first.ready");
  // The whole machine pauses, as it were: the tool and its command.
  ASSERT_TRUE(stop_and_see(first.pid()));
  ASSERT_TRUE(stop_and_see(child));
  write_file(folder_ / "second.go", "go");
  EXPECT_EQ(run_tool(writer("second", 222)).code, 0);
  EXPECT_EQ(quantity(), 222);
  // The command wakes first and writes what it had in mind.
  write_file(folder_ / "first.go", "go");
  ::kill(child, SIGCONT);
  const std::string result = folder_ / "first.result";
  ASSERT_TRUE(eventually([&] { return read_file(result).ends_with('\n'); }));
  EXPECT_TRUE(read_file(result).starts_with("stale_token on 'r', token "))
      << read_file(result);
  EXPECT_EQ(quantity(), 222);
  first.send(SIGCONT);
  EXPECT_EQ(first.wait().code, exit_code(errc::lease_lost));
}

TEST_F(CliRunStore, X01_TheBarrierStandsBeforeTheNextCommandWritesAnything) {
  tool_process first{writer("first", 111)};
  const pid_t child = wait_for_pid("first.ready");
  ASSERT_TRUE(stop_and_see(first.pid()));
  ASSERT_TRUE(stop_and_see(child));
  // The next holder only looks.
  ASSERT_EQ(code_of({"true"}, {"--store", store(), "--wait", "30s"}), 0);
  write_file(folder_ / "first.go", "go");
  ::kill(child, SIGCONT);
  const std::string result = folder_ / "first.result";
  ASSERT_TRUE(eventually([&] { return read_file(result).ends_with('\n'); }));
  EXPECT_TRUE(read_file(result).starts_with("stale_token")) << read_file(result);
  EXPECT_EQ(quantity(), 100);
  first.send(SIGCONT);
  first.wait();
}

TEST_F(CliRunStore, TheCommandWritesWithTheGrantOfItsEnvironment) {
  write_file(folder_ / "only.go", "go");
  EXPECT_EQ(run_tool(writer("only", 42)).code, 0);
  EXPECT_EQ(quantity(), 42);
}

}  // namespace
}  // namespace lastdoor
