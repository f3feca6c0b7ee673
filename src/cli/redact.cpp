#include "cli/redact.hpp"

#include <algorithm>
#include <cctype>
#include <initializer_list>
#include <optional>

namespace lastdoor::cli {

namespace {

constexpr std::string_view hidden = "***";
constexpr std::string_view blanks = " \t\r\n";

char lower(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

bool is_name(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' ||
         c == '-';
}

bool has_any(std::string_view name, std::initializer_list<const char*> words) {
  std::string low{name};
  std::transform(low.begin(), low.end(), low.begin(), lower);
  return std::any_of(words.begin(), words.end(), [&](const char* word) {
    return low.find(word) != std::string::npos;
  });
}

// Of a parameter of a URL. Elsewhere a token is lastdoor's own, and shown.
bool secret_parameter(std::string_view name) {
  return has_any(
      name, {"pass", "pwd", "secret", "token", "auth", "credential", "key"});
}

bool secret_setting(std::string_view name) {
  return has_any(name, {"password", "passwd", "pwd"});
}

// Where what follows the scheme begins, for URLs that may hold a password.
std::optional<std::size_t> authority_of(std::string_view word) {
  const auto slashes = word.find("://");
  if (slashes != std::string_view::npos) {
    return slashes + 3;
  }
  for (std::string_view scheme :
       {"redis:", "rediss:", "redlock:", "postgres:", "postgresql:"}) {
    const auto at = word.find(scheme);
    if (at != std::string_view::npos && (at == 0 || !is_name(word[at - 1]))) {
      return at + scheme.size();
    }
  }
  return std::nullopt;
}

bool is_redis(std::string_view word) {
  return word.find("redis") != std::string_view::npos ||
         word.find("redlock") != std::string_view::npos;
}

// scheme://user:secret@host. The last '@' counts, because a secret that was
// not percent-encoded may hold one itself. In Redis URLs a lone user is often
// meant as the password.
std::string without_userinfo(std::string_view word) {
  const auto start = authority_of(word);
  // Nor where a message says what a URL looks like.
  if (!start || word.substr(*start).starts_with("[user[:password]@]")) {
    return std::string{word};
  }
  const auto colon = word.find(':', *start);
  const auto at = word.rfind('@');
  if (at != std::string_view::npos && at >= *start) {
    const bool named = colon != std::string_view::npos && colon < at;
    if (!named && !is_redis(word)) {
      return std::string{word};
    }
    std::string out{word.substr(0, named ? colon + 1 : *start)};
    return out.append(hidden).append(word.substr(at));
  }
  // Without a host, what stands behind the colon is a port or a password.
  if (colon == std::string_view::npos ||
      word.find("://") == std::string_view::npos) {
    return std::string{word};
  }
  const auto end = word.find_first_of("/?,'\"", colon);
  const auto port = word.substr(
      colon + 1, end == std::string_view::npos ? end : end - colon - 1);
  if (port.find_first_not_of("0123456789") == std::string_view::npos ||
      word.substr(*start, 1) == "[" || port == "port") {
    return std::string{word};
  }
  return std::string{word.substr(0, colon + 1)}.append(hidden);
}

// ?name=value&name=value, from the first '?' on.
std::string without_parameters(std::string_view word) {
  const auto query = word.find('?');
  if (query == std::string_view::npos) {
    return std::string{word};
  }
  std::string out{word.substr(0, query)};
  for (std::size_t at = query; at < word.size();) {
    out += word[at++];
    const auto end = std::min(word.find_first_of("?&;", at), word.size());
    const auto part = word.substr(at, end - at);
    const auto equals = part.find('=');
    if (equals != std::string_view::npos &&
        secret_parameter(part.substr(0, equals))) {
      out.append(part.substr(0, equals + 1)).append(hidden);
    } else {
      out += part;
    }
    at = end;
  }
  return out;
}

// Past a value of libpq's kind: 'it\'s quoted', or up to a blank.
std::size_t end_of_value(std::string_view text, std::size_t at) {
  if (at < text.size() && text[at] == '\'') {
    for (++at; at < text.size() && text[at] != '\''; ++at) {
      at += text[at] == '\\' ? 1U : 0U;
    }
    return std::min(at + 1, text.size());
  }
  return std::min(text.find_first_of(" \t\r\n?&;", at), text.size());
}

// password = value, as in a connection string.
std::string without_settings(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    if (!is_name(text[at])) {
      out += text[at++];
      continue;
    }
    auto end = at;
    while (end < text.size() && is_name(text[end])) {
      ++end;
    }
    const auto name = text.substr(at, end - at);
    const auto equals =
        std::min(text.find_first_not_of(blanks, end), text.size());
    out += name;
    at = end;
    if (equals < text.size() && text[equals] == '=' && secret_setting(name)) {
      const auto value =
          std::min(text.find_first_not_of(blanks, equals + 1), text.size());
      out.append(text.substr(end, value - end)).append(hidden);
      at = end_of_value(text, value);
    }
  }
  return out;
}

}  // namespace

std::string redacted(std::string_view url) { return redacted_text(url); }

std::string shown_url(std::string_view url) {
  const auto colon = url.find(':');
  const auto scheme = url.substr(0, colon);
  if (scheme == "sqlite" && url.find("://") == std::string_view::npos) {
    return redacted(url);
  }
  for (std::string_view known :
       {"sqlite", "redis", "rediss", "redlock", "postgres", "postgresql"}) {
    if (colon != std::string_view::npos && scheme == known) {
      return std::string{url.substr(0, colon + 1)}.append(hidden);
    }
  }
  return std::string{hidden};
}

std::string redacted_text(std::string_view text) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const auto end = std::min(text.find_first_of(blanks, at), text.size());
    const auto word = text.substr(at, end - at);
    out += without_parameters(without_userinfo(word));
    if (end < text.size()) {
      out += text[end];
    }
    at = end + 1;
  }
  return without_settings(out);
}

}  // namespace lastdoor::cli
