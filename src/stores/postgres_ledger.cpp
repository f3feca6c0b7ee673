#include "postgres_ledger.hpp"

#include <fmt/format.h>

#include <charconv>
#include <limits>

namespace lastdoor::postgres {

namespace {

error stale(const grant& g, std::int64_t mark) {
  return about(fail(errc::stale_token, "the store has seen a newer token"), g)
      .seen(mark);
}

error other_owner(const grant& g) {
  return about(fail(errc::stale_token,
                    "the store has accepted this very token from another "
                    "owner, and a token has one"),
               g)
      .seen(g.token().value());
}

error other_source(const grant& g, std::string_view bound_to) {
  return about(fail(errc::wrong_source,
                    fmt::format("the mark is of source '{}', the grant of "
                                "'{}'; tokens of two sources cannot be "
                                "compared, hand over first",
                                bound_to, g.source().str())),
               g);
}

}  // namespace

result<claimed> judge_claim(const claim_row& row, const grant& g) {
  const auto what = row.verdict;
  if (what == "held" || what == "raised" || what == "applied") {
    return claimed{what == "raised", what == "applied", std::string{row.xid},
                   std::string{row.timeline}};
  }
  if (what == "stale") {
    return stale(g, row.mark);
  }
  if (what == "other_owner") {
    return other_owner(g);
  }
  if (what == "wrong_source") {
    return other_source(g, row.mark_source);
  }
  if (what == "retired") {
    return about(fail(errc::wrong_source,
                      fmt::format("the source '{}' was handed over to '{}'",
                                  g.source().str(), row.mark_source)),
                 g);
  }
  if (what == "invalid") {
    return about(fail(errc::invalid_argument,
                      "the ledger cannot hold this grant or number"),
                 g);
  }
  return about(fail(errc::schema_mismatch,
                    fmt::format("lastdoor.claim answered '{}', which this "
                                "release does not know",
                                what)),
               g);
}

std::optional<error> refused_by(const ledger_row& row, const grant& g) {
  if (row.source != g.source().str()) {
    return other_source(g, row.source);
  }
  if (row.mark > g.token().value()) {
    return stale(g, row.mark);
  }
  if (row.mark == g.token().value() && row.owner != g.owner().str()) {
    return other_owner(g);
  }
  return std::nullopt;
}

std::string claim_sql(const grant& g, const claim_options& o) {
  const auto number = [](const std::optional<std::int64_t>& n) {
    return n ? std::to_string(*n) : std::string{"NULL"};
  };
  return fmt::format(
      "SELECT verdict, mark, mark_source, xid, timeline "
      "FROM lastdoor.claim({}, {}, {}, {}, {}, {})",
      literal(g.resource().str()), g.token().value(), literal(g.owner().str()),
      literal(g.source().str()), number(o.sequence), number(o.bound_ms));
}

std::optional<std::int64_t> bound_of(const grant& g, time_point now) {
  constexpr std::int64_t most = std::numeric_limits<std::int32_t>::max();
  const auto until = g.valid_until();
  if (until <= now) {
    return 1;
  }
  if (until - std::chrono::milliseconds{most} >= now) {
    return std::nullopt;
  }
  const auto left =
      std::chrono::floor<std::chrono::milliseconds>(until - now).count();
  return std::max<std::int64_t>(1, left);
}

std::string literal(std::string_view text) {
  std::string out = text.find('\\') == std::string_view::npos ? "'" : "E'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') {
      out += c;
    }
    out += c;
  }
  return out += '\'';
}

error about(error e, const grant& g) {
  e.about(g.resource().str()).presented(g.token().value());
  return e;
}

error with_mark_of_guard(error e) {
  if (e.backend() != "LD001") {
    return e;
  }
  std::string_view line = e.text();
  line = line.substr(0, line.find('\n'));
  const auto digits = line.find_last_not_of("0123456789");
  line.remove_prefix(digits == std::string_view::npos ? 0 : digits + 1);
  std::int64_t mark = 0;
  const auto [end, ec] =
      std::from_chars(line.data(), line.data() + line.size(), mark);
  if (ec == std::errc{} && end == line.data() + line.size()) {
    e.seen(mark);
  }
  return e;
}

}  // namespace lastdoor::postgres
