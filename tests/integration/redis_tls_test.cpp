// rediss:// URLs: refused where hiredis has no TLS, and real where it has.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <lastdoor/locks/redis.hpp>
#include <lastdoor/stores/redis.hpp>

#include "drivers/redis_stream.hpp"
#include "support/redis_client.hpp"
#include "support/temp_redis.hpp"

namespace {

using namespace std::chrono_literals;
using namespace lastdoor;
using namespace lastdoor::support;

// What this hiredis cannot do is no test here, so nothing is skipped.
#if !LASTDOOR_TEST_TLS

TEST(RedisTls, UrlIsMisconfiguredWhereHiredisHasNone) {
  const auto r = open_redis_locks("rediss://u:geheim@127.0.0.1");
  EXPECT_EQ(outcome_of(r), "misconfigured");
  EXPECT_THAT(r.error().message(), ::testing::HasSubstr("hiredis"));
  EXPECT_THAT(r.error().message(),
              ::testing::Not(::testing::HasSubstr("geheim")));
  EXPECT_EQ(outcome_of(open_redis_store("rediss://127.0.0.1")),
            "misconfigured");
}

#else

// A server with a certificate for `host` that is its own authority.
struct tls_server {
  explicit tls_server(const std::string& host) {
    const auto command =
        "cd '" + folder.path().string() +
        "' && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 "
        "-nodes -keyout key.pem -out cert.pem -days 2 -subj /CN=lastdoor "
        "-addext 'subjectAltName=" +
        host + "' >openssl.log 2>&1 && chmod 644 key.pem";
    made = std::system(command.c_str()) == 0;
    if (!made) {
      return;
    }
    const auto file = [&](const char* name) {
      return (folder.path() / name).string();
    };
    server = std::make_unique<temp_redis>(support::redis_options{
        .settings = {"tls-port " + std::to_string(port),
                     "tls-cert-file " + file("cert.pem"),
                     "tls-key-file " + file("key.pem"),
                     "tls-ca-cert-file " + file("cert.pem"),
                     "tls-auth-clients no"}});
  }
  [[nodiscard]] redis_locks_options trusting() const {
    auto o = redis_client::patient();
    o.tls.authorities = (folder.path() / "cert.pem").string();
    return o;
  }
  [[nodiscard]] std::string url() const {
    return "rediss://127.0.0.1:" + std::to_string(port);
  }
  temp_folder folder{"lastdoor-tls"};
  int port{free_port()};
  std::unique_ptr<temp_redis> server;
  bool made{false};
};

class RedisTlsServer : public ::testing::Test {
 protected:
  void SetUp() override { LASTDOOR_NEEDS_REDIS(); }
};

TEST_F(RedisTlsServer, IsSpokenToWhenItsCertificateFits) {
  tls_server s{"IP:127.0.0.1"};
  if (!s.made) {
    GTEST_SKIP() << "no openssl command to make a certificate with";
  }
  redis_client client{s.url(), s.trusting()};
  auto held = client.acquire("r");
  ASSERT_EQ(outcome_of(held), "ok") << held.error().message();
  EXPECT_EQ(outcome_of(client.renew(*held)), "ok");
  EXPECT_EQ(outcome_of(client.release(*held)), "ok");

  redis_store_options o;
  o.call_timeout = 20s;
  o.tls = s.trusting().tls;
  ASSERT_EQ(outcome_of(create_redis_ledger(s.url(), o)), "ok");
  auto store = open_redis_store(s.url(), o).value();
  // More than what fits in one record or one buffer of the kernel.
  const std::string large(std::size_t{4} << 20, 'x');
  EXPECT_EQ(outcome_of(store.write(*held, redis_commands{}.set("a", large))),
            "ok");
  EXPECT_EQ(s.server->say({"STRLEN", "a"}), std::to_string(large.size()));
}

TEST_F(RedisTlsServer, IsMisconfiguredWhenItsCertificateDoesNotFit) {
  tls_server elsewhere{"IP:127.0.0.2"};
  if (!elsewhere.made) {
    GTEST_SKIP() << "no openssl command to make a certificate with";
  }
  redis_client by_name{elsewhere.url(), elsewhere.trusting()};
  EXPECT_EQ(outcome_of(by_name.acquire("r")), "misconfigured");
  tls_server here{"IP:127.0.0.1"};
  redis_client stranger{here.url(), elsewhere.trusting()};
  EXPECT_EQ(outcome_of(stranger.acquire("r")), "misconfigured");
  auto o = here.trusting();
  o.tls.authorities = "/nowhere/ca.pem";
  EXPECT_EQ(outcome_of(open_redis_backend(here.url(), o)), "misconfigured");
}

#endif

}  // namespace
