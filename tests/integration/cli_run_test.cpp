// lastdoor run, through the real executable and real processes: exit codes,
// environment, start, and the store.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <lastdoor/clock.hpp>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "cli/output.hpp"
#include "cli/run/run.hpp"
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

class CliRun : public run_fixture {};

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
  const auto r = run_tool(call(
      {"printf", "<%s>", "--", "[a,b]", "--json", "", "-- --", "$HOME", "*"}));
  EXPECT_EQ(r.out, "<--><[a,b]><--json><><-- --><$HOME><*>");
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
  tool_process run{
      call(shell("echo $$ > " + (folder_ / "child") + "; exec sleep 100"),
           {"--ttl", "3s"})};
  const pid_t child = wait_for_pid("child");
  const auto start = now();
  EXPECT_TRUE(eventually([&] { return now() - start > 5s; }));
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
  EXPECT_EQ(names,
            (std::set<std::string>{"LASTDOOR_RESOURCE", "LASTDOOR_TOKEN",
                                   "LASTDOOR_OWNER", "LASTDOOR_SOURCE"}));
  EXPECT_TRUE(
      std::includes(after.begin(), after.end(), before.begin(), before.end()));
}

TEST_F(CliRun, C04_NoDescriptorBeyondTheStandardThreeIsInherited) {
  ASSERT_EQ(run_tool({"migrate", "up", "--store", store()}).code, 0);
  tool_setup setup;
  setup.program = "/bin/sh";
  // A careless caller hands 7 to the tool; another one closes 0 and 2.
  for (const std::string before : {"exec 7</dev/null", "exec 0<&- 2>&-"}) {
    const auto r =
        run_tool({"-c", before + "; exec \"$0\" \"$@\"", LASTDOOR_TOOL, "run",
                  "--locks", locks(), "--store", store(), "--resource", "r",
                  "--quiet", "--", "/bin/ls", "/proc/self/fd"},
                 setup);
    // 3 is the folder that ls itself has open.
    EXPECT_EQ(r.out, "0\n1\n2\n3\n") << before << r.err;
  }
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

// ---- C09: between grant and exec -------------------------------------------

TEST_F(CliRun, C09_ACommandThatComesTooLateIsNotStarted) {
  cli::run_options o;
  o.locks = locks();
  o.resource = "r";
  o.ttl = 2s;
  o.command = {"/usr/bin/touch", folder_ / "started"};
  o.before_exec = [] { ::usleep(3'000'000); };
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
    db.exec(
          "CREATE TABLE stock (id INTEGER PRIMARY KEY, qty INTEGER,"
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
  send_signal(child, SIGCONT);
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
  send_signal(child, SIGCONT);
  const std::string result = folder_ / "first.result";
  ASSERT_TRUE(eventually([&] { return read_file(result).ends_with('\n'); }));
  EXPECT_TRUE(read_file(result).starts_with("stale_token"))
      << read_file(result);
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
