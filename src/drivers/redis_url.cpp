#include "redis_url.hpp"

#include <fmt/format.h>

#include <charconv>
#include <optional>

#include "fencing/text.hpp"

namespace lastdoor::redis_driver {

namespace {

error bad(std::string_view what) {
  return fail(errc::invalid_argument,
              fmt::format("not a Redis URL: {}; expected "
                          "redis://[user[:password]@]host[:port][/db] or "
                          "redis+unix:///path[?db=N]",
                          what));
}

int hex_digit(char c) noexcept {
  if (c >= '0' && c <= '9') {
    return c - '0';
  }
  if (c >= 'a' && c <= 'f') {
    return c - 'a' + 10;
  }
  return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

std::optional<std::string> decoded(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    if (i + 2 >= text.size()) {
      return std::nullopt;
    }
    const int high = hex_digit(text[i + 1]);
    const int low = hex_digit(text[i + 2]);
    if (high < 0 || low < 0) {
      return std::nullopt;
    }
    out += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return out;
}

template <class T>
std::optional<T> number(std::string_view digits) {
  T value{};
  const auto* end = digits.data() + digits.size();
  const auto [stop, ec] = std::from_chars(digits.data(), end, value);
  if (digits.empty() || digits.front() == '-' || ec != std::errc{} ||
      stop != end) {
    return std::nullopt;
  }
  return value;
}

// Takes what stands before `mark` off the front of `text`, the mark too.
std::optional<std::string_view> take_until_last(std::string_view& text,
                                                char mark) {
  const auto at = text.rfind(mark);
  if (at == std::string_view::npos) {
    return std::nullopt;
  }
  const auto head = text.substr(0, at);
  text.remove_prefix(at + 1);
  return head;
}

result<void> read_login(std::string_view login, endpoint& to) {
  const auto colon = login.find(':');
  if (colon == std::string_view::npos) {
    return bad("a user needs a password, as in user:password@");
  }
  const auto user = decoded(login.substr(0, colon));
  const auto password = decoded(login.substr(colon + 1));
  if (!user || !password) {
    return bad("a % in the login is not followed by two hex digits");
  }
  to.user = *user;
  to.password = *password;
  to.log_in = true;
  return {};
}

result<void> read_db(std::string_view digits, endpoint& to) {
  const auto db = number<int>(digits);
  if (!db) {
    return bad("the database is not a number");
  }
  to.db = *db;
  return {};
}

result<void> read_host_and_port(std::string_view text, endpoint& to) {
  std::string_view port;
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == std::string_view::npos) {
      return bad("a [ without its ]");
    }
    to.host = text.substr(1, end - 1);
    port = text.substr(end + 1);
    if (!port.empty() && !port.starts_with(':')) {
      return bad("only a port may follow the ]");
    }
  } else {
    const auto colon = text.find(':');
    to.host = text.substr(0, colon);
    if (colon != std::string_view::npos) {
      port = text.substr(colon);
    }
  }
  if (to.host.empty() || to.host.find('\0') != std::string::npos) {
    return bad("there is no host");
  }
  if (!port.empty()) {
    const auto value = number<std::uint16_t>(port.substr(1));
    if (!value || *value == 0) {
      return bad("the port is not a number from 1 to 65535");
    }
    to.port = *value;
  }
  return {};
}

result<endpoint> parse_tcp(std::string_view rest, bool tls) {
  endpoint to;
  to.tls = tls;
  if (rest.find_first_of("?#") != std::string_view::npos) {
    return bad("it takes no ? and no # (in a password: %3F and %23)");
  }
  std::string_view db;
  // Only a slash after the login ends the host.
  const auto login_end = rest.rfind('@');
  const auto slash =
      rest.find('/', login_end == std::string_view::npos ? 0 : login_end);
  if (slash != std::string_view::npos) {
    db = rest.substr(slash + 1);
    rest = rest.substr(0, slash);
  }
  if (const auto login = take_until_last(rest, '@')) {
    if (auto ok = read_login(*login, to); !ok) {
      return ok.error();
    }
  }
  if (auto ok = read_host_and_port(rest, to); !ok) {
    return ok.error();
  }
  if (!db.empty()) {
    if (auto ok = read_db(db, to); !ok) {
      return ok.error();
    }
  }
  return to;
}

result<endpoint> parse_unix(std::string_view rest) {
  endpoint to;
  const auto question = rest.find('?');
  if (question != std::string_view::npos) {
    const auto query = rest.substr(question + 1);
    rest = rest.substr(0, question);
    if (!query.starts_with("db=")) {
      return bad("only ?db=N may follow the path");
    }
    if (auto ok = read_db(query.substr(3), to); !ok) {
      return ok.error();
    }
  }
  if (const auto login = take_until_last(rest, '@')) {
    if (auto ok = read_login(*login, to); !ok) {
      return ok.error();
    }
  }
  const auto path = decoded(rest);
  // The kernel's limit for the name of a socket, its end mark included.
  constexpr std::size_t longest = 107;
  if (!path || !path->starts_with('/') || path->size() > longest ||
      path->find('\0') != std::string::npos) {
    return bad("the path of a socket starts with / and has at most 107 bytes");
  }
  to.path = *path;
  return to;
}

}  // namespace

std::string endpoint::shown() const {
  std::string login;
  if (log_in) {
    login = printable(user) + ":***@";
  }
  if (!path.empty()) {
    return fmt::format("redis+unix://{}{}?db={}", login, printable(path), db);
  }
  const bool v6 = host.find(':') != std::string::npos;
  return fmt::format("{}://{}{}{}{}:{}/{}", tls ? "rediss" : "redis", login,
                     v6 ? "[" : "", printable(host), v6 ? "]" : "", port, db);
}

result<endpoint> parse_url(std::string_view url) {
  constexpr std::string_view plain = "redis://";
  constexpr std::string_view tls = "rediss://";
  constexpr std::string_view local = "redis+unix://";
  if (url.starts_with(plain)) {
    return parse_tcp(url.substr(plain.size()), false);
  }
  if (url.starts_with(tls)) {
    return parse_tcp(url.substr(tls.size()), true);
  }
  if (url.starts_with(local)) {
    return parse_unix(url.substr(local.size()));
  }
  return bad("it starts with none of redis://, rediss://, redis+unix://");
}

}  // namespace lastdoor::redis_driver
