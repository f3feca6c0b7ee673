// The tool on a real Postgres: locks and store by URL, migrations, a shell
// inside `lastdoor run`, the demo.
#include <gmock/gmock.h>

#include <nlohmann/json.hpp>

#include "cli/output.hpp"
#include "support/pg_ledger.hpp"

namespace lastdoor::support {
namespace {

using cli::exit_code;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string quoted_name(const std::string& word) {
  std::string out{"'"};
  for (const char c : word) {
    out += c == '\'' ? std::string{"'\\''"} : std::string{c};
  }
  return out += '\'';
}

psql_answer tool(const std::vector<std::string>& words) {
  std::string line{LASTDOOR_TOOL};
  for (const auto& word : words) {
    line += ' ' + quoted_name(word);
  }
  return run_shell(line);
}

// The answer of a call with --json; fails the test if the code is another.
json answer(std::vector<std::string> words, int code = 0) {
  words.emplace_back("--json");
  const auto told = tool(words);
  EXPECT_EQ(told.status, code) << told.text;
  // An error comes as a line on stderr as well.
  return json::parse(
      told.text.substr(std::min(told.text.find('{'), told.text.size())),
      nullptr, false);
}

class CliPostgres : public ::testing::Test {
 protected:
  void SetUp() override {
    LASTDOOR_NEEDS_POSTGRES();
    db_.emplace();
    url_ = db_->url();
  }
  void migrate() { answer({"migrate", "up", "--store", url_}); }
  // A guarded table with one row, whose fence is 0: nobody wrote it yet.
  void guarded_stock() {
    migrate();
    db_->query("CREATE TABLE stock (sku text PRIMARY KEY, qty integer)");
    db_->query("INSERT INTO stock VALUES ('1001', 5)");
    answer({"migrate", "add-fence", "--store", url_, "--table", "stock",
            "--guard", "strict"});
  }
  [[nodiscard]] psql_answer run(const std::string& resource,
                                const std::string& script) const {
    return tool({"run", "--quiet", "--locks", url_, "--store", url_,
                 "--resource", resource, "--", "/bin/sh", "-c", script});
  }

  std::optional<temp_database> db_;
  std::string url_;
};

TEST_F(CliPostgres, MigratesThereAndBack) {
  EXPECT_EQ(answer({"migrate", "up", "--store", url_}).at("applied"),
            json({1, 2}));
  EXPECT_TRUE(answer({"migrate", "up", "--store", url_}).at("applied").empty());
  const json status = answer({"migrate", "status", "--store", url_});
  ASSERT_EQ(status.at("migrations").size(), 2U);
  for (const json& m : status.at("migrations")) {
    EXPECT_EQ(m.at("applied"), true);
    EXPECT_EQ(m.at("checksum_matches"), true);
  }
  EXPECT_TRUE(
      answer({"migrate", "verify", "--store", url_}).at("differences").empty());
  db_->query("DROP FUNCTION lastdoor.bound(integer)");
  const json found = answer({"migrate", "verify", "--store", url_},
                            exit_code(errc::schema_mismatch));
  EXPECT_THAT(found.at("differences").dump(), HasSubstr("bound"));
}

TEST_F(CliPostgres, C06_TenToolsAtOnceAllSucceed) {
  const auto up =
      LASTDOOR_TOOL " migrate up --json --store " + quoted_name(url_);
  const auto told =
      run_shell("for i in 1 2 3 4 5 6 7 8 9 10; do\n" + up +
                " & all=\"$all $!\"\ndone\n"
                "for p in $all; do wait \"$p\" || exit 1; done\n");
  EXPECT_EQ(told.status, 0) << told.text;
  EXPECT_EQ(db_->value("SELECT string_agg(version::text, ' ' ORDER BY version) "
                       "FROM lastdoor.migrations"),
            "1 2");
  EXPECT_TRUE(
      answer({"migrate", "verify", "--store", url_}).at("differences").empty());
}

TEST_F(CliPostgres, DownForgetsMarksOnlyWhenTheUrlIsTypedAgain) {
  migrate();
  ASSERT_EQ(run("a", "true").status, 0);
  const auto down = [&](const std::string& typed) {
    std::vector<std::string> call{"migrate", "down", "--store",
                                  url_,      "--to", "0"};
    if (!typed.empty()) {
      call.insert(call.end(), {"--discard-marks", typed});
    }
    return tool(call).status;
  };
  EXPECT_EQ(down(""), exit_code(errc::precondition_failed));
  EXPECT_EQ(down("yes"), exit_code(errc::invalid_argument));
  EXPECT_EQ(db_->value("SELECT count(*) FROM lastdoor.marks"), "1");
  EXPECT_EQ(down(url_), 0);
  EXPECT_EQ(db_->value("SELECT to_regnamespace('lastdoor') IS NULL"), "t");
}

TEST_F(CliPostgres, C08_ADryRunIsSqlThatDoesWhatAddFenceDoes) {
  migrate();
  db_->query("CREATE SCHEMA s");
  db_->query("CREATE TABLE s.\"a b\" (id integer PRIMARY KEY)");
  std::vector<std::string> call{"migrate", "add-fence", "--store",  url_,
                                "--table", "a b",       "--schema", "s",
                                "--guard", "strict",    "--dry-run"};
  const auto script = tool(call);
  ASSERT_EQ(script.status, 0) << script.text;
  EXPECT_EQ(db_->value("SELECT count(*) FROM pg_attribute WHERE attname = "
                       "'fence_token' AND attrelid = 's.\"a b\"'::regclass"),
            "0");
  const auto applied = psql(url_, script.text);
  ASSERT_EQ(applied.status, 0) << applied.text << script.text;
  EXPECT_THAT(tool(call).text, HasSubstr("nothing to do"));
  call.pop_back();
  EXPECT_TRUE(answer(call).at("statements").empty());
  EXPECT_THAT(psql(url_, "INSERT INTO s.\"a b\" VALUES (1);").text,
              HasSubstr("LD002"));
}

TEST_F(CliPostgres, AcquiresReleasesAndTells) {
  migrate();
  const json first = answer({"acquire", "--locks", url_, "--resource", "r",
                             "--ttl", "10m", "--holder", "a test"});
  EXPECT_EQ(first.at("source"), "postgres/default");
  const json busy = answer({"acquire", "--locks", url_, "--resource", "r"},
                           exit_code(errc::busy));
  EXPECT_THAT(busy.at("error").dump(), HasSubstr("a test"));
  const json now =
      answer({"status", "--locks", url_, "--resource", "r"}).at("resources");
  EXPECT_EQ(now.at(0).at("held"), true);
  EXPECT_EQ(now.at(0).at("last_token"), first.at("token"));
  answer({"release", "--locks", url_, "--resource", "r", "--owner",
          std::string(40, 'f')},
         exit_code(errc::not_owner));
  answer({"release", "--locks", url_, "--resource", "r", "--owner",
          first.at("owner")});
  // A namespace is a token source of its own, wherever it stands in the URL.
  const auto other = url_ + "&namespace=two&connect_timeout=5";
  const json second = answer({"acquire", "--locks", other, "--resource", "r"});
  EXPECT_EQ(second.at("source"), "postgres/two");
  answer({"migrate", "status", "--store", other},
         exit_code(errc::invalid_argument));
}

TEST_F(CliPostgres, LocksWithoutMigrationsSayWhatToDo) {
  const json refused = answer({"acquire", "--locks", url_, "--resource", "r"},
                              exit_code(errc::schema_mismatch));
  EXPECT_THAT(refused.dump(), HasSubstr("migrate up"));
}

// What the README tells people to do with a shell.
TEST_F(CliPostgres, F13_AShellInsideRunMayWriteAndOneOutsideMayNot) {
  guarded_stock();
  const std::string sql =
      "BEGIN;\n"
      "SET LOCAL lastdoor.resource = :'resource';\n"
      "SET LOCAL lastdoor.token = :'token';\n"
      "UPDATE stock SET qty = qty - 1 WHERE sku = '1001';\n"
      "COMMIT;\n";
  const auto shell =
      "psql -X -q -v ON_ERROR_STOP=1 -v VERBOSITY=verbose "
      "-v resource=\"$LASTDOOR_RESOURCE\" -v token=\"$LASTDOOR_TOKEN\" '" +
      url_ + "' <<'END'\n" + sql + "END\n";
  const auto row = "SELECT qty || '/' || fence_token FROM stock";

  const auto outside = run_shell(shell);
  EXPECT_NE(outside.status, 0);
  EXPECT_THAT(outside.text, HasSubstr("LD002"));
  EXPECT_EQ(db_->value(row), "5/0");

  const auto inside = run("stock", shell);
  EXPECT_EQ(inside.status, 0) << inside.text;
  const auto mark = db_->value("SELECT token FROM lastdoor.marks");
  EXPECT_EQ(db_->value(row), "4/" + mark);

  // A command that outlived its lock: the next holder has been here.
  const auto late = run("stock",
                        "echo \"export LASTDOOR_RESOURCE=$LASTDOOR_RESOURCE "
                        "LASTDOOR_TOKEN=$LASTDOOR_TOKEN\"");
  ASSERT_EQ(late.status, 0) << late.text;
  ASSERT_EQ(run("stock", "true").status, 0);
  const auto stale = run_shell(late.text + shell);
  EXPECT_NE(stale.status, 0);
  EXPECT_THAT(stale.text, HasSubstr("LD001"));
  EXPECT_EQ(db_->value(row), "4/" + mark);
}

TEST_F(CliPostgres, RunWithoutTheStoresTablesStartsNothing) {
  const temp_database bare;
  migrate();
  const auto told = tool({"run", "--locks", url_, "--store", bare.url(),
                          "--resource", "r", "--", "echo", "started"});
  EXPECT_EQ(told.status, exit_code(errc::schema_mismatch)) << told.text;
  EXPECT_THAT(told.text, Not(HasSubstr("started\n")));
}

TEST_F(CliPostgres, HandoverRaisesTheNewSourceAndRefusesTheOld) {
  guarded_stock();
  ASSERT_EQ(run("stock", "true").status, 0);
  const auto next = url_ + "&namespace=next";
  const json done =
      answer({"handover", "--store", url_, "--locks", next, "--from",
              "postgres/default", "--to", "postgres/next"});
  EXPECT_EQ(done.at("marks"), 1);
  EXPECT_EQ(run("stock", "true").status, exit_code(errc::wrong_source));
  EXPECT_EQ(tool({"run", "--quiet", "--locks", next, "--store", url_,
                  "--resource", "stock", "--", "true"})
                .status,
            0);
}

TEST_F(CliPostgres, NoOutputShowsAPassword) {
  const auto secret =
      "postgresql://postgres:hunter2@127.0.0.1:" + std::to_string(free_port()) +
      "/nowhere?password=hunter2&namespace=";
  for (const auto& [tail, code] :
       {std::pair{"", errc::invalid_argument},
        std::pair{"a", errc::unavailable},
        std::pair{"a&no_such_setting=1", errc::invalid_argument}}) {
    const auto told = tool(
        {"acquire", "--locks", secret + tail, "--resource", "r", "--json"});
    EXPECT_EQ(told.status, exit_code(code)) << told.text;
    EXPECT_THAT(told.text, Not(HasSubstr("hunter2")));
  }
}

class CliPostgresDemo : public CliPostgres {};

TEST_F(CliPostgresDemo, X01_TheLockAloneLosesUnitsAndTheFenceNone) {
  migrate();
  const json told = answer({"demo", "--seconds", "1", "--seed", "1", "--locks",
                            url_, "--store", url_});
  EXPECT_EQ(told.at("verdict"), "shown");
  const json& lock_only = told.at("rounds").at(0);
  const json& fenced = told.at("rounds").at(1);
  EXPECT_EQ(lock_only.at("failures"), 0) << lock_only.dump();
  EXPECT_EQ(fenced.at("failures"), 0) << fenced.dump();
  EXPECT_GT(lock_only.at("units_off"), 0);
  EXPECT_EQ(fenced.at("units_off"), 0);
  EXPECT_GT(fenced.at("late_writes").at("refused_by_store"), 0);
  EXPECT_EQ(db_->value("SELECT count(*) FROM pg_class WHERE relname LIKE "
                       "'demo\\_lastdoor%'"),
            "0");
}

TEST_F(CliPostgresDemo, TablesOfTheSameNameAreNotTouched) {
  migrate();
  db_->query("CREATE TABLE demo_lastdoor_orders (mine integer)");
  EXPECT_EQ(tool({"demo", "--seconds", "1", "--store", url_}).status,
            exit_code(errc::precondition_failed));
  EXPECT_EQ(db_->value("SELECT count(mine) FROM demo_lastdoor_orders"), "0");
}

}  // namespace
}  // namespace lastdoor::support
