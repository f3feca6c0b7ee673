// What Postgres says, in lastdoor's words; and what must not be said.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "drivers/postgres.hpp"

namespace lastdoor::postgres_driver {

namespace {

struct rule {
  std::string_view prefix;  // of the SQLSTATE
  errc code;
};

// The longest match is listed first.
constexpr std::array rules = std::to_array<rule>({
    {"08", errc::unavailable},  // connection
    {"2200H", errc::token_exhausted},
    {"22", errc::invalid_argument},
    {"23", errc::precondition_failed},
    // A standby, or a primary that was demoted: the next connection may
    // reach the right server.
    {"25006", errc::unavailable},
    {"25", errc::invalid_argument},
    {"28", errc::misconfigured},
    {"3D", errc::misconfigured},
    {"3F", errc::schema_mismatch},
    {"40", errc::unavailable},  // serialization, deadlock: rolled back
    {"42501", errc::misconfigured},
    {"42P01", errc::schema_mismatch},
    {"42703", errc::schema_mismatch},
    {"42704", errc::schema_mismatch},
    {"42804", errc::schema_mismatch},
    {"42883", errc::schema_mismatch},
    {"42", errc::invalid_argument},
    {"53", errc::unavailable},  // resources
    {"55000", errc::invalid_argument},
    {"55", errc::unavailable},  // locks
    {"57", errc::unavailable},  // canceled, shutting down
    {"58", errc::unavailable},  // system
    {"XX001", errc::damaged},
    {"XX002", errc::damaged},
    {"0A", errc::misconfigured},
    // lastdoor's own, see migrations/postgres/0001_ledger.up.sql.
    {"LD001", errc::stale_token},
    {"LD002", errc::invalid_argument},
    {"LD003", errc::invalid_argument},
    {"LD004", errc::wrong_source},
});

struct option_list {
  PQconninfoOption* all;
  explicit option_list(PQconninfoOption* list) noexcept : all{list} {}
  ~option_list() { PQconninfoFree(all); }
  option_list(const option_list&) = delete;
  option_list& operator=(const option_list&) = delete;

  [[nodiscard]] std::string_view get(std::string_view keyword) const {
    for (const auto* o = all; o->keyword != nullptr; ++o) {
      if (keyword == o->keyword && o->val != nullptr) {
        return o->val;
      }
    }
    return {};
  }
};

// A password with an unescaped '@', '/' or a forgotten host ends up as part of
// what libpq takes for host or port, and would be shown.
bool looks_like_a_slip(const option_list& options) {
  const auto host = options.get("host");
  const auto port = options.get("port");
  // A leading '@' names an abstract Unix socket.
  return host.find('@', 1) != std::string_view::npos ||
         port.find_first_not_of("0123456789,") != std::string_view::npos;
}

std::string_view field(const PGresult* r, int code) noexcept {
  const char* text = PQresultErrorField(r, code);
  return text == nullptr ? std::string_view{} : std::string_view{text};
}

}  // namespace

errc code_of(std::string_view sqlstate) noexcept {
  const auto* found = std::find_if(
      rules.begin(), rules.end(),
      [&](const rule& r) { return sqlstate.starts_with(r.prefix); });
  return found == rules.end() ? errc::internal : found->code;
}

error translate(const PGresult* answer, std::string_view doing) {
  const auto sqlstate = field(answer, PG_DIAG_SQLSTATE);
  const auto text = field(answer, PG_DIAG_MESSAGE_PRIMARY);
  return fail(code_of(sqlstate), fmt::format("{}: {}", doing, text))
      .backend(sqlstate);
}

result<endpoint> parse_endpoint(const std::string& url) {
  char* why = nullptr;
  const option_list options{PQconninfoParse(url.c_str(), &why)};
  // libpq's text is dropped: it quotes the string, password and all.
  PQfreemem(why);
  if (options.all == nullptr || url.find('\0') != std::string::npos ||
      looks_like_a_slip(options)) {
    return fail(errc::invalid_argument,
                "not a Postgres URL or connection string; special characters "
                "of a password are written as %40 and the like");
  }
  std::string shown = "postgres";
  for (const char* keyword : {"host", "port", "dbname", "user"}) {
    if (const auto v = options.get(keyword); !v.empty()) {
      shown += fmt::format(" {}={}", keyword, v);
    }
  }
  return endpoint{url, std::move(shown)};
}

std::string quoted_name(std::string_view name) {
  std::string out{"\""};
  for (const char c : name) {
    if (c == '"') {
      out += '"';
    }
    out += c;
  }
  return out += '"';
}

}  // namespace lastdoor::postgres_driver
