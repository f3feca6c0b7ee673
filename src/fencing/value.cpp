#include <fmt/format.h>

#include <lastdoor/fencing/value.hpp>

#include "text.hpp"

namespace lastdoor {

namespace {

constexpr std::size_t shown = 60;  // bytes of a text or blob in a message

struct describer {
  std::string operator()(std::nullptr_t) const { return "NULL"; }
  std::string operator()(std::int64_t i) const { return std::to_string(i); }
  std::string operator()(double d) const { return fmt::format("{}", d); }
  std::string operator()(const std::string& s) const {
    const bool cut = s.size() > shown;
    return fmt::format("'{}{}'", printable(s.substr(0, shown)),
                       cut ? "..." : "");
  }
  std::string operator()(const blob& b) const {
    std::string hex;
    for (std::size_t i = 0; i < b.size() && i < shown / 2; ++i) {
      hex += fmt::format("{:02x}", std::to_integer<unsigned>(b[i]));
    }
    return fmt::format("x'{}{}'", hex, b.size() > shown / 2 ? "..." : "");
  }
};

}  // namespace

std::string value::describe() const { return std::visit(describer{}, v_); }

}  // namespace lastdoor
