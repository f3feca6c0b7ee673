// demo_report.hpp: what `lastdoor demo --json` has to show.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <nlohmann/json.hpp>

namespace lastdoor::support {

/// Units that stock and sales of a round disagree by, added up anew from what
/// the store held, SKU by SKU.
[[nodiscard]] inline std::int64_t units_off(const nlohmann::json& round) {
  std::int64_t off = 0;
  for (const auto& sku : round.at("skus")) {
    const std::int64_t lost = sku.at("stock").get<std::int64_t>() -
                              (sku.at("initial").get<std::int64_t>() -
                               sku.at("sold").get<std::int64_t>());
    EXPECT_EQ(sku.at("lost"), lost);
    off += lost < 0 ? -lost : lost;
  }
  EXPECT_EQ(round.at("units_off"), off);
  return off;
}

/// The lock alone loses units to late writes; lastdoor refuses those, and
/// loses none.
inline void expect_shown(const nlohmann::json& told) {
  EXPECT_EQ(told.at("verdict"), "shown");
  const auto& lock_only = told.at("rounds").at(0);
  const auto& fenced = told.at("rounds").at(1);
  for (const auto* round : {&lock_only, &fenced}) {
    EXPECT_EQ(round->at("failures"), 0) << round->dump();
    EXPECT_GT(round->at("takeovers"), 0);
    EXPECT_GT(round->at("sales"), 0);
  }
  EXPECT_GT(units_off(lock_only), 0);
  EXPECT_GT(lock_only.at("late_writes").at("accepted"), 0);
  EXPECT_EQ(units_off(fenced), 0);
  EXPECT_EQ(fenced.at("late_writes").at("accepted"), 0);
  EXPECT_GT(fenced.at("late_writes").at("refused_by_store"), 0);
}

}  // namespace lastdoor::support
