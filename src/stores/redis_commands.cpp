// The list of commands, and which of them make sense.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "fencing/text.hpp"
#include "redis_text.hpp"

namespace lastdoor {

namespace {

constexpr std::size_t longest_key = 1024;
constexpr std::size_t most_words = 1000;

enum class shape : std::uint8_t {
  one,     // exactly one word after the key
  none,    // the key alone
  some,    // one or more
  pairs,   // field value, field value
  scores,  // score member, score member
  ttl,     // milliseconds
};
struct known_command {
  std::string_view name;
  shape words;
};
// Each of these does all of its work or fails for a reason that the script
// can see beforehand.
constexpr std::array known_commands{
    known_command{"SET", shape::one},      known_command{"APPEND", shape::one},
    known_command{"HSET", shape::pairs},   known_command{"HDEL", shape::some},
    known_command{"LPUSH", shape::some},   known_command{"RPUSH", shape::some},
    known_command{"LPOP", shape::none},    known_command{"RPOP", shape::none},
    known_command{"SADD", shape::some},    known_command{"SREM", shape::some},
    known_command{"ZADD", shape::scores},  known_command{"ZREM", shape::some},
    known_command{"DEL", shape::none},     known_command{"PEXPIRE", shape::ttl},
    known_command{"PERSIST", shape::none},
};

bool is_score(const std::string& text) {
  double d{};
  const auto* end = text.data() + text.size();
  const auto [stop, ec] = std::from_chars(text.data(), end, d);
  return ec == std::errc{} && stop == end && std::isfinite(d);
}

// Redis keeps the moment of expiry in 64 bits; nobody means a century.
bool is_ttl(const std::string& text) {
  constexpr std::int64_t century_ms = 100LL * 366 * 24 * 3600 * 1000;
  const auto ms = redis_integer(text);
  return ms && *ms >= 1 && *ms <= century_ms;
}

// `words` without the name and the key.
bool fits(shape s, const std::vector<std::string>& words) {
  switch (s) {
    case shape::one:
      return words.size() == 1;
    case shape::none:
      return words.empty();
    case shape::some:
      return !words.empty();
    case shape::pairs:
      return !words.empty() && words.size() % 2 == 0;
    case shape::scores:
      for (std::size_t i = 0; i < words.size(); i += 2) {
        if (!is_score(words[i])) {
          return false;
        }
      }
      return !words.empty() && words.size() % 2 == 0;
    case shape::ttl:
      return words.size() == 1 && is_ttl(words[0]);
  }
  return false;
}

// Of a command on a hash, by its words without the key.
bool names_fence(const std::vector<std::string>& words) {
  if (words.empty() || !words[0].starts_with('H')) {
    return false;
  }
  const std::size_t stride = words[0] == "HDEL" ? 1 : 2;
  for (std::size_t i = 1; i < words.size(); i += stride) {
    if (words[i] == "fence_token") {
      return true;
    }
  }
  return false;
}

std::string upper(std::string text) {
  for (char& c : text) {
    c = c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  }
  return text;
}

}  // namespace

std::optional<std::int64_t> redis_integer(std::string_view text) noexcept {
  std::int64_t n{};
  const auto* end = text.data() + text.size();
  const auto [stop, ec] = std::from_chars(text.data(), end, n);
  if (ec != std::errc{} || stop != end) {
    return std::nullopt;
  }
  const auto digits = text.substr(text.front() == '-' ? 1 : 0);
  if ((digits.front() == '0' && text.size() > 1)) {
    return std::nullopt;
  }
  return n;
}

std::optional<std::string> redis_text(const value& v) {
  if (const auto* i = v.integer()) {
    return std::to_string(*i);
  }
  if (const auto* d = v.real()) {
    return std::isfinite(*d) ? std::optional{fmt::format("{}", *d)}
                             : std::nullopt;
  }
  if (const auto* t = v.text()) {
    return *t;
  }
  if (const auto* b = v.bytes()) {
    std::string text(b->size(), '\0');
    std::transform(b->begin(), b->end(), text.begin(),
                   [](std::byte c) { return static_cast<char>(c); });
    return text;
  }
  return std::nullopt;
}

result<std::vector<std::string>> redis_condition(const condition& c) {
  using kind = condition::kind;
  const auto words = [](std::string_view op, std::string operand) {
    return std::vector<std::string>{std::string{op}, std::move(operand), "0"};
  };
  if (c.op == kind::is_null) {
    return words("null", "");
  }
  if (c.op == kind::not_null) {
    return words("there", "");
  }
  auto operand = redis_text(c.operand);
  if (!operand) {
    return fail(errc::invalid_argument,
                "nothing compares with NULL or with what is no number; use "
                "is_null() or not_null()");
  }
  if (c.op == kind::equals || c.op == kind::differs) {
    return words(c.op == kind::equals ? "eq" : "ne", std::move(*operand));
  }
  const auto* whole = c.operand.integer();
  if ((whole == nullptr && c.operand.real() == nullptr) ||
      (whole != nullptr && !redis_countable(*whole))) {
    return fail(errc::invalid_argument,
                "only numbers up to 2^53-1 have an order here");
  }
  const std::string_view op = c.op == kind::at_least  ? "ge"
                              : c.op == kind::at_most ? "le"
                              : c.op == kind::above   ? "gt"
                                                      : "lt";
  return words(op, std::move(*operand));
}

redis_commands& redis_commands::refuse(std::string why) {
  if (fault_.empty()) {
    fault_ = std::move(why);
  }
  return *this;
}

redis_commands& redis_commands::step(std::string verb, std::string key,
                                     std::vector<std::string> words) {
  if (key.empty() || key.size() > longest_key) {
    return refuse(fmt::format("a key has 1 to {} bytes", longest_key));
  }
  if (key.starts_with("lastdoor:")) {
    return refuse(
        fmt::format("the key '{}' is lastdoor's own", printable(key)));
  }
  if (words.size() > most_words) {
    return refuse(fmt::format("a command has at most {} words", most_words));
  }
  if (names_fence(words)) {
    return refuse("the field 'fence_token' is lastdoor's own");
  }
  steps_.push_back({std::move(verb), std::move(key), std::move(words)});
  return *this;
}

redis_commands& redis_commands::shared(std::string key) {
  return step("shared", std::move(key), {});
}

redis_commands& redis_commands::set(std::string key, const value& v) {
  auto text = redis_text(v);
  if (!text) {
    return refuse("set: a value is a finite number, text or bytes, not NULL");
  }
  return step("do", std::move(key), {"SET", std::move(*text)});
}

redis_commands& redis_commands::hash_set(std::string key, std::string field,
                                         const value& v) {
  auto text = redis_text(v);
  if (!text) {
    return refuse(
        "hash_set: a value is a finite number, text or bytes, not NULL");
  }
  return step("do", std::move(key),
              {"HSET", std::move(field), std::move(*text)});
}

redis_commands& redis_commands::add(std::string key, std::int64_t n) {
  if (!redis_countable(n)) {
    return refuse("add: a number beyond 2^53-1");
  }
  return step("do", std::move(key), {"INCRBY", std::to_string(n)});
}

redis_commands& redis_commands::hash_add(std::string key, std::string field,
                                         std::int64_t n) {
  if (!redis_countable(n)) {
    return refuse("hash_add: a number beyond 2^53-1");
  }
  return step("do", std::move(key),
              {"HINCRBY", std::move(field), std::to_string(n)});
}

redis_commands& redis_commands::erase(std::string key) {
  return step("do", std::move(key), {"DEL"});
}

redis_commands& redis_commands::command(std::vector<std::string> words) {
  if (words.size() < 2) {
    return refuse("a command has a name and a key");
  }
  const auto name = upper(words[0]);
  auto key = std::move(words[1]);
  std::vector<std::string> rest(std::make_move_iterator(words.begin() + 2),
                                std::make_move_iterator(words.end()));
  const auto last = rest.empty() ? std::nullopt : redis_integer(rest.back());
  const bool counts = last.has_value();
  const auto n = last.value_or(0);
  if ((name == "INCR" || name == "DECR") && rest.empty()) {
    return add(std::move(key), name == "INCR" ? 1 : -1);
  }
  if (name == "INCRBY" && rest.size() == 1 && counts) {
    return add(std::move(key), n);
  }
  if (name == "DECRBY" && rest.size() == 1 && counts && redis_countable(n)) {
    return add(std::move(key), -n);
  }
  if (name == "HINCRBY" && rest.size() == 2 && counts) {
    return hash_add(std::move(key), std::move(rest[0]), n);
  }
  const auto* known =
      std::find_if(known_commands.begin(), known_commands.end(),
                   [&](const auto& k) { return k.name == name; });
  if (known == known_commands.end() || !fits(known->words, rest)) {
    return refuse(fmt::format(
        "'{}' with {} words after its key is none of the commands that a "
        "fenced write may hold",
        printable(name.substr(0, 40)), rest.size()));
  }
  rest.insert(rest.begin(), name);
  return step("do", std::move(key), std::move(rest));
}

redis_commands& redis_commands::require(std::string key, const condition& c) {
  auto words = redis_condition(c);
  if (!words) {
    return refuse(words.error().text());
  }
  return step("if", std::move(key), std::move(*words));
}

redis_commands& redis_commands::require_field(std::string key,
                                              std::string field,
                                              const condition& c) {
  auto words = redis_condition(c);
  if (!words) {
    return refuse(words.error().text());
  }
  words->push_back(std::move(field));
  return step("if", std::move(key), std::move(*words));
}

}  // namespace lastdoor
