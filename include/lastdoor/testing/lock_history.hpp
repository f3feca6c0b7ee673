// lock_history.hpp: what happened to a lock service, and whether it may.
//
// Times are CLOCK_MONOTONIC, which all processes of one host share. A grant
// counts from just before the call that asked for it to just after its
// answer, so an order that the history shows is one that really was.
//
// Thread safety: values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace lastdoor::testing {

struct grant_record {
  std::int64_t asked_ns;     // before the acquisition began
  std::int64_t answered_ns;  // after it returned
  std::int64_t given_up_ns;  // before its release began
  std::int64_t token;
  std::int32_t resource;
  std::int32_t process;
};

/// G1. Two grants with one token, or nothing.
[[nodiscard]] inline std::optional<std::string> find_repeated(
    const std::vector<grant_record>& history) {
  std::unordered_map<std::int64_t, const grant_record*> seen;
  for (const auto& g : history) {
    const auto [it, fresh] = seen.emplace(g.token, &g);
    if (!fresh)
      return "token " + std::to_string(g.token) + " went to process " +
             std::to_string(it->second->process) + " and to process " +
             std::to_string(g.process);
  }
  return std::nullopt;
}

/// G2. A grant whose token is not above that of a grant which was answered
/// before it was asked for, on whatever resource; or nothing.
[[nodiscard]] inline std::optional<std::string> find_disorder(
    const std::vector<grant_record>& history) {
  auto by_begin = history;
  auto by_end = history;
  std::sort(by_begin.begin(), by_begin.end(), [](const auto& a, const auto& b) {
    return a.asked_ns < b.asked_ns;
  });
  std::sort(by_end.begin(), by_end.end(), [](const auto& a, const auto& b) {
    return a.answered_ns < b.answered_ns;
  });
  std::int64_t highest = 0;
  std::size_t ended = 0;
  for (const auto& b : by_begin) {
    for (; ended < by_end.size() && by_end[ended].answered_ns < b.asked_ns;
         ++ended)
      highest = std::max(highest, by_end[ended].token);
    if (b.token <= highest)
      return "token " + std::to_string(b.token) + " of process " +
             std::to_string(b.process) + " was asked for after token " +
             std::to_string(highest) + " had been granted";
  }
  return std::nullopt;
}

/// Two grants of one resource that were both held for certain at one moment,
/// in a history in which no lease ran out; or nothing.
[[nodiscard]] inline std::optional<std::string> find_overlap(
    const std::vector<grant_record>& history) {
  auto by_answer = history;
  std::sort(by_answer.begin(), by_answer.end(),
            [](const auto& a, const auto& b) {
              return a.answered_ns < b.answered_ns;
            });
  std::unordered_map<std::int32_t, const grant_record*> last;
  for (const auto& g : by_answer) {
    const auto [it, first] = last.emplace(g.resource, &g);
    if (first)
      continue;
    if (g.answered_ns < it->second->given_up_ns)
      return "tokens " + std::to_string(it->second->token) + " and " +
             std::to_string(g.token) + " held resource " +
             std::to_string(g.resource) + " at the same time";
    if (g.given_up_ns > it->second->given_up_ns)
      it->second = &g;
  }
  return std::nullopt;
}

}  // namespace lastdoor::testing
