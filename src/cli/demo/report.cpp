#include "cli/demo/report.hpp"

#include <fmt/format.h>

#include "cli/durations.hpp"
#include "cli/table.hpp"

namespace lastdoor::cli {

namespace {

std::string at(const round_report& r, std::int64_t ns, std::string_view what) {
  const auto ms = (ns - r.started_ns) / 1'000'000;
  return fmt::format("  {:>5} ms  {}\n", ms, what);
}

std::string outcome_of(const demo_pause& p) {
  const demo_event& late = *p.late;
  const auto what =
      fmt::format("worker {} writes stock {} under token {}: ", p.worker,
                  late.stock, late.token);
  if (late.kind == demo_event_kind::sold) {
    return what +
           fmt::format("ACCEPTED, the sale of {} is lost", p.taken.quantity);
  }
  if (late.by_store) {
    return what +
           fmt::format("refused, {}; the mark is {}", late.text, late.mark);
  }
  return what + fmt::format("not sent, {}", late.text);
}

json to_json(const demo_pause& p) {
  return json{
      {"sku", p.granted.sku},
      {"worker", p.worker},
      {"token", std::to_string(p.granted.token)},
      {"stopped_ns", p.stopped_ns},
      {"taken_by", *p.taker},
      {"newer_token", std::to_string(p.taken.token)},
      {"taken_ns", p.taken.at_ns},
      {"resumed_ns", p.resumed_ns},
      {"late_write",
       p.late->kind == demo_event_kind::sold
           ? "accepted"
           : (p.late->by_store ? "refused_by_store" : "stopped_by_own_clock")}};
}

std::int64_t units_sold(const round_report& r) {
  std::int64_t sum = 0;
  for (const demo_balance& b : r.balances) {
    sum += b.sold;
  }
  return sum;
}

std::vector<std::string> row(std::string_view name, std::int64_t a,
                             std::int64_t b) {
  return {std::string{name}, std::to_string(a), std::to_string(b)};
}

}  // namespace

demo_verdict judge_demo(const round_report& lock_only,
                        const round_report& fenced) noexcept {
  if (fenced.units_off() != 0 || fenced.counts.accepted != 0) {
    return demo_verdict::wrong;
  }
  const bool exercised = lock_only.units_off() > 0 &&
                         fenced.late_refused() > 0 &&
                         fenced.counts.refused_by_store > 0;
  return exercised ? demo_verdict::shown : demo_verdict::inconclusive;
}

std::string_view name_of(demo_verdict v) noexcept {
  switch (v) {
    case demo_verdict::shown:
      return "shown";
    case demo_verdict::inconclusive:
      return "inconclusive";
    case demo_verdict::wrong:
      return "wrong";
  }
  return "unknown";
}

json to_json(const round_report& r) {
  const round_counts& c = r.counts;
  json skus = json::array();
  for (const demo_balance& b : r.balances) {
    skus.push_back({{"sku", b.sku},
                    {"initial", b.initial},
                    {"sold", b.sold},
                    {"stock", b.stock},
                    {"lost", b.lost()}});
  }
  json out = {{"round", r.fenced ? "lastdoor" : "lock only"},
              {"grants", c.grants},
              {"pauses", c.pauses},
              {"takeovers", c.takeovers},
              {"late_writes",
               {{"stopped_by_own_clock", c.stopped_by_clock},
                {"refused_by_store", c.refused_by_store},
                {"accepted", c.accepted},
                {"not_overtaken", c.not_overtaken}}},
              {"sales", c.sales},
              {"units_sold", units_sold(r)},
              {"units_lost", r.lost_units()},
              {"units_off", r.units_off()},
              {"failures", c.failures},
              {"skus", std::move(skus)}};
  if (!r.first_failure.empty()) {
    out["first_failure"] = r.first_failure;
  }
  if (r.example) {
    out["example"] = to_json(*r.example);
  }
  return out;
}

std::string timeline(const round_report& r, duration ttl) {
  if (!r.example) {
    return "  no worker was overtaken in this round\n";
  }
  const demo_pause& p = *r.example;
  std::string out =
      fmt::format("One pause, {}, TTL {}:\n", demo_resource(p.granted.sku),
                  format_duration(ttl));
  out += at(r, p.granted.at_ns,
            fmt::format("worker {} is granted token {} and reads stock {}",
                        p.worker, p.granted.token, p.granted.stock));
  out += at(r, p.stopped_ns,
            fmt::format("SIGSTOP: process {} is in state T", p.pid));
  out +=
      at(r, p.taken.at_ns,
         fmt::format("worker {} holds token {}, sells {} and writes stock "
                     "{}",
                     *p.taker, p.taken.token, p.taken.quantity, p.taken.stock));
  out += at(r, p.resumed_ns, "SIGCONT");
  out += at(r, p.late->at_ns, outcome_of(p));
  return out;
}

std::string comparison(const round_report& lock_only,
                       const round_report& fenced) {
  const round_counts& a = lock_only.counts;
  const round_counts& b = fenced.counts;
  std::vector<std::vector<std::string>> rows{
      {"", "lock only", "lastdoor"},
      row("grants", a.grants, b.grants),
      row("holders stopped past their TTL", a.pauses, b.pauses),
      row("overtaken meanwhile", a.takeovers, b.takeovers),
      row("their late writes, stopped by own clock", a.stopped_by_clock,
          b.stopped_by_clock),
      row("their late writes, refused by the store", a.refused_by_store,
          b.refused_by_store),
      row("their late writes, accepted", a.accepted, b.accepted),
      row("sales", a.sales, b.sales),
      row("units sold by the orders", units_sold(lock_only),
          units_sold(fenced)),
      row("units sold but still in stock", lock_only.lost_units(),
          fenced.lost_units())};
  return table(rows, {1, 2});
}

std::string verdict_text(const round_report& lock_only,
                         const round_report& fenced) {
  switch (judge_demo(lock_only, fenced)) {
    case demo_verdict::wrong:
      return fmt::format(
          "WRONG: with the fence, stock and orders differ by {} units and {} "
          "late\nwrites were accepted. This is a bug in lastdoor.\n",
          fenced.units_off(), fenced.counts.accepted);
    case demo_verdict::shown:
      return fmt::format(
          "The lock alone lost {} units. With the fence stock and orders "
          "agree to the\nunit: the store refused {} late writes, the holders' "
          "own clock stopped {}.\n",
          lock_only.units_off(), fenced.counts.refused_by_store,
          fenced.counts.stopped_by_clock);
    case demo_verdict::inconclusive:
      break;
  }
  if (lock_only.units_off() == 0) {
    return "This time the lock alone happened to lose nothing, so nothing is "
           "shown.\nTry again, or longer: --seconds 10.\n";
  }
  return "This time no late write got as far as the store, so its refusal is "
         "not shown.\nTry again, or longer: --seconds 10.\n";
}

}  // namespace lastdoor::cli
