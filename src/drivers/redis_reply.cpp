#include "redis_reply.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace lastdoor::redis_driver {

namespace {

struct meaning {
  std::string_view word;
  errc code;
};

// In these states the server refuses the command before it runs any of it.
constexpr std::array meanings{
    meaning{"BUSY", errc::unavailable},
    meaning{"CLUSTERDOWN", errc::unavailable},
    meaning{"LOADING", errc::unavailable},
    meaning{"MASTERDOWN", errc::unavailable},
    meaning{"MISCONF", errc::unavailable},
    meaning{"NOREPLICAS", errc::unavailable},
    meaning{"OOM", errc::unavailable},
    meaning{"READONLY", errc::unavailable},
    meaning{"TRYAGAIN", errc::unavailable},
    meaning{"UNKILLABLE", errc::unavailable},
    meaning{"ASK", errc::misconfigured},
    meaning{"CROSSSLOT", errc::misconfigured},
    meaning{"DENIED", errc::misconfigured},
    meaning{"MOVED", errc::misconfigured},
    meaning{"NOAUTH", errc::misconfigured},
    meaning{"NOPERM", errc::misconfigured},
    meaning{"WRONGPASS", errc::misconfigured},
    meaning{"WRONGTYPE", errc::misconfigured},
};

const meaning* find_word(std::string_view word) noexcept {
  const auto* at =
      std::find_if(meanings.begin(), meanings.end(),
                   [&](const meaning& m) { return m.word == word; });
  return at == meanings.end() ? nullptr : at;
}

// Cuts the first word off the front.
std::string_view next_word(std::string_view& text) noexcept {
  const auto start = std::min(text.find_first_not_of(" -:"), text.size());
  text.remove_prefix(start);
  const auto end = std::min(text.find_first_of(" :"), text.size());
  const auto word = text.substr(0, end);
  text.remove_prefix(end);
  return word;
}

}  // namespace

std::string_view reply_view::text() const noexcept {
  if (r_ == nullptr || r_->str == nullptr) {
    return {};
  }
  return {r_->str, r_->len};
}

std::string_view error_word(std::string_view text) noexcept {
  auto rest = text;
  const auto first = next_word(rest);
  // Before Redis 7 an error that a script met comes as "ERR Error running
  // script (call to f_0123): @user_script:3: -OOM command ...", and one that
  // it returned as "@user_script: 3: -OOM command ...". Only there may the word
  // stand further back: other texts quote arguments.
  const auto script = text.find("user_script");
  if ((first == "ERR" || first == "@user_script") &&
      script != std::string_view::npos) {
    rest = text.substr(script);
    if (rest.find("The user executing the script can't") !=
        std::string_view::npos) {
      return "NOPERM";
    }
    while (!rest.empty()) {
      const auto word = next_word(rest);
      if (find_word(word) != nullptr) {
        return word;
      }
    }
  }
  return first;
}

errc code_of(std::string_view word) noexcept {
  const auto* known = find_word(word);
  // Anything else is a server that lacks or forbids what we need.
  return known != nullptr ? known->code : errc::misconfigured;
}

error server_error(reply_view answer, std::string_view doing) {
  const auto word = error_word(answer.text());
  auto code = code_of(word);
  if (answer.text().starts_with("ERR max number of clients")) {
    code = errc::unavailable;
  }
  // Some texts go on to quote the arguments, which are nobody's business.
  const auto text = answer.text().substr(0, answer.text().find(", with args"));
  return fail(code, fmt::format("{}: the server refused: {}", doing, text))
      .backend(word);
}

bool must_reconnect(std::string_view word) noexcept {
  return word == "READONLY" || word == "MASTERDOWN" || word == "NOAUTH";
}

std::string_view info_field(std::string_view info,
                            std::string_view name) noexcept {
  while (!info.empty()) {
    const auto end = std::min(info.find('\n'), info.size());
    auto line = info.substr(0, end);
    info.remove_prefix(std::min(end + 1, info.size()));
    if (line.ends_with('\r')) {
      line.remove_suffix(1);
    }
    if (line.size() > name.size() && line.starts_with(name) &&
        line[name.size()] == ':') {
      return line.substr(name.size() + 1);
    }
  }
  return {};
}

}  // namespace lastdoor::redis_driver
