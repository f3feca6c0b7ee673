// pg_fence.hpp: a private database whose tables a test fences.
#pragma once

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <string_view>

#include "support/pg_ledger.hpp"

namespace lastdoor::support {

class fence_test : public ::testing::Test {
 protected:
  void SetUp() override {
    LASTDOOR_NEEDS_POSTGRES();
    db_.emplace();
  }
  [[nodiscard]] result<fence_plan> plan(const fence_request& r) const {
    return postgres::plan_fence(db_->url(), r);
  }
  [[nodiscard]] result<fence_plan> add(const fence_request& r) const {
    return postgres::add_fence(db_->url(), r);
  }
  // What the catalogue says of a table's fence, as one text.
  [[nodiscard]] std::string fence_of(const std::string& table) const {
    const auto oid = "'" + table + "'::regclass";
    return db_->value(
               "SELECT string_agg(format_type(atttypid, -1) || ' ' || "
               "attnotnull || ' ' || pg_get_expr(d.adbin, d.adrelid), ',') "
               "FROM pg_attribute a JOIN pg_attrdef d ON d.adrelid = "
               "a.attrelid AND d.adnum = a.attnum WHERE a.attrelid = " +
               oid + " AND attname = 'fence_token'") +
           "; " +
           db_->value(
               "SELECT coalesce(string_agg(conname || ' ' || convalidated, "
               "','), '-') FROM pg_constraint WHERE conrelid = " +
               oid + " AND conname LIKE 'lastdoor%'") +
           "; " +
           db_->value(
               "SELECT coalesce(string_agg(tgname || ' ' || tgenabled::text || "
               "' ' "
               "|| encode(tgargs, 'escape'), ', ' ORDER BY tgname), '-') FROM "
               "pg_trigger WHERE tgrelid = " +
               oid + " AND tgname LIKE 'zzz_lastdoor%'");
  }
  static constexpr std::string_view fenced_only =
      "bigint true 0; lastdoor_fence_range true; -";
  static constexpr std::string_view strictly =
      "bigint true 0; lastdoor_fence_range true; "
      "zzz_lastdoor_guard A strict\\000fence_token\\000, "
      "zzz_lastdoor_truncate A strict\\000";

  std::optional<ledger_database> db_;
};

}  // namespace lastdoor::support
