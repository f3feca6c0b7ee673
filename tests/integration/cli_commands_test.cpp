// The commands other than run and demo, through the real executable.
#include <fcntl.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/output.hpp"
#include "drivers/sqlite.hpp"
#include "support/tool_process.hpp"

namespace lastdoor {
namespace {

using namespace support;
using cli::exit_code;
using nlohmann::json;

class CliCommands : public testing::Test {
 protected:
  std::string url(std::string_view file) const {
    return "sqlite:" + (folder_ / file);
  }
  std::string locks() const { return url("locks.db"); }
  std::string store() const { return url("shop.db"); }

  // The command's JSON answer; fails the test if the code is another one.
  static json answer(std::vector<std::string> arguments, int code = 0) {
    arguments.emplace_back("--json");
    const auto r = run_tool(std::move(arguments));
    EXPECT_EQ(r.code, code) << r.out << r.err;
    return json::parse(r.out, nullptr, false);
  }

  json acquire(const std::string& resource, const std::string& ttl = "60s") {
    return answer({"acquire", "--locks", locks(), "--resource", resource,
                   "--ttl", ttl, "--holder", "a test"});
  }
  json release(const json& held, int code = 0) {
    return answer({"release", "--locks", locks(), "--resource",
                   held.at("resource"), "--owner", held.at("owner")},
                  code);
  }
  json lease(const std::string& resource) {
    const auto j =
        answer({"status", "--locks", locks(), "--resource", resource});
    return j.at("resources").at(0);
  }
  void migrate() { answer({"migrate", "up", "--store", store()}); }

  // Runs SQL on the store's file as any other program would.
  std::vector<std::string> sql(const std::string& text,
                               const std::string& file = "shop.db") {
    auto db = sqlite_driver::connection::open(folder_ / file,
                                              sqlite_driver::open_mode::create)
                  .value();
    std::vector<std::string> rows;
    std::string rest = text;
    auto statement = db.prepare(text, "a test's SQL").value();
    while (statement.step("a test's SQL").value()) {
      rows.push_back(statement.text(0));
    }
    return rows;
  }
  void sql_script(const std::string& text, const std::string& file) {
    sqlite_driver::connection::open(folder_ / file,
                                    sqlite_driver::open_mode::create)
        .value()
        .exec(text, "a test's SQL")
        .value();
  }
  std::string schema(const std::string& file) {
    std::string all;
    for (const auto& s : sql("SELECT sql FROM sqlite_schema WHERE sql IS NOT "
                             "NULL ORDER BY name",
                             file)) {
      all += s + ";\n";
    }
    return all;
  }

  temp_folder folder_;
};

// ---- acquire, release, status ----------------------------------------------

TEST_F(CliCommands, AcquireSaysAllThatReleaseNeedsAndLeavesTheLockHeld) {
  const json held = acquire("a/b");
  EXPECT_EQ(held.at("resource"), "a/b");
  EXPECT_EQ(held.at("source"), "sqlite/default");
  EXPECT_GT(held.at("valid_for_ms"), 0);
  EXPECT_LE(held.at("valid_for_ms"), 60000);
  const json now = lease("a/b");
  EXPECT_EQ(now.at("held"), true);
  EXPECT_EQ(now.at("holder"), "a test");
  EXPECT_EQ(now.at("last_token"), held.at("token"));
}

TEST_F(CliCommands, F12_TokensAreStringsAndGrow) {
  const json first = acquire("a");
  ASSERT_TRUE(first.at("token").is_string());
  release(first);
  const json second = acquire("a");
  EXPECT_GT(std::stoll(second.at("token").get<std::string>()),
            std::stoll(first.at("token").get<std::string>()));
}

TEST_F(CliCommands, TheOwnerAloneReleases) {
  const json held = acquire("a");
  EXPECT_EQ(release(held).at("token"), held.at("token"));
  EXPECT_EQ(lease("a").at("held"), false);
}

TEST_F(CliCommands, R24_ReleaseOfAForeignLockIsRefused) {
  json held = acquire("a");
  json foreign = held;
  foreign["owner"] = std::string(40, 'a');
  EXPECT_EQ(release(foreign, exit_code(errc::not_owner)).at("error").at("code"),
            "not_owner");
  EXPECT_EQ(lease("a").at("held"), true);
  answer({"release", "--locks", locks(), "--resource", "never", "--owner",
          held.at("owner")},
         exit_code(errc::not_owner));
}

TEST_F(CliCommands, ReleaseWithATokenChecksItToo) {
  const json held = acquire("a");
  const std::vector<std::string> call{"release",        "--locks", locks(),
                                      "--resource",     "a",       "--owner",
                                      held.at("owner"), "--token"};
  auto wrong = call;
  wrong.emplace_back("123456789");
  answer(wrong, exit_code(errc::not_owner));
  auto right = call;
  right.push_back(held.at("token"));
  answer(right);
}

TEST_F(CliCommands, F03_ReleaseRefusesTokensThatAreNone) {
  const json held = acquire("a");
  for (const char* token : {"0", "-1", "x", "9007199254740992", "1 "}) {
    answer({"release", "--locks", locks(), "--resource", "a", "--owner",
            held.at("owner"), std::string{"--token="} + token},
           exit_code(errc::invalid_argument));
  }
  EXPECT_EQ(lease("a").at("held"), true);
}

TEST_F(CliCommands, AcquireWaitsAsLongAsItWasTold) {
  acquire("a", "60s");
  answer({"acquire", "--locks", locks(), "--resource", "a"},
         exit_code(errc::busy));
  acquire("b", "2s");
  answer({"acquire", "--locks", locks(), "--resource", "b", "--wait", "30s"});
}

TEST_F(CliCommands, AcquireWhoseAnswerIsNotTakenLeavesNothingHeld) {
  tool_setup full;
  full.stdout_path = "/dev/full";
  const auto r = run_tool(
      {"acquire", "--locks", locks(), "--resource", "a", "--json"}, full);
  EXPECT_EQ(r.code, exit_code(errc::unavailable)) << r.err;
  EXPECT_NE(r.err.find("unavailable on 'a': "), std::string::npos) << r.err;
  EXPECT_NE(r.err.find("given back"), std::string::npos) << r.err;
  EXPECT_EQ(lease("a").at("held"), false);
}

TEST_F(CliCommands, AcquireWithAClosedStdoutTakesNothing) {
  tool_setup shell;
  shell.program = "/bin/sh";
  const auto r = run_tool({"-c", "exec \"$@\" >&-", "sh", LASTDOOR_TOOL,
                           "acquire", "--locks", locks(), "--resource", "a"},
                          shell);
  EXPECT_EQ(r.code, exit_code(errc::invalid_argument)) << r.err;
  EXPECT_FALSE(std::filesystem::exists(folder_ / "locks.db"));
}

TEST_F(CliCommands, WhoOnlyLooksMakesNoFile) {
  answer({"status", "--locks", locks(), "--resource", "a"},
         exit_code(errc::missing));
  answer({"release", "--locks", locks(), "--resource", "a", "--owner",
          std::string(40, 'a')},
         exit_code(errc::missing));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "locks.db"));
}

TEST_F(CliCommands, AnEmptyValueNeverTakesTheNextWord) {
  migrate();
  sql_script("CREATE TABLE t (id INTEGER PRIMARY KEY)", "shop.db");
  const auto before = schema("shop.db");
  for (std::vector<std::string> call :
       {std::vector<std::string>{"run", "--locks", locks(),
                                 "--resource=", "--quiet", "--", "true"},
        {"acquire", "--resource", "a", "--locks=", "--json"},
        {"migrate", "add-fence", "--store", store(), "--table", "t",
         "--column=", "--dry-run"}}) {
    const auto r = run_tool(call);
    EXPECT_EQ(r.code, 211) << r.out << r.err;
    EXPECT_NE(r.err.find(" must not be empty"), std::string::npos) << r.err;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "locks.db"));
  EXPECT_EQ(schema("shop.db"), before);
  // The words of the command are its own.
  EXPECT_EQ(run_tool({"run", "--locks", locks(), "--resource", "a", "--",
                      "true", "--x="})
                .code,
            0);
}

TEST_F(CliCommands, ADamagedMarkIsNotShownAsNone) {
  migrate();
  sql_script(
      "PRAGMA ignore_check_constraints=ON; INSERT INTO lastdoor_marks "
      "VALUES ('a', 'abc', 'x', 'sqlite/default', 0)",
      "shop.db");
  answer({"status", "--store", store()}, exit_code(errc::damaged));
  answer({"status", "--store", store(), "--resource", "a"},
         exit_code(errc::damaged));
  const auto r = run_tool({"migrate", "verify", "--store", store()});
  EXPECT_EQ(r.code, exit_code(errc::schema_mismatch));
  EXPECT_NE(r.err.find("mark of 'a'"), std::string::npos) << r.err;
}

TEST_F(CliCommands, TextNamesResourceTokenAndOwner) {
  const auto r = run_tool({"acquire", "--locks", locks(), "--resource", "a/b"});
  EXPECT_EQ(r.code, 0);
  EXPECT_TRUE(r.out.starts_with("resource  a/b\ntoken     ")) << r.out;
  const auto odd =
      run_tool({"acquire", "--locks", locks(), "--resource", "a\x1b[1m"});
  EXPECT_TRUE(odd.out.starts_with("resource  a\\x1b[1m\n")) << odd.out;
  const auto s = run_tool({"status", "--locks", locks(), "--resource", "a/b"});
  EXPECT_NE(s.out.find("LAST TOKEN"), std::string::npos);
  EXPECT_NE(s.out.find("a/b"), std::string::npos);
}

TEST_F(CliCommands, StatusPagesThroughTheLedger) {
  migrate();
  for (const char* name : {"a", "b", "c"}) {
    const auto r = run_tool({"run", "--locks", locks(), "--store", store(),
                             "--resource", name, "--", "true"});
    ASSERT_EQ(r.code, 0) << r.err;
  }
  const json first = answer(
      {"status", "--store", store(), "--locks", locks(), "--limit", "2"});
  ASSERT_EQ(first.at("resources").size(), 2U);
  EXPECT_EQ(first.at("resources").at(0).at("resource"), "a");
  EXPECT_EQ(first.at("resources").at(0).at("mark_source"), "sqlite/default");
  EXPECT_EQ(first.at("resources").at(0).at("mark"),
            first.at("resources").at(0).at("last_token"));
  ASSERT_EQ(first.at("next_after"), "b");
  const json second = answer({"status", "--store", store(), "--after", "b"});
  ASSERT_EQ(second.at("resources").size(), 1U);
  EXPECT_EQ(second.at("resources").at(0).at("resource"), "c");
  EXPECT_TRUE(second.at("next_after").is_null());
  const json one =
      answer({"status", "--store", store(), "--resource", "unknown"});
  EXPECT_EQ(one.at("resources").at(0).at("mark"), "0");
}

// ---- errors ----------------------------------------------------------------

TEST_F(CliCommands, R37_NoTwoFailuresShareAnExitCode) {
  const json held = acquire("taken");
  write_file(folder_ / "text.db", "this is no database, whatever it is named");
  sql_script("CREATE TABLE t (a)", "bare.db");
  const std::string bare = url("bare.db"), text = url("text.db");
  const auto code = [](std::vector<std::string> arguments) {
    return run_tool(std::move(arguments)).code;
  };
  EXPECT_EQ(code({"acquire", "--locks", locks(), "--resource", "taken"}),
            exit_code(errc::busy));
  EXPECT_EQ(code({"acquire", "--locks", "sqlite:", "--resource", "a"}),
            exit_code(errc::invalid_argument));
  EXPECT_EQ(code({"status", "--store", bare}),
            exit_code(errc::schema_mismatch));
  EXPECT_EQ(code({"acquire", "--locks", text, "--resource", "a"}),
            exit_code(errc::misconfigured));
  EXPECT_EQ(code({"release", "--locks", locks(), "--resource", "taken",
                  "--owner", std::string(40, '0')}),
            exit_code(errc::not_owner));
}

TEST_F(CliCommands, UsageErrorsAreInvalidArguments) {
  const std::vector<std::vector<std::string>> calls = {
      {},
      {"no-such-command"},
      {"acquire"},
      {"acquire", "--locks", locks()},
      {"acquire", "--locks", locks(), "--resource", "a", "--ttl", "10"},
      {"acquire", "--locks", locks(), "--resource", "a", "--wait", "-1s"},
      {"acquire", "--locks", locks(), "--resource", ""},
      {"acquire", "--locks", locks(), "--resource", "\xff"},
      {"acquire", "--locks", locks(), "--resource", "a", "--", "true"},
      {"status"},
      {"status", "--locks", locks()},
      {"migrate"},
      {"migrate", "down", "--store", store()},
      {"help", "no-such-topic"}};
  for (const auto& call : calls) {
    const auto r = run_tool(call);
    EXPECT_EQ(r.code, exit_code(errc::invalid_argument))
        << testing::PrintToString(call);
    EXPECT_EQ(r.out, "");
    EXPECT_TRUE(r.err.starts_with("lastdoor: ")) << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
  }
}

TEST_F(CliCommands, ErrorsAreJsonObjectsWhenJsonIsAskedFor) {
  acquire("a");
  const auto r =
      run_tool({"acquire", "--locks", locks(), "--resource", "a", "--json"});
  EXPECT_EQ(r.code, exit_code(errc::busy));
  EXPECT_TRUE(r.err.starts_with("lastdoor: busy on 'a'")) << r.err;
  const json e = json::parse(r.out).at("error");
  EXPECT_EQ(e.at("code"), "busy");
  EXPECT_EQ(e.at("resource"), "a");
  EXPECT_TRUE(e.at("presented").is_string());
  EXPECT_TRUE(e.at("seen").is_string());
  EXPECT_TRUE(e.at("retry_after_ms").is_number());
  for (const std::vector<std::string>& call :
       {std::vector<std::string>{"frob"}, {"migrate", "frob"}}) {
    EXPECT_NE(run_tool(call).err.find("'frob'"), std::string::npos);
  }
  // Also when the command line itself is wrong.
  EXPECT_EQ(
      json::parse(run_tool({"acquire", "--json"}).out).at("error").at("code"),
      "invalid_argument");
}

TEST_F(CliCommands, NoOutputEverShowsAPassword) {
  // Refused before anything is sent: the database is no number.
  const std::string secret = "redis://user:hunter2@host:6379/x";
  const std::vector<std::vector<std::string>> calls = {
      {"acquire", "--locks", secret, "--resource", "a", "--json"},
      {"status", "--store", secret},
      {"migrate", "up", "--store", secret},
      {"demo", "--locks", secret, "--seconds", "1"},
      {"acquire", secret},  // a word too many: the parser quotes it
      {"acquire", "--locks", "sqlite:a", "--ttl", secret, "--resource", "a"}};
  for (const auto& call : calls) {
    const auto r = run_tool(call);
    EXPECT_EQ(r.code, exit_code(errc::invalid_argument)) << r.err;
    EXPECT_EQ((r.out + r.err).find("hunter2"), std::string::npos)
        << r.out << r.err;
  }
}

TEST_F(CliCommands, HelpAndVersionGoToStdout) {
  const auto help = run_tool({"--help"});
  EXPECT_EQ(help.code, 0);
  EXPECT_NE(help.out.find("203  lease_lost"), std::string::npos);
  EXPECT_EQ(help.out.find("demo-worker"), std::string::npos);
  const auto codes = run_tool({"help", "exit-codes"});
  EXPECT_EQ(codes.out, cli::exit_codes_text());
  EXPECT_TRUE(run_tool({"--version"}).out.starts_with("lastdoor "));
}

// ---- migrate, handover -----------------------------------------------------

TEST_F(CliCommands, MigrateUpStatusVerifyDown) {
  const json up = answer({"migrate", "up", "--store", store()});
  ASSERT_FALSE(up.at("applied").empty());
  EXPECT_TRUE(
      answer({"migrate", "up", "--store", store()}).at("applied").empty());
  const json status = answer({"migrate", "status", "--store", store()});
  for (const json& m : status.at("migrations")) {
    EXPECT_EQ(m.at("applied"), true);
    EXPECT_EQ(m.at("checksum_matches"), true);
  }
  EXPECT_TRUE(answer({"migrate", "verify", "--store", store()})
                  .at("differences")
                  .empty());
  const json down =
      answer({"migrate", "down", "--store", store(), "--to", "0"});
  EXPECT_EQ(down.at("taken_back").size(), up.at("applied").size());
}

TEST_F(CliCommands, MigrateVerifyFindsWhatWasTakenAway) {
  migrate();
  sql_script("DROP TABLE lastdoor_presented", "shop.db");
  const json found = answer({"migrate", "verify", "--store", store()},
                            exit_code(errc::schema_mismatch));
  EXPECT_FALSE(found.at("differences").empty());
  const auto text = run_tool({"migrate", "verify", "--store", store()});
  EXPECT_NE(text.err.find("lastdoor_presented"), std::string::npos);
}

TEST_F(CliCommands, MarksAreDiscardedOnlyWithThePathTypedAgain) {
  migrate();
  run_tool({"run", "--locks", locks(), "--store", store(), "--resource", "a",
            "--", "true"});
  const std::vector<std::string> down{"migrate", "down", "--store",
                                      store(),   "--to", "0"};
  const auto with = [&](const std::string& path) {
    auto call = down;
    call.insert(call.end(), {"--discard-marks", path});
    return call;
  };
  EXPECT_NE(run_tool(down).code, 0);
  EXPECT_EQ(run_tool(with("yes")).code, exit_code(errc::invalid_argument));
  EXPECT_EQ(run_tool(with("shop.db")).code, exit_code(errc::invalid_argument));
  EXPECT_EQ(answer({"status", "--store", store()}).at("resources").size(), 1U);
  EXPECT_EQ(run_tool(with(folder_ / "shop.db")).code, 0);
}

TEST_F(CliCommands, C08_ADryRunIsSqlThatDoesWhatAddFenceDoes) {
  const std::vector<std::string> names{"Order", "a b", "x\"y",
                                       "t); DROP TABLE victim; --"};
  for (const std::string& name : names) {
    const temp_folder here;
    std::vector<std::string> schemas;
    for (const std::string file : {"dry.db", "wet.db"}) {
      const std::string at = "sqlite:" + (here / file);
      answer({"migrate", "up", "--store", at});
      auto db = sqlite_driver::connection::open(
                    here / file, sqlite_driver::open_mode::existing)
                    .value();
      db.exec(
            "CREATE TABLE victim (id INTEGER PRIMARY KEY);"
            "CREATE TABLE " +
                sqlite_driver::quoted_name(name) +
                " (id INTEGER PRIMARY KEY, v TEXT)",
            "a test's SQL")
          .value();
      std::vector<std::string> call{"migrate", "add-fence", "--store",
                                    at,        "--table",   name,
                                    "--guard", "strict"};
      if (file == "dry.db") {
        call.emplace_back("--dry-run");
        const auto plan = run_tool(call);
        ASSERT_EQ(plan.code, 0) << plan.err;
        EXPECT_NE(plan.out.find("BEGIN IMMEDIATE;\n"), std::string::npos);
        EXPECT_TRUE(plan.out.ends_with("COMMIT;\n"));
        db.exec(plan.out, "the plan").value();
      } else {
        EXPECT_EQ(answer(call).at("table"), name);
      }
      auto dump = db.prepare(
                        "SELECT group_concat(sql, ';') FROM (SELECT sql FROM "
                        "sqlite_schema WHERE sql NOT NULL ORDER BY name)",
                        "a test's SQL")
                      .value();
      ASSERT_TRUE(dump.step("a test's SQL").value());
      schemas.push_back(dump.text(0));
      EXPECT_NE(schemas.back().find("fence_token"), std::string::npos);
      EXPECT_NE(schemas.back().find("victim"), std::string::npos);
    }
    EXPECT_EQ(schemas[0], schemas[1]) << name;
  }
}

TEST_F(CliCommands, C08_WhatCannotBeFencedIsRefused) {
  migrate();
  sql_script(
      "CREATE TABLE t (id INTEGER PRIMARY KEY);"
      "CREATE VIEW v AS SELECT * FROM t",
      "shop.db");
  for (const char* table : {"v", "absent", "sqlite_schema", ""}) {
    const auto r = run_tool(
        {"migrate", "add-fence", "--store", store(), "--table", table});
    EXPECT_GT(r.code, 200) << table;
    EXPECT_TRUE(r.err.starts_with("lastdoor: ")) << r.err;
  }
}

TEST_F(CliCommands, HandoverRaisesTheNewSourceAboveEveryMark) {
  migrate();
  const auto run_under = [&](const std::string& service) {
    return run_tool({"run", "--locks", service, "--store", store(),
                     "--resource", "a", "--", "true"})
        .code;
  };
  for (int i = 0; i < 5; ++i) {
    ASSERT_EQ(run_under(locks()), 0);
  }
  const std::string next = url("next.db?namespace=next");
  EXPECT_EQ(run_under(next), exit_code(errc::wrong_source));
  // The target is typed twice; a mistake stops before anything is changed.
  answer({"handover", "--store", store(), "--locks", next, "--from",
          "sqlite/default", "--to", "sqlite/default"},
         exit_code(errc::invalid_argument));
  const json typo = answer({"handover", "--store", store(), "--locks", next,
                            "--from", "sqlite/defualt", "--to", "sqlite/next"},
                           exit_code(errc::missing));
  EXPECT_NE(typo.dump().find("'sqlite/default'"), std::string::npos);
  const json done = answer({"handover", "--store", store(), "--locks", next,
                            "--from", "sqlite/default", "--to", "sqlite/next"});
  EXPECT_EQ(done.at("marks"), 1);
  EXPECT_EQ(run_under(next), 0);
  EXPECT_EQ(run_under(locks()), exit_code(errc::wrong_source));
  const json held = answer(
      {"acquire", "--locks", next, "--resource", "another", "--ttl", "60s"});
  EXPECT_GT(std::stoll(held.at("token").get<std::string>()),
            std::stoll(done.at("floor").get<std::string>()));
}

}  // namespace
}  // namespace lastdoor
