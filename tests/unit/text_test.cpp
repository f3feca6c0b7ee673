#include "fencing/text.hpp"

#include <gtest/gtest.h>

namespace lastdoor {
namespace {

using namespace std::string_view_literals;

TEST(Utf8, AcceptsTheEdgesOfEveryLength) {
  for (const std::string_view s :
       {""sv, "a"sv, "\0"sv, "\x7f"sv, "\xc2\x80"sv, "\xdf\xbf"sv,
        "\xe0\xa0\x80"sv, "\xed\x9f\xbf"sv, "\xee\x80\x80"sv, "\xef\xbf\xbf"sv,
        "\xf0\x90\x80\x80"sv, "\xf4\x8f\xbf\xbf"sv, "a\xc3\xa9z"sv}) {
    EXPECT_TRUE(valid_utf8(s)) << printable(s);
  }
}

TEST(Utf8, RefusesOverlongForms) {
  for (const std::string_view s :
       {"\xc0\x80"sv, "\xc1\xbf"sv, "\xe0\x80\x80"sv, "\xe0\x9f\xbf"sv,
        "\xf0\x80\x80\x80"sv, "\xf0\x8f\xbf\xbf"sv}) {
    EXPECT_FALSE(valid_utf8(s)) << printable(s);
  }
}

TEST(Utf8, RefusesSurrogatesAndWhatIsBeyondUnicode) {
  for (const std::string_view s :
       {"\xed\xa0\x80"sv, "\xed\xbf\xbf"sv, "\xf4\x90\x80\x80"sv,
        "\xf5\x80\x80\x80"sv, "\xfe"sv, "\xff"sv}) {
    EXPECT_FALSE(valid_utf8(s)) << printable(s);
  }
}

TEST(Utf8, RefusesWhatIsCutOrStray) {
  for (const std::string_view s :
       {"\x80"sv, "\xbf"sv, "\xc2"sv, "\xc2 "sv, "\xe2\x82"sv, "\xe2\x82 "sv,
        "\xf0\x9f\x92"sv, "ok\xc3"sv, "\xc3\xa9\xa9"sv}) {
    EXPECT_FALSE(valid_utf8(s)) << printable(s);
  }
}

TEST(Printable, KeepsTextAndEscapesWhatMovesACursor) {
  EXPECT_EQ(printable("a b\xc3\xa9"), "a b\xc3\xa9");
  EXPECT_EQ(printable("a\nb\r\t"), "a\\x0ab\\x0d\\x09");
  EXPECT_EQ(printable("\x1b[31m"), "\\x1b[31m");
  EXPECT_EQ(printable("\x7f"), "\\x7f");
  EXPECT_EQ(printable("\0"sv), "\\x00");
}

TEST(Printable, EscapesC1ControlsAndBrokenBytes) {
  EXPECT_EQ(printable("\xc2\x9b"
                      "31m"),
            "\\xc2\\x9b31m");
  EXPECT_EQ(printable("\xc2\xa0"), "\xc2\xa0");
  EXPECT_EQ(printable("\xff"
                      "a\xc3"),
            "\\xffa\\xc3");
}

}  // namespace
}  // namespace lastdoor
