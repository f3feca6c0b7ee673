#include "drivers/redis_reply.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <string>

namespace {

using lastdoor::errc;
using namespace lastdoor::redis_driver;
using ::testing::HasSubstr;
using ::testing::Not;

// An answer as the protocol has it.
class parsed {
 public:
  explicit parsed(const std::string& wire) : reader_{redisReaderCreate()} {
    redisReaderFeed(reader_, wire.data(), wire.size());
    void* answer = nullptr;
    redisReaderGetReply(reader_, &answer);
    answer_ = reply{static_cast<redisReply*>(answer)};
  }
  parsed(const parsed&) = delete;
  parsed& operator=(const parsed&) = delete;
  ~parsed() { redisReaderFree(reader_); }
  [[nodiscard]] reply_view view() const { return answer_.view(); }

 private:
  redisReader* reader_;
  reply answer_;
};

errc code_of_text(const std::string& text) {
  const parsed p{"-" + text + "\r\n"};
  return server_error(p.view(), "acquiring").code();
}

// R13
TEST(RedisErrors, R13_StatesOfTheServerAreUnavailable) {
  for (const auto* text : {
           "READONLY You can't write against a read only replica.",
           "LOADING Redis is loading the dataset in memory",
           "BUSY Redis is busy running a script. You can only call SCRIPT KILL",
           "OOM command not allowed when used memory > 'maxmemory'.",
           "MISCONF Redis is configured to save RDB snapshots, but it's",
           "NOREPLICAS Not enough good replicas to write.",
           "MASTERDOWN Link with MASTER is down",
           "CLUSTERDOWN Hash slot not served",
           "TRYAGAIN Multiple keys request during rehashing of slot",
           "ERR max number of clients reached",
       }) {
    EXPECT_EQ(code_of_text(text), errc::unavailable) << text;
  }
}

TEST(RedisErrors, RightsAndSettingsAreMisconfigured) {
  for (const auto* text : {
           "NOAUTH Authentication required.",
           "WRONGPASS invalid username-password pair or user is disabled.",
           "NOPERM this user has no permissions to run the 'evalsha' command",
           "WRONGTYPE Operation against a key holding the wrong kind of value",
           "CROSSSLOT Keys in request don't hash to the same slot",
           "MOVED 3999 127.0.0.1:6381",
           "ASK 3999 127.0.0.1:6381",
           "DENIED Redis is running in protected mode",
           "ERR unknown command 'EVALSHA'",
       }) {
    EXPECT_EQ(code_of_text(text), errc::misconfigured) << text;
  }
}

// Servers before 7.0 wrap an error that a script met.
TEST(RedisErrors, TheWordIsFoundInsideAScriptsError) {
  EXPECT_EQ(error_word("ERR Error running script (call to f_5b1c): "
                       "@user_script:12: @user_script: 12: -OOM command not "
                       "allowed when used memory > 'maxmemory'."),
            "OOM");
  EXPECT_EQ(error_word("ERR Error running script (call to f_5b1c): "
                       "@user_script:7: WRONGTYPE Operation against a key"),
            "WRONGTYPE");
  EXPECT_EQ(error_word("ERR Error running script (call to f_5b1c): "
                       "@user_script:7: user_script:7: attempt to index"),
            "ERR");
  EXPECT_EQ(error_word("@user_script: 12: -READONLY You can't write against a "
                       "read only replica.  "),
            "READONLY");
  EXPECT_EQ(error_word("ERR Error running script (call to f_5b1c): "
                       "@user_script:1: @user_script: 1: The user executing "
                       "the script can't run this command or subcommand"),
            "NOPERM");
  // Only there: another text may quote what it was sent.
  EXPECT_EQ(error_word("ERR unknown command 'X', with args: 'OOM'"), "ERR");
}

TEST(RedisErrors, ArgumentsAreNotRepeatedInMessages) {
  const parsed p{
      "-ERR unknown command `EVALSHA`, with args beginning with: `geheim` "
      "\r\n"};
  const auto e = server_error(p.view(), "acquiring");
  EXPECT_THAT(e.message(), Not(HasSubstr("geheim")));
  EXPECT_THAT(e.message(), HasSubstr("EVALSHA"));
  EXPECT_EQ(e.backend(), "ERR");
}

TEST(RedisReply, WrongQuestionsHaveHarmlessAnswers) {
  const parsed list{"*2\r\n:7\r\n$-1\r\n"};
  EXPECT_EQ(list.view().size(), 2U);
  EXPECT_EQ(list.view()[0].integer(), 7);
  EXPECT_TRUE(list.view()[1].is_nil());
  EXPECT_TRUE(list.view()[2].is_nil());
  EXPECT_EQ(list.view().text(), "");
  EXPECT_EQ(list.view().integer(), 0);
  EXPECT_EQ(list.view()[0].text(), "");
  EXPECT_EQ(list.view()[0][0].size(), 0U);
}

TEST(RedisReply, TextMayHoldAnyBytes) {
  const parsed p{std::string{"$3\r\na\0b\r\n", 9}};
  EXPECT_EQ(p.view().text(), (std::string_view{"a\0b", 3}));
}

TEST(RedisInfo, FieldsAreFoundByTheirWholeName) {
  constexpr std::string_view info =
      "# Server\r\nredis_version:7.0.15\r\nmy_run_id:no\r\nrun_id:abc\r\n"
      "empty:\r\nlast:1";
  EXPECT_EQ(info_field(info, "run_id"), "abc");
  EXPECT_EQ(info_field(info, "last"), "1");
  EXPECT_EQ(info_field(info, "empty"), "");
  EXPECT_EQ(info_field(info, "run"), "");
  EXPECT_EQ(info_field("", "run_id"), "");
}

}  // namespace
