#include <fmt/format.h>

#include <charconv>
#include <lastdoor/token.hpp>

#include "text.hpp"

namespace lastdoor {

namespace {

bool lower_hex(char c) noexcept {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
}

}  // namespace

result<fencing_token> fencing_token::from(std::int64_t raw) {
  if (raw < min || raw > max) {
    return fail(errc::invalid_argument,
                fmt::format("a token is {}..{}, not {}", min, max, raw));
  }
  return fencing_token{raw};
}

result<fencing_token> fencing_token::parse(std::string_view digits) {
  std::int64_t raw = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, ec] = std::from_chars(digits.data(), end, raw);
  if (digits.empty() || digits.front() < '1' || digits.front() > '9' ||
      ec != std::errc{} || stop != end) {
    return fail(errc::invalid_argument,
                fmt::format("a token is a decimal number from {} to {}, not "
                            "'{}'",
                            min, max, digits.substr(0, 40)));
  }
  return from(raw);
}

result<mark> mark::from_store(std::int64_t raw) {
  if (raw < 0 || raw > fencing_token::max) {
    return fail(errc::damaged, fmt::format("a stored mark is 0..{}, not {}",
                                           fencing_token::max, raw));
  }
  if (raw == 0)
    return mark{};
  return mark{fencing_token{raw}};
}

result<resource_name> resource_name::parse(std::string_view name) {
  const auto refuse = [](std::string why) -> error {
    return fail(errc::invalid_argument, "a resource name " + std::move(why));
  };
  if (name.empty())
    return refuse("must not be empty");
  if (name.size() > max_bytes) {
    return refuse(fmt::format("has at most {} bytes, this one has {}",
                              max_bytes, name.size()));
  }
  if (name.find('\0') != std::string_view::npos) {
    return refuse("must not contain U+0000");
  }
  if (!valid_utf8(name))
    return refuse("must be valid UTF-8");
  return resource_name{std::string{name}};
}

result<owner_id> owner_id::parse(std::string_view hex) {
  bool good = hex.size() >= 40 && hex.size() <= 128;
  for (const char c : hex)
    good = good && lower_hex(c);
  if (!good) {
    return fail(errc::invalid_argument,
                "an owner is 40 to 128 lower-case hexadecimal digits");
  }
  return owner_id{std::string{hex}};
}

result<source_name> source_name::parse(std::string_view name) {
  bool good = !name.empty() && name.size() <= 128;
  for (const char c : name)
    good = good && c > ' ' && c < '\x7f';
  if (!good) {
    return fail(errc::invalid_argument,
                "a source name is 1 to 128 printable ASCII characters "
                "without blanks");
  }
  return source_name{std::string{name}};
}

}  // namespace lastdoor
