// The poll loop and its nodes, on real servers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "drivers/redis_script.hpp"
#include "embedded_redis_scripts.hpp"
#include "embedded_redis_store_scripts.hpp"
#include "support/redis_loop_fixture.hpp"
#include "support/tcp_proxy.hpp"

namespace {

using namespace std::chrono_literals;
using namespace lastdoor::redis_driver;
using namespace lastdoor::redis_driver::testing;
using lastdoor::errc;
using lastdoor::support::eventually;
using lastdoor::support::tcp_proxy;
using ::testing::HasSubstr;
using ::testing::Not;

using RedisDriver = redis_loop_test;

TEST_F(RedisDriver, LateAnswerIsNotTakenForTheNextOnes) {
  tcp_proxy between{server().port()};
  auto loop = new_loop();
  auto& n = loop->add(to(between.redis_url()));
  session here{*loop};
  ASSERT_EQ(connect(here, n), node::condition::ready);
  between.hold_replies(true);
  const auto late = n.send(here, {"ECHO", "late"});
  EXPECT_EQ(here.wait_for_answer(late, in(50ms)), fate::pending);
  EXPECT_EQ(n.withdraw(here, late), fate::unknown);
  between.hold_replies(false);
  EXPECT_EQ(ask(here, n, {"ECHO", "next"}), "next");
  EXPECT_EQ(late->state(), fate::replied) << "and its own caller could see it";
  EXPECT_EQ(between.connections(), 1);
}

TEST_F(RedisDriver, CommandLeftUnansweredTooLongEndsTheConnection) {
  tcp_proxy between{server().port()};
  auto loop = new_loop();
  auto options = to(between.redis_url());
  options.silence_limit = 100ms;
  auto& n = loop->add(options);
  session here{*loop};
  ASSERT_EQ(connect(here, n), node::condition::ready);
  between.hold_replies(true);
  const auto lost = n.send(here, {"ECHO", "lost"});
  EXPECT_EQ(here.wait_for_answer(lost, in(10s)), fate::unknown);
  EXPECT_EQ(n.now(), node::condition::down);
  EXPECT_EQ(n.trouble().code(), errc::unavailable);
  between.hold_replies(false);
  ASSERT_EQ(connect(here, n), node::condition::ready);
  EXPECT_EQ(ask(here, n, {"ECHO", "next"}), "next");
  EXPECT_EQ(between.connections(), 2);
}

// More than the socket takes: what was begun waits for the server as well.
TEST_F(RedisDriver, CommandThatIsNotTakenWholeEndsTheConnection) {
  auto loop = new_loop();
  auto options = to(server().tcp_url());
  options.silence_limit = 300ms;
  auto& n = loop->add(options);
  session here{*loop};
  ASSERT_EQ(connect(here, n), node::condition::ready);
  server().pause();
  const auto big = n.send(here, {"ECHO", std::string(64U << 20U, 'x')});
  EXPECT_EQ(here.wait_for_answer(big, in(10s)), fate::not_sent);
  EXPECT_EQ(n.now(), node::condition::down);
  server().resume();
}

// Nobody drives between two calls. What came meanwhile is read before the
// silence is judged.
TEST_F(RedisDriver, AnswerThatNobodyReadIsNoSilence) {
  tcp_proxy between{server().port()};
  auto loop = new_loop();
  auto options = to(between.redis_url());
  options.silence_limit = 100ms;
  auto& n = loop->add(options);
  ticket unread;
  {
    session here{*loop};
    ASSERT_EQ(connect(here, n), node::condition::ready);
    unread = n.send(here, {"ECHO", "unread"});
  }
  const auto silent_for_long = in(300ms);
  (void)eventually([&] { return in(0s) > silent_for_long; });
  EXPECT_EQ(ask(*loop, n, {"ECHO", "next"}), "next");
  EXPECT_EQ(unread->state(), fate::replied);
  EXPECT_EQ(between.connections(), 1);
}

TEST_F(RedisDriver, LostConnectionLeavesSentUnknownAndUnsentNotSent) {
  tcp_proxy between{server().port()};
  auto loop = new_loop();
  auto& n = loop->add(to(between.redis_url()));
  session here{*loop};
  ASSERT_EQ(connect(here, n), node::condition::ready);
  between.hold_replies(true);
  const auto sent = n.send(here, {"ECHO", "sent"});
  here.wait([] { return false; }, in(20ms));
  between.cut();
  here.wait([&] { return sent->settled(); }, in(10s));
  EXPECT_EQ(sent->state(), fate::unknown);
  EXPECT_EQ(n.send(here, {"ECHO", "x"})->state(), fate::not_sent);
}

TEST_F(RedisDriver, CommandThatHasNotLeftCanBeWithdrawn) {
  auto loop = new_loop();
  auto& n = loop->add(to(server().url()));
  session here{*loop};
  ASSERT_EQ(connect(here, n), node::condition::ready);
  const auto t = n.send(here, {"SET", "withdrawn", "1"});
  EXPECT_EQ(n.withdraw(here, t), fate::not_sent);
  EXPECT_EQ(t->state(), fate::not_sent);
  EXPECT_EQ(ask(here, n, {"ECHO", "next"}), "next");
  EXPECT_EQ(server().say({"EXISTS", "withdrawn"}), "0");
}

TEST_F(RedisDriver, UnansweredCommandsAreBounded) {
  auto loop = new_loop();
  auto options = to(server().url());
  options.most_unanswered = 3;
  auto& n = loop->add(options);
  session here{*loop};
  ASSERT_EQ(connect(here, n), node::condition::ready);
  server().pause();
  std::vector<ticket> sent;
  for (int i = 0; i < 3; ++i) {
    sent.push_back(n.send(here, {"ECHO", std::to_string(i)}));
  }
  EXPECT_EQ(n.send(here, {"ECHO", "x"})->state(), fate::not_sent);
  server().resume();
  EXPECT_EQ(here.wait_for_answer(sent.back(), in(10s)), fate::replied);
  EXPECT_EQ(ask(here, n, {"ECHO", "next"}), "next");
}

// R36: a dead server is not hammered.
TEST_F(RedisDriver, R36_ReconnectsWithGrowingPauses) {
  tcp_proxy between{server().port()};
  between.refuse(true);
  auto loop = new_loop();
  auto options = to(between.redis_url());
  options.first_pause = 20ms;
  options.longest_pause = 10s;
  auto& n = loop->add(options);
  session here{*loop};
  const auto end = in(500ms);
  while (in(0s) < end) {
    n.want(here);
    here.wait([&] { return n.now() != node::condition::connecting; }, in(5ms));
  }
  EXPECT_EQ(n.now(), node::condition::down);
  // 20, 40, 80, 160, 320 ms.
  EXPECT_GE(between.connections(), 2);
  EXPECT_LE(between.connections(), 6);
}

TEST_F(RedisDriver, IdleConnectionThatWasClosedIsReplacedBeforeUse) {
  tcp_proxy between{server().port()};
  auto loop = new_loop();
  auto& n = loop->add(to(between.redis_url()));
  ASSERT_EQ(ask(*loop, n, {"ECHO", "one"}), "one");
  const auto quiet = in(100ms);
  (void)eventually([&] { return in(0s) > quiet; });
  between.cut();
  EXPECT_EQ(ask(*loop, n, {"ECHO", "two"}), "two");
  EXPECT_EQ(between.connections(), 2);
}

TEST_F(RedisDriver, OneLoopDrivesManyServersAndReturnsAtAQuorum) {
  temp_redis second;
  temp_redis third;
  auto loop = new_loop();
  std::vector<node*> nodes;
  for (auto* s : {&server(), &second, &third}) {
    nodes.push_back(&loop->add(to(s->url())));
  }
  session here{*loop};
  for (auto* n : nodes) {
    ASSERT_EQ(connect(here, *n), node::condition::ready);
  }
  second.pause();
  std::vector<ticket> asked;
  for (auto* n : nodes) {
    asked.push_back(n->send(here, {"ECHO", "x"}));
  }
  const auto answers = [&] {
    return std::count_if(asked.begin(), asked.end(), [](const ticket& t) {
      return t->state() == fate::replied;
    });
  };
  EXPECT_TRUE(here.wait([&] { return answers() >= 2; }, in(10s)));
  EXPECT_EQ(answers(), 2);
  second.resume();
  EXPECT_TRUE(here.wait([&] { return answers() == 3; }, in(10s)));
}

// R12
TEST_F(RedisDriver, R12_UnknownScriptIsSentByItsTextInAPipeline) {
  const lastdoor::detail::embedded_text twice{
      "return ARGV[1] * 2", "0123456789012345678901234567890123456789"};
  auto loop = new_loop();
  auto& n = loop->add(to(server().url()));
  session here{*loop};
  ASSERT_EQ(connect(here, n), node::condition::ready);
  std::vector<std::unique_ptr<script_call>> calls;
  for (int i = 0; i < 5; ++i) {
    const auto argument = std::to_string(i);
    calls.push_back(std::make_unique<script_call>(
        twice, script_call::words{}, script_call::words{argument}));
    calls.back()->send(here, n);
  }
  EXPECT_TRUE(here.wait(
      [&] {
        // Each of them: step() is what sends the text.
        return std::count_if(calls.begin(), calls.end(),
                             [&](auto& c) { return c->step(here); }) == 5;
      },
      in(10s)));
  for (int i = 0; i < 5; ++i) {
    const auto answer = calls[static_cast<std::size_t>(i)]->answer();
    EXPECT_EQ(answer.integer(), 2 * i) << answer.text();
  }
}

TEST_F(RedisDriver, EmbeddedHashesAreTheServersOwn) {
  namespace scripts = lastdoor::detail::redis_scripts;
  namespace store = lastdoor::detail::redis_store_scripts;
  for (const auto* s :
       {&scripts::redis_acquire, &scripts::redis_inspect, &scripts::redis_raise,
        &scripts::redis_rebase, &scripts::redis_release, &scripts::redis_renew,
        &store::redis_create, &store::redis_hand_over, &store::redis_mark,
        &store::redis_marks, &store::redis_write}) {
    EXPECT_EQ(server().say({"SCRIPT", "LOAD", std::string{s->text}}), s->sha1);
  }
}

TEST_F(RedisDriver, LogsInByPasswordAndByUser) {
  server().say({"ACL", "SETUSER", "worker", "on", ">w:rd", "~*", "+@all"});
  server().set("requirepass", "geheim");
  const auto path = server().socket();
  auto loop = new_loop();
  auto& by_password = loop->add(to("redis+unix://:geheim@" + path));
  auto& by_user = loop->add(to("redis+unix://worker:w%3Ard@" + path));
  EXPECT_EQ(ask(*loop, by_password, {"ACL", "WHOAMI"}), "default");
  EXPECT_EQ(ask(*loop, by_user, {"ACL", "WHOAMI"}), "worker");
}

TEST_F(RedisDriver, RefusedLoginIsMisconfiguredAndKeepsThePassword) {
  server().set("requirepass", "geheim");
  const auto path = server().socket();
  auto loop = new_loop();
  for (const auto& url :
       {"redis+unix://:falsch@" + path, "redis+unix://u:falsch@" + path,
        "redis+unix://" + path}) {
    auto& n = loop->add(to(url));
    session here{*loop};
    EXPECT_EQ(connect(here, n), node::condition::down);
    EXPECT_EQ(n.trouble().code(), errc::misconfigured) << url;
    EXPECT_THAT(n.trouble().message(), Not(HasSubstr("falsch")));
    EXPECT_THAT(n.trouble().message(), Not(HasSubstr("geheim")));
    EXPECT_THAT(n.trouble().message(), HasSubstr(path));
  }
}

// A server without AUTH quotes the words of a command that it does not know.
TEST(RedisDriverLogin, ServerThatQuotesTheLoginDoesNotLeakIt) {
  LASTDOOR_NEEDS_REDIS();
  temp_redis server{{.settings = {"rename-command AUTH \"\""}}};
  auto loop = new_loop();
  auto& n = loop->add(to("redis+unix://:geheim@" + server.socket()));
  session here{*loop};
  EXPECT_EQ(connect(here, n), node::condition::down);
  EXPECT_EQ(n.trouble().code(), errc::misconfigured);
  EXPECT_THAT(n.trouble().message(), Not(HasSubstr("geheim")));
}

TEST_F(RedisDriver, SelectsTheDatabase) {
  auto loop = new_loop();
  auto& n = loop->add(to(server().url() + "?db=5"));
  EXPECT_EQ(ask(*loop, n, {"SET", "where", "five"}), "OK");
  EXPECT_EQ(server().say({"GET", "where"}), "<nil>");
}

TEST_F(RedisDriver, FindsAHostByItsName) {
  auto loop = new_loop();
  auto& n =
      loop->add(to("redis://localhost:" + std::to_string(server().port())));
  EXPECT_EQ(ask(*loop, n, {"ECHO", "x"}), "x");
  auto& nowhere = loop->add(to("redis://no-such-host.invalid"));
  session here{*loop};
  EXPECT_EQ(connect(here, nowhere), node::condition::down);
  EXPECT_EQ(nowhere.trouble().code(), errc::unavailable);
}

TEST_F(RedisDriver, ReplicaIsNoServerToWriteTo) {
  temp_redis replica;
  replica.follow(server());
  auto loop = new_loop();
  auto& n = loop->add(to(replica.url()));
  session here{*loop};
  EXPECT_EQ(connect(here, n), node::condition::down);
  EXPECT_EQ(n.trouble().code(), errc::unavailable);
  EXPECT_EQ(n.trouble().backend(), "READONLY");
}

TEST_F(RedisDriver, IdentityChangesWithRestartAndWithPromotion) {
  auto loop = new_loop();
  auto& n = loop->add(to(server().url()));
  const auto identity = [&] {
    session here{*loop};
    EXPECT_EQ(connect(here, n), node::condition::ready);
    EXPECT_EQ(ask(here, n, {"ECHO", "x"}), "x");
    const auto read = n.identity();
    n.drop(here, lastdoor::fail(errc::unavailable, "read anew each time"));
    return read;
  };
  const auto first = identity();
  EXPECT_EQ(identity(), first);
  temp_redis other;
  server().follow(other);
  server().promote();
  const auto promoted = identity();
  EXPECT_NE(promoted, first);
  server().restart();
  EXPECT_NE(identity(), promoted);
}

TEST(RedisDriverNoServer, DeadPortIsUnavailableAtOnce) {
  auto loop = new_loop();
  auto& n = loop->add(to("redis://127.0.0.1:" +
                         std::to_string(lastdoor::support::free_port())));
  auto& socket = loop->add(to("redis+unix:///nonexistent/socket"));
  session here{*loop};
  EXPECT_EQ(connect(here, n), node::condition::down);
  EXPECT_EQ(n.trouble().code(), errc::unavailable);
  EXPECT_THAT(n.trouble().message(), HasSubstr("redis://127.0.0.1:"));
  EXPECT_EQ(connect(here, socket), node::condition::down);
}

// What speaks another protocol is named as such. A relay to itself echoes.
TEST(RedisDriverNoServer, AnotherProtocolIsMisconfigured) {
  LASTDOOR_NEEDS_REDIS();
  temp_redis server{{.settings = {"rename-command INFO \"\""}}};
  auto loop = new_loop();
  auto& n = loop->add(to(server.url()));
  session here{*loop};
  EXPECT_EQ(connect(here, n), node::condition::down);
  EXPECT_EQ(n.trouble().code(), errc::misconfigured);
}

// The loop knows no clock but the one that was put in.
class hand_clock final : public lastdoor::clock {
 public:
  lastdoor::time_point now() const noexcept override {
    return lastdoor::time_point{lastdoor::duration{now_.load()}};
  }
  std::unique_ptr<lastdoor::alarm> make_alarm() override { return nullptr; }
  void advance(lastdoor::duration d) { now_ += d.count(); }

 private:
  std::atomic<std::int64_t> now_{1};
};

TEST_F(RedisDriver, DeadlinesFollowTheClockThatWasPutIn) {
  auto time = std::make_shared<hand_clock>();
  auto loop = lastdoor::redis_driver::loop::open(time).value();
  auto& n = loop->add(to(server().url()));
  std::atomic<bool> waits{false};
  std::atomic<bool> done{false};
  std::thread caller{[&] {
    session here{*loop};
    n.want(here);
    here.wait(
        [&] {
          waits = true;
          return false;
        },
        time->now() + 1h);
    done = true;
  }};
  ASSERT_TRUE(eventually([&] { return waits.load(); }));
  time->advance(59min);
  EXPECT_FALSE(done);
  time->advance(2min);
  EXPECT_TRUE(eventually([&] { return done.load(); }));
  caller.join();
}

}  // namespace
