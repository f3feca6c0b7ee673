// Each rule is shown a sample that breaks it and must name it, and a sample
// beside it that is right and must be left alone.
#include "tidy/rules.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::Field;
using testing::HasSubstr;
using testing::IsEmpty;
using tidy::finding;
using tidy::source_file;
using tidy::tree;

// A tree in which only what a test adds can be wrong.
tree sound_tree() {
  return {
      {"CMakeLists.txt", "project(\n  x\n  VERSION 1.2.3\n)\n"},
      {"CHANGELOG.md", "# Changes\n\n## [1.2.3] - unreleased\n\n## [1.2.2]\n"},
      {"src/CMakeLists.txt",
       "f(token.hpp clock.hpp version.hpp fencing/a.cpp locks/clock.cpp\n"
       "  migrations/sqlite/0001_one.up.sql)\n"},
      {"tests/CMakeLists.txt", "t(unit/a_test.cpp) # unit/b_test.cpp\n"},
      {"tests/compile_fail/CMakeLists.txt", "set(cases wrong_use)\n"},
  };
}

tidy::findings check_with(const source_file& file) {
  tree files = sound_tree();
  files.push_back(file);
  return tidy::check(files);
}

std::string repeat(const std::string& what, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) {
    all += what;
  }
  return all;
}

testing::Matcher<finding> finding_of(const std::string& rule, int line,
                                     const std::string& what = "") {
  return AllOf(Field("rule", &finding::rule, rule),
               Field("line", &finding::line, line),
               Field("what", &finding::what, HasSubstr(what)));
}

TEST(Tidy, SoundTreeHasNoFindings) {
  EXPECT_THAT(tidy::check(sound_tree()), IsEmpty());
}

TEST(Tidy, NamesALineWiderThan80Columns) {
  const std::string fits = "//" + std::string(78, '-');
  EXPECT_THAT(check_with({"src/fencing/a.cpp", "\n" + fits + "\n"}), IsEmpty());
  EXPECT_THAT(check_with({"src/fencing/a.cpp", "\n" + fits + "-\n"}),
              ElementsAre(finding_of("form", 2, "80 columns")));
}

TEST(Tidy, NamesSpaceAtTheEndOfALine) {
  EXPECT_THAT(check_with({"cmake/x.cmake", "set(a) \n"}),
              ElementsAre(finding_of("form", 1, "space at the end")));
}

TEST(Tidy, NamesCharactersThatAreNotPlainAscii) {
  EXPECT_THAT(check_with({"src/fencing/a.cpp", "int a;\n// \xc3\xa9\n"}),
              ElementsAre(finding_of("form", 2, "ASCII")));
  EXPECT_THAT(check_with({"src/fencing/a.cpp", "\tint a;\n"}),
              ElementsAre(finding_of("form", 1, "ASCII")));
  EXPECT_THAT(check_with({"README.md", "\xc3\xa9\n"}), IsEmpty());
}

TEST(Tidy, NamesAPublicHeaderOfMoreThan300Lines) {
  const std::string path = "include/lastdoor/token.hpp";
  EXPECT_THAT(check_with({path, repeat("\n", 300)}), IsEmpty());
  EXPECT_THAT(check_with({path, repeat("\n", 301)}),
              ElementsAre(finding_of("file_length", 0, "301 lines")));
}

TEST(Tidy, NamesASourceOfMoreThan500Lines) {
  const std::string path = "src/fencing/a.cpp";
  EXPECT_THAT(check_with({path, repeat("\n", 500)}), IsEmpty());
  EXPECT_THAT(check_with({path, repeat("\n", 501)}),
              ElementsAre(finding_of("file_length", 0, "501 lines")));
}

// The opening line of a function is line 1 of its length.
source_file function_of(const std::string& opening, int lines) {
  return {"src/fencing/a.cpp",
          "namespace n {\n" + opening + repeat("\n", lines - 1) + "}\n}\n"};
}

TEST(Tidy, NamesAFunctionOfMoreThan70Lines) {
  for (const char* opening :
       {"void f() {", "int f() const noexcept {", "auto f() -> result<int> {",
        "x::x() : a_(1), b_{2} {", "TEST(A, B) {"}) {
    EXPECT_THAT(check_with(function_of(opening, 70)), IsEmpty()) << opening;
    EXPECT_THAT(check_with(function_of(opening, 71)),
                ElementsAre(finding_of("function_length", 2, "71 lines")))
        << opening;
  }
}

TEST(Tidy, DoesNotTakeAClassForAFunction) {
  EXPECT_THAT(check_with(function_of("class x final : y {", 90)), IsEmpty());
}

TEST(Tidy, DoesNotCountBracesInTextAndComments) {
  const source_file file{"src/fencing/a.cpp",
                         "void f() {\n  g(\"}{\", '{', R\"x({)\")x\");  // {\n"
                         "  /* { */\n}\n" +
                             repeat("\n", 90) + "void g() {\n}\n"};
  EXPECT_THAT(check_with(file), IsEmpty());
}

TEST(Tidy, NamesLeftOverMarkers) {
  for (const char* marker : {"TODO", "FIXME", "XXX", "HACK"}) {
    EXPECT_THAT(check_with({"README.md", std::string("\n") + marker + "\n"}),
                ElementsAre(finding_of("marker", 2, marker)));
  }
  EXPECT_THAT(check_with({"README.md", "mastodont TODOS XXXL\n"}), IsEmpty());
}

TEST(Tidy, NamesPathsOfOneMachine) {
  for (const char* path : {"/work/x", "\"/root/x\"", "see /home/me"}) {
    EXPECT_THAT(check_with({"scripts.md", std::string(path) + "\n"}),
                ElementsAre(finding_of("machine_path", 1)))
        << path;
  }
  EXPECT_THAT(check_with({"scripts.md", "a/work/b ../root/c ./home/d\n"}),
              IsEmpty());
}

TEST(Tidy, NamesADriverInAPublicHeaderOrInFencing) {
  for (const char* driver : {"<sqlite3.h>", "<pqxx/pqxx>", "<libpq-fe.h>",
                             "\"hiredis/hiredis.h\""}) {
    const std::string text = std::string("#include ") + driver + "\n";
    for (const char* path :
         {"include/lastdoor/token.hpp", "src/fencing/a.cpp"}) {
      EXPECT_THAT(check_with({path, text}),
                  ElementsAre(finding_of("driver", 1)))
          << path << ' ' << driver;
    }
    EXPECT_THAT(check_with({"src/locks/clock.cpp", text}), IsEmpty());
  }
}

TEST(Tidy, NamesAThreadThatMayTakeTheProgramsSignals) {
  for (const char* text :
       {"std::thread{f}.detach();\n", "member_ = std::jthread( f );\n"}) {
    EXPECT_THAT(check_with({"src/fencing/a.cpp", text}),
                ElementsAre(finding_of("thread", 1)));
    EXPECT_THAT(check_with({"src/drivers/background_thread.hpp", text}),
                IsEmpty());
  }
  EXPECT_THAT(check_with({"src/fencing/a.cpp", "std::thread thread_;\n"}),
              IsEmpty());
}

TEST(Tidy, NamesClocksChanceAndSleepOutsideTheClockFiles) {
  for (const char* call :
       {"std::chrono::system_clock::now();", "std::rand();", "x = rand();",
        "std::this_thread::sleep_for(1s);", "usleep(5);", "std::time(nullptr);",
        "time(nullptr);", "sleep(1);"}) {
    const std::string text = std::string("  ") + call + "\n";
    EXPECT_THAT(check_with({"src/fencing/a.cpp", text}),
                ElementsAre(finding_of("clock", 1)))
        << call;
    EXPECT_THAT(check_with({"src/locks/clock.cpp", text}), IsEmpty()) << call;
    EXPECT_THAT(check_with({"src/fencing/a.cpp", "//" + text}), IsEmpty())
        << call;
  }
  EXPECT_THAT(check_with({"src/fencing/a.cpp", "fake.time(); run_time();\n"}),
              IsEmpty());
}

TEST(Tidy, NamesATestThatNoListNames) {
  EXPECT_THAT(check_with({"tests/unit/a_test.cpp", ""}), IsEmpty());
  EXPECT_THAT(check_with({"tests/unit/c_test.cpp", ""}),
              ElementsAre(finding_of("list", 0, "CMakeLists.txt")));
}

TEST(Tidy, DoesNotTakeACommentForAnEntryOfAList) {
  EXPECT_THAT(check_with({"tests/unit/b_test.cpp", ""}),
              ElementsAre(finding_of("list", 0, "CMakeLists.txt")));
}

TEST(Tidy, NamesASourceThatNoListNames) {
  EXPECT_THAT(check_with({"src/fencing/b.cpp", ""}),
              ElementsAre(finding_of("list", 0, "CMakeLists.txt")));
  EXPECT_THAT(check_with({"tests/compile_fail/wrong_use.cpp", ""}), IsEmpty());
}

TEST(Tidy, NamesAPublicHeaderThatWouldNotBeInstalled) {
  EXPECT_THAT(check_with({"include/lastdoor/version.hpp.in", ""}), IsEmpty());
  EXPECT_THAT(check_with({"include/lastdoor/lease.hpp", ""}),
              ElementsAre(finding_of("list", 0, "src/CMakeLists.txt")));
}

TEST(Tidy, NamesAMigrationThatIsNotEmbedded) {
  tree files = sound_tree();
  files.push_back({"migrations/sqlite/0002_two.up.sql", ""});
  files.push_back({"migrations/sqlite/0002_two.down.sql", ""});
  EXPECT_THAT(tidy::check(files),
              ElementsAre(finding_of("list", 0, "src/CMakeLists.txt")));
}

TEST(Tidy, NamesAMigrationWithoutItsOtherHalf) {
  EXPECT_THAT(check_with({"migrations/sqlite/0001_one.up.sql", ""}),
              ElementsAre(finding_of("migration", 0, "no .down")));
  EXPECT_THAT(check_with({"migrations/sqlite/0001_one.down.sql", ""}),
              ElementsAre(finding_of("migration", 0, "no .up")));
}

TEST(Tidy, NamesAMigrationWithAnOddName) {
  EXPECT_THAT(check_with({"migrations/sqlite/1_one.down.sql", ""}),
              ElementsAre(finding_of("migration", 0, "NNNN_name")));
}

TEST(Tidy, NamesAChangelogOfAnotherVersion) {
  tree files = sound_tree();
  files[1].text = "# Changes\n\n## [1.2.2]\n\n## [1.2.3]\n";
  EXPECT_THAT(tidy::check(files),
              ElementsAre(finding_of("version", 0, "1.2.2")));
  files[1].text = "";
  EXPECT_THAT(tidy::check(files),
              ElementsAre(finding_of("version", 0, "none")));
}

TEST(Tidy, NamesAScriptThatCannotBeRun) {
  EXPECT_THAT(check_with({"scripts/go", "#!/bin/sh\n", true}), IsEmpty());
  EXPECT_THAT(check_with({"scripts/go", "#!/bin/sh\n", false}),
              ElementsAre(finding_of("script", 0, "run bit")));
  EXPECT_THAT(check_with({".ci/run", "echo\n", true}),
              ElementsAre(finding_of("script", 1, "#!")));
}

TEST(Tidy, CodeOnlyBlanksTextButKeepsColumnsAndLines) {
  EXPECT_EQ(tidy::code_only("a \"b\\\"c\" d // e\nf"), "a        d     \nf");
  EXPECT_EQ(tidy::code_only("x /* y\nz */ w"), "x     \n     w");
  EXPECT_EQ(tidy::code_only("1'000 + 'c'"), "1'000 +    ");
  EXPECT_EQ(tidy::code_only("R\"(a\nb)\" c"), "    \n    c");
}

}  // namespace
