// The verdicts of the store's scripts as errors.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "fencing/text.hpp"
#include "redis_store_impl.hpp"

namespace lastdoor {

namespace driver = redis_driver;

namespace {

std::int64_t number_in(std::string_view digits) {
  std::int64_t n{};
  std::from_chars(digits.data(), digits.data() + digits.size(), n);
  return n;
}

// A step's verdict. The text follows the name of its key.
struct meaning {
  std::string_view word;
  errc code;
  std::string_view text;
  bool has_detail{false};
  std::string_view backend{};
};
constexpr meaning meanings[] = {
    {"behind", errc::stale_token, "was written under a newer token"},
    {"missing", errc::missing, "is not there"},
    {"taken", errc::precondition_failed, "is there already"},
    {"failed", errc::precondition_failed, "does not meet a requirement"},
    {"kind", errc::schema_mismatch, "holds what this write cannot take", true,
     "WRONGTYPE"},
    {"number", errc::schema_mismatch, "holds no whole number to add to"},
    {"range", errc::precondition_failed, "would be counted beyond 2^53-1"},
    {"size", errc::precondition_failed, "is too long to be appended to"},
    {"order", errc::invalid_argument,
     "is counted, and changed by a command before: a list names a counter "
     "once"},
    {"fence", errc::damaged, "has a fence that is no token"},
    {"forbidden", errc::misconfigured, "is closed to this user's command", true,
     "NOPERM"},
    {"broken", errc::damaged,
     "refused its command after others had been carried out, and Redis takes "
     "nothing back",
     true},
};

}  // namespace

std::optional<error> redis_store::impl::unusable(
    driver::reply_view verdict) const {
  const auto word = verdict[0].text();
  if (word == "blank") {
    return fail(errc::schema_mismatch,
                fmt::format("there is no ledger '{}': the server was never set "
                            "up, or it lost its data",
                            ledger_));
  }
  if (word == "format") {
    return fail(errc::schema_mismatch,
                fmt::format("the ledger '{}' has the format '{}', which is not "
                            "this version's",
                            ledger_, printable(verdict[1].text())));
  }
  if (word == "damaged") {
    return fail(errc::damaged, fmt::format("a mark in the ledger '{}' is not "
                                           "one that lastdoor wrote",
                                           ledger_));
  }
  return std::nullopt;
}

error redis_store::impl::step_refusal(std::string_view word,
                                      driver::reply_view verdict,
                                      const redis_plan& plan) const {
  const auto at = static_cast<std::size_t>(verdict[1].integer());
  if (at < 1 || at > plan.steps.size()) {
    return fail(errc::internal, "the write script gave an unknown answer");
  }
  const auto& step = plan.steps[at - 1];
  const auto named = plan.names.find(step.key);
  const auto what = named != plan.names.end()
                        ? named->second
                        : fmt::format("the key '{}'", printable(step.key));
  for (const auto& m : meanings) {
    if (m.word != word) {
      continue;
    }
    auto text = what + ' ' + std::string{m.text};
    if (word == "failed" && step.words.size() > 3) {
      text += fmt::format(": '{}'", printable(step.words[3]));
    } else if (m.has_detail) {
      text += fmt::format(": {}", printable(verdict[2].text()));
    }
    auto why = fail(m.code, std::move(text)).backend(m.backend);
    if (m.code == errc::stale_token) {
      why.seen(number_in(verdict[2].text()));
    }
    return why;
  }
  return fail(errc::internal, "the write script gave an unknown answer");
}

error redis_store::impl::refusal(driver::reply_view verdict, const grant& g,
                                 const redis_plan& plan) const {
  const auto word = verdict[0].text();
  if (auto bad = unusable(verdict)) {
    return *bad;
  }
  if (word == "stale") {
    return fail(errc::stale_token, "the store has seen a newer token")
        .seen(number_in(verdict[1].text()));
  }
  if (word == "twice") {
    return fail(errc::stale_token,
                "the store has accepted this very token from another owner, "
                "and a token has one")
        .seen(number_in(verdict[1].text()));
  }
  if (word == "source") {
    return fail(errc::wrong_source,
                fmt::format("the mark is of source '{}', the grant of '{}'; "
                            "tokens of two sources cannot be compared, hand "
                            "over first",
                            printable(verdict[1].text()), g.source().str()));
  }
  if (word == "retired") {
    return fail(errc::wrong_source,
                fmt::format("the source '{}' was handed over to '{}'",
                            g.source().str(), printable(verdict[1].text())));
  }
  if (word == "unmarked") {
    const auto named = plan.names.find(std::string{verdict[1].text()});
    return fail(
        errc::damaged,
        fmt::format(
            "{} exists although the resource has no mark: the "
            "mark was lost, or the data are older than "
            "lastdoor (adopt_existing), or other resources write "
            "it too (shared)",
            named != plan.names.end()
                ? named->second
                : fmt::format("the key '{}'", printable(verdict[1].text()))));
  }
  return step_refusal(word, verdict, plan);
}

}  // namespace lastdoor
