#include "redlock_marker.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "redlock_rule.hpp"

namespace lastdoor::redlock {

namespace {

constexpr std::string_view version = "redlock-1";

template <class Number>
bool read(std::string_view word, Number& into) {
  const auto* end = word.data() + word.size();
  const auto [stop, ec] = std::from_chars(word.data(), end, into);
  return ec == std::errc{} && stop == end && !word.empty();
}

}  // namespace

std::string marker::text() const {
  return fmt::format("{} {} {} {} {} {} {}", version, of.id, place, of.n,
                     of.max_ttl_ms, of.durable ? 1 : 0, identity);
}

std::optional<marker> marker::parse(std::string_view text) {
  std::array<std::string_view, 7> words;
  for (auto& word : words) {
    const auto end = std::min(text.find(' '), text.size());
    word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  marker m;
  int durable = -1;
  if (!text.empty() || words[0] != version || !owner_id::parse(words[1]) ||
      !read(words[2], m.place) || !read(words[3], m.of.n) ||
      !read(words[4], m.of.max_ttl_ms) || !read(words[5], durable) ||
      words[6].empty()) {
    return std::nullopt;
  }
  if (m.of.n < 1 || m.of.n > most_servers || m.place >= m.of.n ||
      m.of.max_ttl_ms < 1 || (durable != 0 && durable != 1)) {
    return std::nullopt;
  }
  m.of.id = words[1];
  m.of.durable = durable == 1;
  m.identity = words[6];
  return m;
}

}  // namespace lastdoor::redlock
