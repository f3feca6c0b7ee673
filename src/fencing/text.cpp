#include "text.hpp"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>

namespace lastdoor {

namespace {

struct lead {
  std::size_t more;         // continuation bytes
  unsigned char low, high;  // range of the first of them
};

// The table of well-formed byte sequences of the Unicode standard (3-7).
bool classify(unsigned char b, lead& out) noexcept {
  if (b < 0x80) {
    out = {0, 0, 0};
  } else if (b >= 0xC2 && b <= 0xDF) {
    out = {1, 0x80, 0xBF};
  } else if (b == 0xE0) {
    out = {2, 0xA0, 0xBF};
  } else if (b == 0xED) {
    out = {2, 0x80, 0x9F};
  } else if (b >= 0xE1 && b <= 0xEF) {
    out = {2, 0x80, 0xBF};
  } else if (b == 0xF0) {
    out = {3, 0x90, 0xBF};
  } else if (b >= 0xF1 && b <= 0xF3) {
    out = {3, 0x80, 0xBF};
  } else if (b == 0xF4) {
    out = {3, 0x80, 0x8F};
  } else {
    return false;
  }
  return true;
}

// Bytes of the well-formed character at `at`, or 0.
std::size_t character_at(std::string_view s, std::size_t at) noexcept {
  lead l{};
  if (!classify(static_cast<unsigned char>(s[at]), l))
    return 0;
  if (at + l.more >= s.size())
    return 0;
  for (std::size_t i = 1; i <= l.more; ++i) {
    const auto b = static_cast<unsigned char>(s[at + i]);
    const unsigned char low = i == 1 ? l.low : 0x80;
    const unsigned char high = i == 1 ? l.high : 0xBF;
    if (b < low || b > high)
      return 0;
  }
  return l.more + 1;
}

}  // namespace

bool valid_utf8(std::string_view bytes) noexcept {
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t n = character_at(bytes, at);
    if (n == 0)
      return false;
    at += n;
  }
  return true;
}

std::string printable(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  for (std::size_t at = 0; at < bytes.size();) {
    const std::size_t n = character_at(bytes, at);
    const auto b = static_cast<unsigned char>(bytes[at]);
    // C1 controls (U+0080..U+009F) are two bytes, C2 80..9F.
    const bool c1 =
        n == 2 && b == 0xC2 && static_cast<unsigned char>(bytes[at + 1]) < 0xA0;
    if (n == 0 || b < 0x20 || b == 0x7F || c1) {
      out += fmt::format("\\x{:02x}", b);
      at += 1;
    } else {
      out += bytes.substr(at, n);
      at += n;
    }
  }
  return out;
}

}  // namespace lastdoor
