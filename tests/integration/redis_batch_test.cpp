// Runs of one script that travel as one, on a real server.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "drivers/redis_script.hpp"
#include "support/redis_loop_fixture.hpp"
#include "support/tcp_proxy.hpp"

namespace {

using namespace std::chrono_literals;
using namespace lastdoor::redis_driver;
using namespace lastdoor::redis_driver::testing;
using lastdoor::errc;
using lastdoor::detail::embedded_text;
using lastdoor::support::tcp_proxy;
using ::testing::HasSubstr;

// A hash that the server does not know yet.
const embedded_text pushes{
    "local answers = {} "
    "for i = 1, #KEYS do "
    "  answers[i] = redis.pcall('RPUSH', KEYS[i], ARGV[1] .. ARGV[1 + i]) "
    "end "
    "return answers",
    "2222222222222222222222222222222222222222"};
const embedded_text no_list{"return 1",
                            "1111111111111111111111111111111111111111"};

class RedisBatch : public redis_loop_test {
 protected:
  using head = std::shared_ptr<const script_head>;

  static head named(const char* name, const embedded_text& script = pushes) {
    return std::make_shared<script_head>(script_head{&script, {}, {name}});
  }
  static script_call push(const head& of, std::string_view key,
                          std::string_view value) {
    return {of, std::make_shared<script_part>(script_part{{key}, {value}})};
  }
  void SetUp() override {
    redis_loop_test::SetUp();
    if (!IsSkipped()) {
      talk_to(to(server().url()));
    }
  }
  void talk_to(const node_options& options) {
    here_.reset();
    loop_ = new_loop();
    node_ = &loop_->add(options);
    here_.emplace(*loop_);
    ASSERT_EQ(connect(here(), n()), node::condition::ready);
  }
  session& here() { return *here_; }
  node& n() { return *node_; }
  // Sends all of them by text, so that the server need not know the script.
  void send(std::vector<script_call>& all) {
    for (auto& c : all) {
      c.by_text().send(here(), n());
    }
  }
  bool wait(std::vector<script_call>& all) {
    return here().wait(
        [&] {
          return std::all_of(all.begin(), all.end(), [&](auto& c) {
            return c.state() != fate::pending;
          });
        },
        in(10s));
  }
  std::string list(const std::string& key) {
    return server().say({"LRANGE", key, "0", "-1"});
  }

 private:
  std::unique_ptr<loop> loop_;
  node* node_{nullptr};
  std::optional<session> here_;
};

TEST_F(RedisBatch, RunsOfOneScriptTravelAsOneAndGetTheirOwnAnswers) {
  server().say({"RPUSH", "b", "x", "x"});
  const auto a = named("a");
  std::vector<script_call> all{push(a, "a", "1"), push(a, "b", "2"),
                               push(a, "a", "3")};
  send(all);
  ASSERT_TRUE(wait(all));
  EXPECT_EQ(all[0].answer().integer(), 1);
  EXPECT_EQ(all[1].answer().integer(), 3);
  EXPECT_EQ(all[2].answer().integer(), 2);
  EXPECT_EQ(server().calls("eval"), 1);
  EXPECT_EQ(list("a"), "a1,a3");
}

TEST_F(RedisBatch, R12_EachRunOfAnUnknownScriptIsSentByItsText) {
  const auto a = named("a");
  std::vector<script_call> all{push(a, "a", "1"), push(a, "b", "2")};
  for (auto& c : all) {
    c.send(here(), n());
  }
  EXPECT_TRUE(here().wait(
      [&] {
        return std::count_if(all.begin(), all.end(),
                             [&](auto& c) { return c.step(here()); }) == 2;
      },
      in(10s)));
  EXPECT_EQ(all[0].answer().integer(), 1);
  EXPECT_EQ(all[1].answer().integer(), 1);
  EXPECT_EQ(list("b"), "a2");
}

TEST_F(RedisBatch, OvertakesOnlyWhatHasAnotherSubject) {
  const auto a = named("a");
  const auto b = named("b");
  std::vector<script_call> all{push(a, "x", "1"), push(b, "y", "2"),
                               push(a, "z", "3"), push(b, "x", "4"),
                               push(a, "x", "5"), push(b, "x", "6")};
  send(all);
  ASSERT_TRUE(wait(all));
  EXPECT_EQ(list("x"), "a1,b4,a5,b6");
  EXPECT_EQ(server().calls("eval"), 4) << "1 with 3, 2 with 4, then 5, then 6";
}

TEST_F(RedisBatch, OvertakesNothingOfItsOwnSubject) {
  const auto a = named("a");
  const auto b = named("b");
  std::vector<script_call> all{push(a, "x", "1"), push(b, "x", "2"),
                               push(a, "x", "3")};
  send(all);
  ASSERT_TRUE(wait(all));
  EXPECT_EQ(list("x"), "a1,b2,a3");
}

TEST_F(RedisBatch, OvertakesNoOtherCommand) {
  const auto a = named("a");
  auto first = push(a, "x", "1");
  first.by_text().send(here(), n());
  n().send(here(), {"RPUSH", "y", "2"});
  std::vector<script_call> all{push(a, "y", "3")};
  send(all);
  ASSERT_TRUE(wait(all));
  EXPECT_EQ(list("y"), "2,a3");
}

TEST_F(RedisBatch, ServerIsNotKeptByMoreThan64AtOnce) {
  const auto a = named("a");
  std::vector<script_call> all;
  for (int i = 0; i < 65; ++i) {
    all.push_back(push(a, "x", std::to_string(i)));
  }
  send(all);
  ASSERT_TRUE(wait(all));
  EXPECT_EQ(all.back().answer().integer(), 65);
  EXPECT_EQ(server().calls("eval"), 2);
}

TEST_F(RedisBatch, ErrorOfOneRunIsNotAnothers) {
  server().say({"SET", "text", "1"});
  const auto a = named("a");
  std::vector<script_call> all{push(a, "text", "1"), push(a, "b", "2")};
  send(all);
  ASSERT_TRUE(wait(all));
  EXPECT_TRUE(all[0].answer().is_error());
  EXPECT_THAT(std::string{all[0].answer().text()}, HasSubstr("WRONGTYPE"));
  EXPECT_EQ(all[1].answer().integer(), 1);
}

TEST_F(RedisBatch, ErrorOfTheWholeIsTheErrorOfEach) {
  const embedded_text broken{"error('no')", ""};
  const auto a = named("a", broken);
  std::vector<script_call> all{push(a, "x", "1"), push(a, "y", "2")};
  send(all);
  ASSERT_TRUE(wait(all));
  EXPECT_TRUE(all[0].answer().is_error());
  EXPECT_TRUE(all[1].answer().is_error());
  EXPECT_EQ(n().now(), node::condition::ready);
}

// The server looks at the rights to all keys of a call before it runs it.
TEST_F(RedisBatch, RunThatIsForbiddenIsRefusedAlone) {
  server().say({"ACL", "SETUSER", "half", "on", ">p", "~mine*", "+@all"});
  talk_to(to("redis+unix://half:p@" + server().socket()));
  const auto a = named("a");
  std::vector<script_call> all{push(a, "mine", "1"), push(a, "theirs", "2"),
                               push(a, "mine", "3")};
  send(all);
  EXPECT_TRUE(here().wait(
      [&] {
        return std::count_if(all.begin(), all.end(),
                             [&](auto& c) { return c.step(here()); }) == 3;
      },
      in(10s)));
  EXPECT_EQ(all[0].answer().integer(), 1);
  EXPECT_TRUE(all[1].answer().text().starts_with("NOPERM"));
  EXPECT_FALSE(all[1].sent()->refused_together());
  EXPECT_EQ(all[2].answer().integer(), 2);
  EXPECT_EQ(server().say({"LLEN", "mine"}), "2");
}

TEST_F(RedisBatch, ScriptWithoutAListEndsTheConnection) {
  const auto a = named("a", no_list);
  std::vector<script_call> all{push(a, "x", "1"), push(a, "y", "2")};
  send(all);
  ASSERT_TRUE(wait(all));
  EXPECT_EQ(all[0].state(), fate::unknown);
  EXPECT_EQ(all[1].state(), fate::unknown);
  EXPECT_EQ(n().trouble().code(), errc::misconfigured);
}

TEST_F(RedisBatch, WhatWasWithdrawnDoesNotTravel) {
  const auto a = named("a");
  std::vector<script_call> all{push(a, "x", "1"), push(a, "y", "2"),
                               push(a, "z", "3")};
  send(all);
  EXPECT_EQ(all[0].withdraw(here()), fate::not_sent);
  ASSERT_TRUE(wait(all));
  EXPECT_EQ(server().say({"EXISTS", "x"}), "0");
  EXPECT_EQ(list("y"), "a2");
  EXPECT_EQ(list("z"), "a3");
}

TEST_F(RedisBatch, LostConnectionLeavesEachUnknown) {
  tcp_proxy between{server().port()};
  talk_to(to(between.redis_url()));
  between.hold_replies(true);
  const auto a = named("a");
  std::vector<script_call> all{push(a, "x", "1"), push(a, "y", "2")};
  send(all);
  here().wait([] { return false; }, in(20ms));
  EXPECT_EQ(all[1].withdraw(here()), fate::unknown) << "it has left";
  between.cut();
  ASSERT_TRUE(wait(all));
  EXPECT_EQ(all[0].state(), fate::unknown);
  EXPECT_EQ(all[1].state(), fate::unknown);
}

TEST_F(RedisBatch, EachRunCountsAsUnansweredUntilItIs) {
  auto options = to(server().url());
  options.most_unanswered = 3;
  talk_to(options);
  const auto a = named("a");
  for (int again = 0; again < 3; ++again) {
    std::vector<script_call> all{push(a, "x", "1"), push(a, "y", "2"),
                                 push(a, "z", "3"), push(a, "w", "4")};
    send(all);
    EXPECT_EQ(all[3].state(), fate::not_sent);
    ASSERT_TRUE(wait(all));
    EXPECT_EQ(all[2].state(), fate::replied);
  }
}

}  // namespace
