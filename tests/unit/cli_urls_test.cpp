#include <gtest/gtest.h>

#include "cli/backends.hpp"
#include "cli/redact.hpp"

namespace lastdoor::cli {
namespace {

TEST(CliUrls, SqlitePathsAreRelativeOrAbsolute) {
  EXPECT_EQ(parse_url("--locks", "sqlite:locks.db").value().path, "locks.db");
  EXPECT_EQ(parse_url("--locks", "sqlite:./a b.db").value().path, "./a b.db");
  EXPECT_EQ(parse_url("--locks", "sqlite:/var/l.db").value().path, "/var/l.db");
  EXPECT_EQ(parse_url("--locks", "sqlite:///var/l.db").value().path,
            "///var/l.db");
}

TEST(CliUrls, ANamespaceIsTheLastParameter) {
  const auto u = parse_url("--locks", "sqlite:what?.db?namespace=b").value();
  EXPECT_EQ(u.path, "what?.db");
  EXPECT_EQ(u.name_space, "b");
  EXPECT_EQ(parse_url("--locks", "sqlite:what?.db").value().path, "what?.db");
}

class CliUrlsRefused : public testing::TestWithParam<const char*> {};

TEST_P(CliUrlsRefused, AsInvalidArguments) {
  const auto u = parse_url("--locks", GetParam());
  ASSERT_FALSE(u.has_value());
  EXPECT_EQ(u.code(), errc::invalid_argument);
}

INSTANTIATE_TEST_SUITE_P(
    All, CliUrlsRefused,
    testing::Values("", "locks.db", ":locks.db", "sqlite",
                    "sqlite:", "sqlite:?namespace=a", "sqlite:a.db?namespace=",
                    "sqlite:host/a.db?namespace=", "sqlite://host/a.db",
                    "sqlite::memory:", "SQLITE:a.db", "mysql://h/db"));

TEST(CliUrls, ALockServiceIsNoStore) {
  const auto store = open_store("redlock://a,b,c");
  ASSERT_FALSE(store.has_value());
  EXPECT_NE(store.error().text().find("is a lock service"), std::string::npos);
  EXPECT_TRUE(parse_url("--locks", "redlock://a,b,c").has_value());
}

TEST(CliUrls, NoMessageShowsAPassword) {
  for (const char* url :
       {"redis://u:hunter2@h/x", "redis://:hunter2@h?namespace=",
        "rediss://:hunter2@h:x", "mysql://a:hunter2@b/c",
        "postgresql://h/db?password=hunter2&namespace=", "sqlite://x:hunter2@y",
        "postgres:host=h password = hunter2 x", "postgres:hunter2",
        "redlock:u:hunter2@h1", "hunter2", "u:hunter2@h"}) {
    const auto locks = open_locks(url);
    ASSERT_FALSE(locks.has_value()) << url;
    EXPECT_EQ(locks.error().message().find("hunter2"), std::string::npos)
        << locks.error().message();
    EXPECT_NE(locks.error().message().find("***"), std::string::npos);
  }
}

struct redaction {
  const char* url;
  const char* shown;
};

class CliRedaction : public testing::TestWithParam<redaction> {};

TEST_P(CliRedaction, HidesSecretsAndNothingElse) {
  EXPECT_EQ(redacted(GetParam().url), GetParam().shown);
  EXPECT_EQ(redacted_text(GetParam().url), GetParam().shown);
}

INSTANTIATE_TEST_SUITE_P(
    All, CliRedaction,
    testing::Values(
        redaction{"", ""}, redaction{"sqlite:/a/b.db", "sqlite:/a/b.db"},
        redaction{"sqlite:a@b:c.db", "sqlite:a@b:c.db"},
        redaction{"redis://h:6379/0", "redis://h:6379/0"},
        redaction{"postgres://user@h", "postgres://user@h"},
        // In a Redis URL a lone user is often meant as the password.
        redaction{"redis://pw@h", "redis://***@h"},
        redaction{"postgres://u:pw", "postgres://u:***"},
        redaction{"postgres:u:pw@h", "postgres:u:***@h"},
        redaction{"redlock:u:pw@h1,h2", "redlock:u:***@h1,h2"},
        redaction{"postgresql://h/d?sslkey=k&key=k",
                  "postgresql://h/d?sslkey=***&key=***"},
        redaction{"redis://user:pw@h:1", "redis://user:***@h:1"},
        redaction{"redis://:pw@h", "redis://:***@h"},
        // An '@', a ':' or a '/' in the password itself.
        redaction{"redis://u:p@w@h", "redis://u:***@h"},
        redaction{"redis://u:p:w/x@h/0", "redis://u:***@h/0"},
        // Several nodes, each with one.
        redaction{"redlock://:a@h1,:b@h2", "redlock://:***@h2"},
        redaction{"redlock://host:port,host:port,...:",
                  "redlock://host:port,host:port,...:"},
        redaction{"redis://[user[:password]@]host[:port][/db]",
                  "redis://[user[:password]@]host[:port][/db]"},
        redaction{"postgresql://h/d?password=x&a=b",
                  "postgresql://h/d?password=***&a=b"},
        redaction{"postgresql://h/d?a=b&SSLPassword=x",
                  "postgresql://h/d?a=b&SSLPassword=***"},
        redaction{"x://h?auth_token=x;y=1", "x://h?auth_token=***;y=1"},
        redaction{"postgres:host=h password = pw user=u",
                  "postgres:host=h password = *** user=u"},
        redaction{"PGPASSWORD='p\\' w' user=u", "PGPASSWORD=*** user=u"},
        // Text that is nobody's secret.
        redaction{"busy on 'token=abc'", "busy on 'token=abc'"},
        redaction{"author=me redis:a:b", "author=me redis:a:b"},
        redaction{"host=h password=pw user=u", "host=h password=*** user=u"}));

TEST(CliRedaction, ReachesEveryWordOfAMessage) {
  EXPECT_EQ(redacted_text("not expected: redis://a:b@c 'redis://:d@e'"),
            "not expected: redis://a:***@c 'redis://:***@e'");
}

}  // namespace
}  // namespace lastdoor::cli
