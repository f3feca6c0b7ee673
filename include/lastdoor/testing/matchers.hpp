// testing/matchers.hpp: gMock matchers for `result<T>`.
//
// There is no matcher for "some error": a test that does not say which code
// it expects cannot tell a refusal from a broken set-up.
//
// Each takes a result by value or by reference; on a mismatch the message of
// the error is printed.
//
// Example:
//
//   using namespace lastdoor::testing;
//   EXPECT_THAT(lease->release(), IsOk());
//   EXPECT_THAT(count_rows(), HoldsValue(::testing::Ge(3)));
//   EXPECT_THAT(locks.acquire("r"), FailsWith(errc::busy));
#pragma once

#include <gmock/gmock.h>

#include <lastdoor/errors.hpp>
#include <ostream>
#include <type_traits>
#include <utility>

namespace lastdoor {

// Found by argument-dependent look-up when GoogleTest prints.
inline void PrintTo(errc code, std::ostream* out) { *out << name_of(code); }
inline void PrintTo(const error& e, std::ostream* out) { *out << e.message(); }

template <class T>
void PrintTo(const result<T>& r, std::ostream* out) {
  if (!r) {
    *out << "failure: " << r.error().message();
  } else if constexpr (std::is_void_v<T>) {
    *out << "success";
  } else {
    *out << "value: " << ::testing::PrintToString(*r);
  }
}

namespace testing {

namespace detail {

// GoogleMock's interface asks for these names.
struct is_ok {
  using is_gtest_matcher = void;
  template <class R>
  bool MatchAndExplain(const R& r, std::ostream* out) const {
    if (!r.has_value() && out != nullptr)
      *out << "which failed: " << r.error().message();
    return r.has_value();
  }
  void DescribeTo(std::ostream* out) const { *out << "is a success"; }
  void DescribeNegationTo(std::ostream* out) const { *out << "is a failure"; }
};

template <class Inner>
class holds_value {
 public:
  using is_gtest_matcher = void;
  explicit holds_value(Inner inner) : inner_{std::move(inner)} {}

  template <class R>
  bool MatchAndExplain(const R& r, std::ostream* out) const {
    using value_type = std::decay_t<decltype(*r)>;
    if (!r.has_value()) {
      if (out != nullptr)
        *out << "which failed: " << r.error().message();
      return false;
    }
    ::testing::StringMatchResultListener why;
    const bool good =
        ::testing::SafeMatcherCast<const value_type&>(inner_).MatchAndExplain(
            *r, &why);
    if (out != nullptr)
      *out << "whose value does" << (good ? "" : " not") << " match "
           << why.str();
    return good;
  }
  void DescribeTo(std::ostream* out) const { *out << "holds a given value"; }
  void DescribeNegationTo(std::ostream* out) const {
    *out << "does not hold a given value";
  }

 private:
  Inner inner_;
};

class fails_with {
 public:
  using is_gtest_matcher = void;
  explicit fails_with(errc code) : code_{code} {}

  template <class R>
  bool MatchAndExplain(const R& r, std::ostream* out) const {
    if (r.has_value()) {
      if (out != nullptr)
        *out << "which succeeded";
      return false;
    }
    if (out != nullptr)
      *out << "which failed: " << r.error().message();
    return r.error().code() == code_;
  }
  void DescribeTo(std::ostream* out) const {
    *out << "fails with " << name_of(code_);
  }
  void DescribeNegationTo(std::ostream* out) const {
    *out << "does not fail with " << name_of(code_);
  }

 private:
  errc code_;
};

}  // namespace detail

// NOLINTBEGIN(readability-identifier-naming): matchers are spelled as
// GoogleMock's own are, since they stand next to them.

/// Matches a result that is a success, of any type.
[[nodiscard]] inline detail::is_ok IsOk() { return {}; }

/// Matches a result whose value matches `inner`: a matcher or a value.
template <class Inner>
[[nodiscard]] detail::holds_value<std::decay_t<Inner>> HoldsValue(
    Inner&& inner) {
  return detail::holds_value<std::decay_t<Inner>>{std::forward<Inner>(inner)};
}

/// Matches a result that failed with exactly this code.
[[nodiscard]] inline detail::fails_with FailsWith(errc code) {
  return detail::fails_with{code};
}

// NOLINTEND(readability-identifier-naming)

}  // namespace testing

}  // namespace lastdoor
