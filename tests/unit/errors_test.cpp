#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <lastdoor/errors.hpp>
#include <lastdoor/lease.hpp>
#include <lastdoor/observer.hpp>
#include <lastdoor/testing/matchers.hpp>
#include <memory>
#include <set>

namespace lastdoor {
namespace {

using testing::FailsWith;
using ::testing::HasSubstr;
using testing::HoldsValue;
using testing::IsOk;
using ::testing::Not;

constexpr int first_code = 1;
constexpr int last_code = 19;

TEST(Errors, EveryCodeHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int i = first_code; i <= last_code; ++i) {
    const auto name = name_of(static_cast<errc>(i));
    EXPECT_NE(name, "unknown") << i;
    names.insert(name);
  }
  EXPECT_EQ(names.size(), static_cast<std::size_t>(last_code));
  EXPECT_EQ(name_of(static_cast<errc>(last_code + 1)), "unknown");
}

// The numbers are exit codes and may never change.
TEST(Errors, NumbersAreStable) {
  EXPECT_EQ(static_cast<int>(errc::stale_token), 1);
  EXPECT_EQ(static_cast<int>(errc::busy), 2);
  EXPECT_EQ(static_cast<int>(errc::lease_lost), 3);
  EXPECT_EQ(static_cast<int>(errc::in_doubt), 6);
  EXPECT_EQ(static_cast<int>(errc::invalid_argument), 11);
  EXPECT_EQ(static_cast<int>(errc::internal), 19);
}

TEST(Errors, EventsAndReasonsHaveNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (int i = 0; i <= static_cast<int>(event_kind::floor_raised); ++i)
    names.insert(name_of(static_cast<event_kind>(i)));
  EXPECT_EQ(names.size(), 10U);
  EXPECT_FALSE(names.contains("unknown"));
  names.clear();
  for (int i = 0; i <= static_cast<int>(loss_reason::shutdown); ++i)
    names.insert(name_of(static_cast<loss_reason>(i)));
  EXPECT_EQ(names.size(), 6U);
  EXPECT_FALSE(names.contains("unknown"));
}

TEST(Errors, AMessageNamesResourceAndBothTokens) {
  error e = fail(errc::stale_token, "the row was fenced off");
  e.about("inventory/1").presented(5).seen(9).backend("SQLITE_CONSTRAINT");
  EXPECT_EQ(e.message(),
            "stale_token on 'inventory/1', token 5, mark 9: the row was "
            "fenced off [SQLITE_CONSTRAINT]");
}

TEST(Errors, AMessageLeavesOutWhatIsNotKnown) {
  EXPECT_EQ(fail(errc::busy, "taken").message(), "busy: taken");
}

TEST(Errors, AMessageIsOneHarmlessLine) {
  error e = fail(errc::internal, "a\nb");
  e.about("x\n2026 root: all is well\x1b[2J").backend("c\rd\xff");
  EXPECT_THAT(e.message(), Not(HasSubstr("\n")));
  EXPECT_THAT(e.message(), Not(HasSubstr("\r")));
  EXPECT_THAT(e.message(), Not(HasSubstr("\x1b")));
  EXPECT_THAT(e.message(), HasSubstr("\\xff"));
}

TEST(Errors, RememberWhereTheyWereMade) {
  const error e = fail(errc::internal, "here");
  EXPECT_THAT(e.where().file, HasSubstr("errors_test.cpp"));
}

TEST(Errors, OnlyWhatSurelyDidNotHappenIsRetryable) {
  std::set<std::string_view> retryable;
  std::set<std::string_view> final_ones;
  for (int i = first_code; i <= last_code; ++i) {
    const auto code = static_cast<errc>(i);
    if (fail(code, "").retryable())
      retryable.insert(name_of(code));
    if (fail(code, "").ends_lease())
      final_ones.insert(name_of(code));
  }
  EXPECT_EQ(retryable, (std::set<std::string_view>{"busy", "no_quorum",
                                                   "too_slow", "unavailable"}));
  EXPECT_EQ(final_ones, (std::set<std::string_view>{
                            "lease_lost", "not_owner", "stale_token",
                            "token_regressed", "wrong_source"}));
}

TEST(Result, ValueThrowsTheErrorItHolds) {
  result<int> r = fail(errc::busy, "taken").about("r");
  try {
    r.value();
    FAIL() << "nothing was thrown";
  } catch (const failure& f) {
    EXPECT_EQ(f.code(), errc::busy);
    EXPECT_EQ(f.why().resource(), "r");
    EXPECT_STREQ(f.what(), "busy on 'r': taken");
  }
  EXPECT_THROW(result<void>{fail(errc::busy, "")}.value(), failure);
}

TEST(Result, CarriesTypesThatOnlyMove) {
  result<std::unique_ptr<int>> r = std::make_unique<int>(7);
  const std::unique_ptr<int> p = std::move(r).value();
  EXPECT_EQ(*p, 7);
}

TEST(Result, LiftsPlainTypesAndResultsAlike) {
  static_assert(std::is_same_v<lift_t<int>, result<int>>);
  static_assert(std::is_same_v<lift_t<result<int>>, result<int>>);
  static_assert(std::is_same_v<lift_t<void>, result<void>>);
}

// --- the matchers that the library ships ------------------------------------

template <class Matcher, class R>
std::string explained(const Matcher& m, const R& r) {
  ::testing::StringMatchResultListener why;
  static_cast<void>(::testing::ExplainMatchResult(m, r, &why));
  return why.str();
}

TEST(Matchers, TellSuccessFromTheExactFailure) {
  const result<int> good = 7;
  const result<int> bad = fail(errc::busy, "taken");
  const result<void> done;
  EXPECT_THAT(good, IsOk());
  EXPECT_THAT(done, IsOk());
  EXPECT_THAT(bad, Not(IsOk()));
  EXPECT_THAT(bad, FailsWith(errc::busy));
  EXPECT_THAT(bad, Not(FailsWith(errc::in_doubt)));
  EXPECT_THAT(good, Not(FailsWith(errc::busy)));
  EXPECT_THAT(done, Not(FailsWith(errc::busy)));
}

TEST(Matchers, LookAtTheValue) {
  const result<int> good = 7;
  EXPECT_THAT(good, HoldsValue(7));
  EXPECT_THAT(good, HoldsValue(::testing::Gt(6)));
  EXPECT_THAT(good, Not(HoldsValue(8)));
  EXPECT_THAT(result<int>{fail(errc::busy, "")}, Not(HoldsValue(7)));
  EXPECT_THAT(result<std::unique_ptr<int>>{std::make_unique<int>(7)},
              HoldsValue(::testing::Pointee(7)));
}

TEST(Matchers, SayWhatTheyMet) {
  const result<int> bad = fail(errc::busy, "taken");
  EXPECT_THAT(explained(IsOk(), bad), HasSubstr("busy: taken"));
  EXPECT_THAT(explained(FailsWith(errc::missing), bad),
              HasSubstr("busy: taken"));
  EXPECT_THAT(explained(HoldsValue(7), bad), HasSubstr("busy: taken"));
  EXPECT_THAT(explained(FailsWith(errc::busy), result<int>{7}),
              HasSubstr("succeeded"));
  EXPECT_EQ(::testing::PrintToString(bad), "failure: busy: taken");
  EXPECT_EQ(::testing::PrintToString(result<int>{7}), "value: 7");
  EXPECT_EQ(::testing::PrintToString(errc::busy), "busy");
}

}  // namespace
}  // namespace lastdoor
