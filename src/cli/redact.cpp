#include "cli/redact.hpp"

#include <algorithm>
#include <cctype>

namespace lastdoor::cli {

namespace {

constexpr std::string_view hidden = "***";
constexpr std::string_view separators = "?&; \t\n";

char lower(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

bool sounds_secret(std::string_view name) {
  std::string low{name};
  std::transform(low.begin(), low.end(), low.begin(), lower);
  constexpr std::string_view secret[] = {"pass",   "pwd",    "secret",
                                         "token",  "auth",   "credential",
                                         "apikey", "api_key"};
  return std::any_of(
      std::begin(secret), std::end(secret),
      [&](std::string_view s) { return low.find(s) != std::string::npos; });
}

// scheme://user:secret@host. The last '@' counts, because a secret that was
// not percent-encoded may hold one itself.
std::string without_userinfo(std::string_view url) {
  const auto mark = url.find("://");
  if (mark == std::string_view::npos) {
    return std::string{url};
  }
  const auto start = mark + 3;
  const auto at = url.rfind('@');
  if (at == std::string_view::npos || at < start) {
    return std::string{url};
  }
  const auto colon = url.find(':', start);
  if (colon == std::string_view::npos || colon > at) {
    return std::string{url};
  }
  std::string out{url.substr(0, colon + 1)};
  out += hidden;
  out += url.substr(at);
  return out;
}

// name=value, where name follows a separator or starts the text.
std::string without_parameters(std::string_view url) {
  std::string out;
  for (std::size_t at = 0; at <= url.size();) {
    const auto end = std::min(url.find_first_of(separators, at), url.size());
    const auto part = url.substr(at, end - at);
    const auto equals = part.find('=');
    if (equals != std::string_view::npos &&
        sounds_secret(part.substr(0, equals))) {
      out += part.substr(0, equals + 1);
      out += hidden;
    } else {
      out += part;
    }
    if (end < url.size()) {
      out += url[end];
    }
    at = end + 1;
  }
  return out;
}

}  // namespace

std::string redacted(std::string_view url) {
  return without_parameters(without_userinfo(url));
}

std::string redacted_text(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find_first_of(" \t\n", at), text.size());
    out += redacted(text.substr(at, end - at));
    if (end < text.size()) {
      out += text[end];
    }
    at = end + 1;
  }
  return out;
}

}  // namespace lastdoor::cli
