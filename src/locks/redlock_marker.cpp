#include "redlock_marker.hpp"

#include <fmt/format.h>

#include <array>
#include <charconv>

#include "redlock_rule.hpp"

namespace lastdoor::redlock {

namespace {

constexpr std::string_view version = "redlock-1";
constexpr std::string_view closed_version = "redlock-closed-1";
constexpr std::size_t digest_digits = 16;

template <class Number>
bool read(std::string_view word, Number& into) {
  const auto* end = word.data() + word.size();
  const auto [stop, ec] = std::from_chars(word.data(), end, into);
  return ec == std::errc{} && stop == end && !word.empty();
}

// Nothing when there are more or fewer.
template <std::size_t Count>
std::optional<std::array<std::string_view, Count>> split(
    std::string_view text) {
  std::array<std::string_view, Count> words;
  for (auto& word : words) {
    const auto end = std::min(text.find(' '), text.size());
    word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) {
      return std::nullopt;
    }
  }
  return text.empty() ? std::optional{words} : std::nullopt;
}

bool read_cluster(std::string_view id, std::string_view n,
                  std::string_view max_ttl, std::string_view durable,
                  std::string_view names, cluster& into) {
  into.id = id;
  into.durable = durable == "1";
  into.names = names;
  return owner_id::parse(id) && read(n, into.n) &&
         read(max_ttl, into.max_ttl_ms) && (durable == "0" || durable == "1") &&
         names.size() == digest_digits && into.n >= 1 &&
         into.n <= most_servers && into.max_ttl_ms >= 1;
}

std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3U;
  }
  return hash;
}

}  // namespace

std::string marker::text() const {
  return fmt::format("{} {} {} {} {} {} {} {}", version, of.id, place, of.n,
                     of.max_ttl_ms, of.durable ? 1 : 0, of.names, identity);
}

std::optional<marker> marker::parse(std::string_view text) {
  const auto w = split<8>(text);
  marker m;
  if (!w || (*w)[0] != version || !read((*w)[2], m.place) ||
      !read_cluster((*w)[1], (*w)[3], (*w)[4], (*w)[5], (*w)[6], m.of) ||
      m.place >= m.of.n) {
    return std::nullopt;
  }
  m.identity = (*w)[7];
  return m;
}

std::string closed::head() const {
  return fmt::format("{} {} {} {} {} {} {} {} {} {} {}", closed_version,
                     from.empty() ? "-" : from, from_place, from_n, to.id, to.n,
                     to.max_ttl_ms, to.durable ? 1 : 0, to.names, stays ? 1 : 0,
                     nonce);
}

std::optional<closed> closed::parse(std::string_view text) {
  const auto w = split<12>(text);
  closed c;
  if (!w || (*w)[0] != closed_version || !read((*w)[2], c.from_place) ||
      !read((*w)[3], c.from_n) ||
      !read_cluster((*w)[4], (*w)[5], (*w)[6], (*w)[7], (*w)[8], c.to) ||
      ((*w)[9] != "0" && (*w)[9] != "1")) {
    return std::nullopt;
  }
  if ((*w)[1] != "-") {
    if (!owner_id::parse((*w)[1]) || c.from_n > most_servers ||
        c.from_place >= c.from_n) {
      return std::nullopt;
    }
    c.from = (*w)[1];
  }
  c.stays = (*w)[9] == "1";
  c.nonce = (*w)[10];
  std::int64_t counter = 0;
  if ((*w)[11] != "-") {
    if (!read((*w)[11], counter) || counter < 0) {
      return std::nullopt;
    }
    c.counter = counter;
  }
  return c;
}

std::string names_digest(std::span<const std::string> addresses) {
  std::string all;
  for (const auto& address : addresses) {
    all += address;
    all += '\n';
  }
  return fmt::format("{:016x}", fnv1a(all));
}

std::string successor(std::string_view from, std::string_view names) {
  std::string id;
  for (const char salt : {'a', 'b', 'c'}) {
    id += fmt::format("{:016x}",
                      fnv1a(fmt::format("{}{} {}", salt, from, names)));
  }
  return id.substr(0, 40);
}

}  // namespace lastdoor::redlock
