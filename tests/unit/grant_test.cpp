#include <gtest/gtest.h>

#include <cstdlib>
#include <lastdoor/grant.hpp>
#include <lastdoor/testing/matchers.hpp>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

namespace lastdoor {
namespace {

using namespace std::chrono_literals;
using testing::FailsWith;

grant sample() {
  return grant{resource_name::parse("r").value(),
               owner_id::parse(std::string(40, 'a')).value(),
               fencing_token::from(7).value(),
               source_name::parse("memory/test").value(), time_point{1h}};
}

static_assert(!std::is_default_constructible_v<grant>);

TEST(Grant, IsWhatItWasMadeOf) {
  const grant g = sample();
  EXPECT_EQ(g.resource().str(), "r");
  EXPECT_EQ(g.owner().str(), std::string(40, 'a'));
  EXPECT_EQ(g.token().value(), 7);
  EXPECT_EQ(g.source().str(), "memory/test");
  EXPECT_EQ(g.valid_until(), time_point{1h});
}

TEST(Grant, IsValidUntilItsEndAndNotAtIt) {
  const grant g = sample();
  EXPECT_TRUE(g.valid_at(time_point{1h - 1ns}));
  EXPECT_FALSE(g.valid_at(time_point{1h}));
}

TEST(Grant, CopiesAreTheSameAcquisitionAndLookalikesAreNot) {
  const grant g = sample();
  const grant copy = g;
  EXPECT_EQ(g, copy);
  EXPECT_FALSE(g == sample());
}

TEST(Grant, AMoveLeavesNoEmptyGrant) {
  grant g = sample();
  const grant moved = std::move(g);
  // NOLINTNEXTLINE(bugprone-use-after-move): that is what is tested.
  EXPECT_EQ(g, moved);
  EXPECT_EQ(g.token().value(), 7);
}

// Sets what `lastdoor run` sets, and takes it away again.
class environment {
 public:
  environment() {
    set("LASTDOOR_RESOURCE", "r");
    set("LASTDOOR_TOKEN", "9007199254740991");
    set("LASTDOOR_OWNER", std::string(40, 'b').c_str());
    set("LASTDOOR_SOURCE", "sqlite/default");
  }
  ~environment() {
    for (const char* name : names)
      ::unsetenv(name);
  }
  environment(const environment&) = delete;
  environment& operator=(const environment&) = delete;

  static void set(const char* name, const char* text) {
    ::setenv(name, text, 1);
  }
  static constexpr const char* names[] = {"LASTDOOR_RESOURCE", "LASTDOOR_TOKEN",
                                          "LASTDOOR_OWNER", "LASTDOOR_SOURCE"};
};

TEST(Grant, R18_OfAChildProcessIsItsParents) {
  const environment e;
  const grant g = grant::from_environment().value();
  EXPECT_EQ(g.resource().str(), "r");
  EXPECT_EQ(g.token().value(), fencing_token::max);
  EXPECT_EQ(g.owner().str(), std::string(40, 'b'));
  EXPECT_EQ(g.source().str(), "sqlite/default");
  EXPECT_EQ(g.valid_until(), time_point::max());
}

TEST(Grant, FromAnEnvironmentThatLacksSomethingIsRefusedByName) {
  for (const char* name : environment::names) {
    const environment e;
    ::unsetenv(name);
    const auto unset = grant::from_environment();
    ASSERT_THAT(unset, FailsWith(errc::invalid_argument));
    EXPECT_THAT(unset.error().text(), ::testing::HasSubstr(name));
    environment::set(name, "");
    EXPECT_THAT(grant::from_environment(), FailsWith(errc::invalid_argument));
  }
}

TEST(Grant, FromAMalformedEnvironmentIsRefusedByName) {
  const std::pair<const char*, const char*> bad[] = {
      {"LASTDOOR_RESOURCE", "\xff"}, {"LASTDOOR_TOKEN", "0"},
      {"LASTDOOR_TOKEN", "+1"},      {"LASTDOOR_TOKEN", "9007199254740992"},
      {"LASTDOOR_OWNER", "me"},      {"LASTDOOR_SOURCE", "a b"}};
  for (const auto& [name, text] : bad) {
    const environment e;
    environment::set(name, text);
    const auto g = grant::from_environment();
    ASSERT_THAT(g, FailsWith(errc::invalid_argument)) << name << text;
    EXPECT_THAT(g.error().text(), ::testing::HasSubstr(name));
  }
}

}  // namespace
}  // namespace lastdoor
