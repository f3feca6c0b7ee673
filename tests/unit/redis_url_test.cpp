#include "drivers/redis_url.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lastdoor/locks/redis.hpp>

namespace {

using lastdoor::errc;
using lastdoor::redis_driver::parse_url;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(RedisUrl, HostAloneHasTheUsualPortAndDatabase) {
  const auto e = parse_url("redis://example.org").value();
  EXPECT_EQ(e.host, "example.org");
  EXPECT_EQ(e.port, 6379);
  EXPECT_EQ(e.db, 0);
  EXPECT_FALSE(e.log_in);
  EXPECT_FALSE(e.tls);
}

TEST(RedisUrl, AllPartsAreRead) {
  const auto e = parse_url("rediss://wor%40ker:s%3Acret@10.0.0.1:7000/3");
  ASSERT_TRUE(e.has_value());
  EXPECT_EQ(e->user, "wor@ker");
  EXPECT_EQ(e->password, "s:cret");
  EXPECT_TRUE(e->log_in);
  EXPECT_EQ(e->host, "10.0.0.1");
  EXPECT_EQ(e->port, 7000);
  EXPECT_EQ(e->db, 3);
  EXPECT_TRUE(e->tls);
}

TEST(RedisUrl, PasswordAloneHasNoUser) {
  const auto e = parse_url("redis://:secret@host").value();
  EXPECT_EQ(e.user, "");
  EXPECT_EQ(e.password, "secret");
  EXPECT_TRUE(e.log_in);
}

TEST(RedisUrl, PasswordMayHoldUnescapedSigns) {
  const auto e = parse_url("redis://u:a@b/c:d@host:1/2").value();
  EXPECT_EQ(e.password, "a@b/c:d");
  EXPECT_EQ(e.host, "host");
  EXPECT_EQ(e.port, 1);
  EXPECT_EQ(e.db, 2);
}

TEST(RedisUrl, BracketsHoldAnIpv6Address) {
  const auto e = parse_url("redis://[::1]:6380/1").value();
  EXPECT_EQ(e.host, "::1");
  EXPECT_EQ(e.port, 6380);
  EXPECT_EQ(e.shown(), "redis://[::1]:6380/1");
}

TEST(RedisUrl, SocketPathIsDecoded) {
  const auto e = parse_url("redis+unix:///var/run/my%20redis?db=4").value();
  EXPECT_EQ(e.path, "/var/run/my redis");
  EXPECT_EQ(e.db, 4);
  EXPECT_TRUE(e.host.empty());
  const auto login = parse_url("redis+unix://u:p@/s").value();
  EXPECT_EQ(login.path, "/s");
  EXPECT_EQ(login.password, "p");
}

TEST(RedisUrl, WhatIsShownHidesThePassword) {
  for (const auto* url :
       {"redis://u:geheim@host/1", "redis://:geheim@host",
        "redis+unix://u:geheim@/socket", "rediss://u:geheim@[::1]"}) {
    const auto shown = parse_url(url).value().shown();
    EXPECT_THAT(shown, Not(HasSubstr("geheim"))) << url;
    EXPECT_THAT(shown, HasSubstr("***")) << url;
  }
}

TEST(RedisUrl, WrongOnesAreRefusedWithoutBeingQuoted) {
  const std::string too_long = "redis+unix:///" + std::string(107, 'x');
  for (const auto& url : std::vector<std::string>{
           "",
           "geheim",
           "http://u:geheim@host",
           "redis://",
           "redis://:6379",
           "redis://geheim@host",
           "redis://u:geheim@",
           "redis://u:geheim@:1",
           "redis://u:geheim@h:0",
           "redis://u:geheim@h:65536",
           "redis://u:geheim@h:x",
           "redis://u:geheim@h:",
           "redis://u:geheim@h/x",
           "redis://u:geheim@h/-1",
           "redis://u:geheim@h/1/2",
           "redis://u:geheim@h/99999999999",
           "redis://u:geheim@h?db=1",
           "redis://u:geheim@h#f",
           "redis://u:ge%heim@h",
           "redis://u:geheim%4@h",
           "redis://u:geheim@[::1",
           "redis://u:geheim@[::1]x",
           "redis+unix://",
           "redis+unix://relative/geheim",
           "redis+unix:///s?geheim=1",
           "redis+unix:///s?db=geheim",
           "redis+unix:///a%00b",
           too_long,
           "redis://u:gehei" + std::string(1, '\0') + "m@"}) {
    const auto r = parse_url(url);
    ASSERT_FALSE(r.has_value()) << url;
    EXPECT_EQ(r.code(), errc::invalid_argument) << url;
    EXPECT_THAT(r.error().message(), Not(HasSubstr("geheim"))) << url;
    EXPECT_THAT(r.error().message(), Not(HasSubstr("heim"))) << url;
  }
}

TEST(RedisOptions, AreCheckedBeforeAnyTraffic) {
  using lastdoor::open_redis_backend;
  using lastdoor::redis_locks_options;
  using namespace std::chrono_literals;
  const std::string url = "redis://127.0.0.1:1";
  const auto code = [&](const redis_locks_options& o) {
    const auto r = open_redis_backend(url, o);
    return r ? std::string{"ok"} : std::string{name_of(r.code())};
  };
  EXPECT_EQ(code({}), "ok") << "opening sends nothing";
  EXPECT_EQ(code({.name_space = ""}), "invalid_argument");
  EXPECT_EQ(code({.name_space = "a}b"}), "invalid_argument");
  EXPECT_EQ(code({.name_space = "{a"}), "invalid_argument");
  EXPECT_EQ(code({.name_space = "a\nb"}), "invalid_argument");
  EXPECT_EQ(code({.name_space = std::string(101, 'n')}), "invalid_argument");
  EXPECT_EQ(code({.call_timeout = 0s}), "invalid_argument");
  EXPECT_EQ(code({.call_timeout = -1s}), "invalid_argument");
  EXPECT_EQ(code({.wait_replicas = -1}), "invalid_argument");
  EXPECT_EQ(
      open_redis_backend(url, {.name_space = "jobs"}).value()->source().str(),
      "redis/jobs");
}

}  // namespace
