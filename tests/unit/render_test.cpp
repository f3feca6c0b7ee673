// A statement as SQL text of each dialect: golden texts, and what is refused
// before there is a text.
#include "fencing/render.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace lastdoor::fencing {
namespace {

using origin = slot::origin;

render_options in(dialect d, bool ledger = false) {
  render_options o;
  o.target = d;
  o.ledger = ledger;
  return o;
}

std::string outcome(const result<void>& r) {
  return r ? "ok" : std::string{name_of(r.code())};
}

std::string text(const statement& s, const render_options& o) {
  EXPECT_EQ(outcome(check_shape(s, o)), "ok");
  return render_write(s, o).sql;
}

statement take_three() {
  return update("inventory")
      .key("sku", "1001")
      .subtract("qty", 3)
      .set("note", "x")
      .require("qty", at_least(3))
      .returning({"qty"});
}

// SQLite's sum, or the refusal of one that does not fit.
std::string sum(const std::string& column, const std::string& sign,
                const std::string& operand) {
  const std::string plain = column + sign + operand;
  return "CASE WHEN typeof(" + column + ") = 'integer' AND typeof(" + operand +
         ") = 'integer' AND typeof(" + plain +
         ") = 'real' THEN abs(-9223372036854775807 - (typeof(" + column +
         ") = 'integer')) ELSE " + plain + " END";
}

TEST(RenderUpdate, SqliteChecksFenceAndLedgerInOneStatement) {
  const auto r = render_write(take_three(), in(dialect::sqlite, true));
  EXPECT_EQ(
      r.sql,
      R"(UPDATE OR ABORT "inventory" SET "qty" = )" +
          sum(R"("inventory"."qty")", " - ", "?1") +
          R"(, )"
          R"("note" = ?2, "fence_token" = ?3 WHERE "inventory"."sku" = ?4 )"
          R"(AND "inventory"."qty" >= ?5 )"
          R"(AND +"inventory"."fence_token" <= +?3 )"
          R"(AND EXISTS (SELECT 1 FROM "main"."lastdoor_marks" AS m )"
          R"(WHERE m.resource = ?6 AND m.token = ?3 AND m.owner = ?7 )"
          R"(AND m.source = ?8) RETURNING "inventory"."qty")");
  const std::vector<slot> slots{
      {origin::assignment, 0}, {origin::assignment, 1},  {origin::token},
      {origin::match, 0},      {origin::requirement, 0}, {origin::resource},
      {origin::owner},         {origin::source}};
  EXPECT_EQ(r.slots, slots);
}

TEST(RenderUpdate, PostgresTakesTheRowLockOfTheLedger) {
  EXPECT_EQ(
      text(take_three(), in(dialect::postgres, true)),
      R"(UPDATE "inventory" SET "qty" = "inventory"."qty" - $1, )"
      R"("note" = $2, "fence_token" = $3 WHERE "inventory"."sku" = $4 )"
      R"(AND "inventory"."qty" >= $5 AND "inventory"."fence_token" <= $3 )"
      R"(AND (SELECT true FROM lastdoor.marks AS m )"
      R"(WHERE m.resource = $6 AND m.token = $3 AND m.owner = $7 )"
      R"(AND m.source = $8 FOR SHARE) )"
      R"(RETURNING "inventory"."qty")");
}

TEST(RenderUpdate, PostgresLeavesEvidenceForAGuard) {
  auto o = in(dialect::postgres, true);
  o.evidence = true;
  EXPECT_THAT(text(take_three(), o),
              ::testing::HasSubstr(
                  R"(AND (SELECT pg_catalog.set_config('lastdoor.evidence', )"
                  R"(pg_catalog.concat(pg_catalog.pg_current_xact_id(), ' ', )"
                  R"(m.token, ' ', m.resource), true) IS NOT NULL )"
                  R"(FROM lastdoor.marks AS m WHERE )"));
}

TEST(RenderUpdate, L11_MariadbAssignsTheFenceLast) {
  const auto r = render_write(take_three(), in(dialect::mariadb));
  EXPECT_EQ(r.sql,
            "UPDATE `inventory` SET `qty` = `inventory`.`qty` - ?, "
            "`note` = ?, `fence_token` = ? WHERE `inventory`.`sku` = ? "
            "AND `inventory`.`qty` >= ? AND `inventory`.`fence_token` <= ?");
  EXPECT_EQ(r.slots.size(), 6U);
  EXPECT_EQ(r.slots[2], slot{origin::token});
  EXPECT_EQ(r.slots[5], slot{origin::token});
}

TEST(RenderUpdate, OncePerGrantIsStrictlyBelow) {
  auto o = in(dialect::postgres);
  o.rule = write_rule::once_per_grant;
  EXPECT_EQ(text(update("t").key("id", 1).set("a", 2), o),
            R"(UPDATE "t" SET "a" = $1, "fence_token" = $2 )"
            R"(WHERE "t"."id" = $3 AND "t"."fence_token" < $2)");
}

TEST(RenderUpdate, EveryRowAndSeveralKeys) {
  EXPECT_EQ(text(update("t").every_row().set("a", 2), in(dialect::postgres)),
            R"(UPDATE "t" SET "a" = $1, "fence_token" = $2 )"
            R"(WHERE "t"."fence_token" <= $2)");
  EXPECT_EQ(text(update("t").key("x", 1).keys("id", {1, 2, 3}).set("a", 2),
                 in(dialect::postgres)),
            R"(UPDATE "t" SET "a" = $1, "fence_token" = $2 )"
            R"(WHERE "t"."x" = $3 AND "t"."id" IN ($4, $5, $6) )"
            R"(AND "t"."fence_token" <= $2)");
}

TEST(RenderUpdate, EveryConditionHasItsOperator) {
  const auto s = update("t")
                     .key("id", 1)
                     .set("z", 1)
                     .require("a", equals(1))
                     .require("b", differs(1))
                     .require("c", at_least(1))
                     .require("d", at_most(1))
                     .require("e", above(1))
                     .require("f", below(1))
                     .require("g", is_null())
                     .require("h", not_null());
  EXPECT_EQ(text(s, in(dialect::postgres)),
            R"(UPDATE "t" SET "z" = $1, "fence_token" = $2 )"
            R"(WHERE "t"."id" = $3 AND "t"."a" = $4 AND "t"."b" <> $5 )"
            R"(AND "t"."c" >= $6 AND "t"."d" <= $7 AND "t"."e" > $8 )"
            R"(AND "t"."f" < $9 AND "t"."g" IS NULL )"
            R"(AND "t"."h" IS NOT NULL AND "t"."fence_token" <= $2)");
}

TEST(RenderInsert, WithTheLedgerItSelectsBehindTheCondition) {
  const auto s = insert("t").key("id", 1).set("a", 2).returning({"id", "a"});
  EXPECT_EQ(text(s, in(dialect::sqlite)),
            R"(INSERT OR ABORT INTO "t" ("id", "a", "fence_token") )"
            R"(VALUES (?1, ?2, ?3) RETURNING "t"."id", "t"."a")");
  EXPECT_EQ(text(s, in(dialect::sqlite, true)),
            R"(INSERT OR ABORT INTO "t" ("id", "a", "fence_token") )"
            R"(SELECT ?1, ?2, ?3 WHERE EXISTS (SELECT 1 )"
            R"(FROM "main"."lastdoor_marks" AS m WHERE m.resource = ?4 )"
            R"(AND m.token = ?3 AND m.owner = ?5 AND m.source = ?6) )"
            R"(RETURNING "t"."id", "t"."a")");
  EXPECT_EQ(text(s, in(dialect::mariadb, true)),
            "INSERT INTO `t` (`id`, `a`, `fence_token`) SELECT ?, ?, ? "
            "FROM DUAL WHERE EXISTS (SELECT 1 FROM `lastdoor_marks` AS m "
            "WHERE m.resource = ? AND m.token = ? AND m.owner = ? "
            "AND m.source = ? LOCK IN SHARE MODE) RETURNING `id`, `a`");
}

TEST(RenderUpsert, ConditionStandsOnTheTargetRow) {
  const auto s = upsert("t")
                     .key("a", 1)
                     .key("b", 2)
                     .set("c", 3)
                     .add("d", 4)
                     .subtract("e", 5)
                     .require("f", below(6));
  const auto r = render_write(s, in(dialect::sqlite));
  EXPECT_EQ(
      r.sql,
      R"(INSERT OR ABORT INTO "t" ("a", "b", "c", "d", "e", "fence_token") )"
      R"(VALUES (?1, ?2, ?3, ?4, ?5, ?6) ON CONFLICT ("a", "b") DO UPDATE )"
      R"(SET "c" = excluded."c", "d" = )" +
          sum(R"("t"."d")", " + ", R"(excluded."d")") + R"(, "e" = )" +
          sum(R"("t"."e")", " + ", R"(excluded."e")") +
          R"(, )"
          R"("fence_token" = excluded."fence_token" WHERE "t"."f" < ?7 )"
          R"(AND +"t"."fence_token" <= +excluded."fence_token")");
  // An inserted subtraction starts below zero.
  EXPECT_EQ(r.slots[4], (slot{origin::negated, 2}));
}

TEST(RenderUpsert, L11_MariadbConditionsReadTheOldFence) {
  EXPECT_EQ(
      text(upsert("t").key("a", 1).set("c", 3).add("d", 4),
           in(dialect::mariadb)),
      "INSERT INTO `t` (`a`, `c`, `d`, `fence_token`) VALUES (?, ?, ?, ?) "
      "ON DUPLICATE KEY UPDATE "
      "`c` = IF(`t`.`fence_token` <= VALUES(`fence_token`), VALUES(`c`), "
      "`t`.`c`), "
      "`d` = IF(`t`.`fence_token` <= VALUES(`fence_token`), "
      "`t`.`d` + VALUES(`d`), `t`.`d`), "
      "`fence_token` = IF(`t`.`fence_token` <= VALUES(`fence_token`), "
      "VALUES(`fence_token`), `t`.`fence_token`)");
}

TEST(RenderErase, CarriesTheFence) {
  EXPECT_EQ(text(erase("t").key("id", 1).require("a", equals(2)),
                 in(dialect::postgres)),
            R"(DELETE FROM "t" WHERE "t"."id" = $1 AND "t"."a" = $2 )"
            R"(AND "t"."fence_token" <= $3)");
}

TEST(RenderProbe, AsksForFenceRequirementsAndNames) {
  const auto s = take_three();
  const std::vector<std::string> also{"sku"};
  EXPECT_EQ(render_probe(s, in(dialect::sqlite), also).sql,
            R"(SELECT "inventory"."fence_token", "inventory"."qty" >= ?1, )"
            R"("inventory"."sku" FROM "inventory" )"
            R"(WHERE "inventory"."sku" = ?2)");
}

TEST(RenderNames, C08_OddNamesAreQuotedAndInert) {
  const auto s = update(R"(x"; DROP TABLE t; --)")
                     .in_schema("My Schema")
                     .key("a b", 1)
                     .set("Order`", 2);
  EXPECT_EQ(text(s, in(dialect::postgres)),
            R"(UPDATE "My Schema"."x""; DROP TABLE t; --" SET "Order`" = $1, )"
            R"("fence_token" = $2 )"
            R"(WHERE "x""; DROP TABLE t; --"."a b" = $3 )"
            R"(AND "x""; DROP TABLE t; --"."fence_token" <= $2)");
  EXPECT_EQ(text(s, in(dialect::mariadb)),
            "UPDATE `My Schema`.`x\"; DROP TABLE t; --` SET `Order``` = ?, "
            "`fence_token` = ? "
            "WHERE `x\"; DROP TABLE t; --`.`a b` = ? "
            "AND `x\"; DROP TABLE t; --`.`fence_token` <= ?");
}

TEST(RenderNames, DefaultSchemaAndFenceColumn) {
  auto o = in(dialect::sqlite);
  o.default_schema = "main";
  o.fence_column = "Fence \"7\"";
  EXPECT_EQ(text(erase("t").key("id", 1), o),
            R"(DELETE FROM "main"."t" WHERE "t"."id" = ?1 )"
            R"(AND +"t"."Fence ""7""" <= +?2)");
}

struct refusal {
  const char* why;
  statement s;
  dialect d{dialect::sqlite};
};

std::vector<refusal> refusals() {
  const std::string long_name(64, 'n');
  const std::string longer(65, 'n');
  const auto one = [](std::string table) {
    return update(std::move(table)).key("id", 1).set("a", 1);
  };
  return {
      {"no table", one("")},
      {"NUL in a name", one(std::string{"a\0b", 3})},
      {"name not UTF-8", one("\xff")},
      {"cut off by Postgres", one(long_name), dialect::postgres},
      {"too long for MariaDB", one(longer), dialect::mariadb},
      {"blank at the end", one("t "), dialect::mariadb},
      {"above U+FFFF", one("\xf0\x9f\x98\x80"), dialect::mariadb},
      {"no column name", update("t").key("", 1).set("a", 1)},
      {"no returned name",
       update("t").key("id", 1).set("a", 1).returning({""})},
      {"no key", update("t").set("a", 1)},
      {"nothing to set", update("t").key("id", 1)},
      {"no key to erase", erase("t")},
      {"erase with a value", erase("t").key("id", 1).set("a", 1)},
      {"key and every row", update("t").key("id", 1).every_row().set("a", 1)},
      {"empty list", update("t").keys("id", {}).set("a", 1)},
      {"fence assigned", update("t").key("id", 1).set("fence_token", 9)},
      {"fence assigned, other case",
       update("t").key("id", 1).set("FENCE_Token", 9)},
      {"fence as key", update("t").key("fence_token", 1).set("a", 1)},
      {"key assigned", update("t").key("id", 1).set("id", 2)},
      {"key assigned, other case", update("t").key("id", 1).set("ID", 2)},
      {"assigned twice", update("t").key("id", 1).set("a", 1).add("A", 2)},
      {"key twice", update("t").key("id", 1).key("id", 2).set("a", 1)},
      {"empty insert", insert("t")},
      {"insert of a list", insert("t").keys("id", {1, 2})},
      {"insert with requirement",
       insert("t").key("id", 1).require("a", equals(1))},
      {"insert that adds", insert("t").key("id", 1).add("a", 1)},
      {"upsert without key", upsert("t").set("a", 1)},
      {"upsert of every row", upsert("t").every_row().set("a", 1)},
      {"upsert into excluded", upsert("Excluded").key("id", 1)},
      {"MariaDB requirement that moves",
       upsert("t").key("id", 1).set("a", 1).require("a", equals(0)),
       dialect::mariadb},
      {"too many values",
       update("t").keys("id", std::vector<value>(40'000)).set("a", 1)},
  };
}

TEST(RenderCheck, RefusesWhatMakesNoSense) {
  for (const auto& r : refusals()) {
    EXPECT_EQ(outcome(check_shape(r.s, in(r.d))), "invalid_argument") << r.why;
  }
}

TEST(RenderCheck, LongNamesPassWhereTheyAreNotCut) {
  const std::string name(200, 'n');
  EXPECT_EQ(outcome(check_shape(update(name).key("id", 1).set("a", 1),
                                in(dialect::sqlite))),
            "ok");
  EXPECT_EQ(
      outcome(check_shape(update(name.substr(0, 63)).key("id", 1).set("a", 1),
                          in(dialect::postgres))),
      "ok");
}

TEST(RenderCheck, PostgresTellsNamesApartByCase) {
  EXPECT_EQ(
      outcome(check_shape(update("t").key("id", 1).set("a", 1).set("A", 2),
                          in(dialect::postgres))),
      "ok");
}

TEST(RenderCheck, RefusesValuesThatCannotBeKept) {
  const double nan = std::nan("");
  const double infinite = std::numeric_limits<double>::infinity();
  const auto least = std::numeric_limits<std::int64_t>::min();
  const statement bad[] = {
      update("t").key("id", nullptr).set("a", 1),
      update("t").key("id", "\xff").set("a", 1),
      update("t").key("id", 1).set("a", std::string{"a\0b", 3}),
      update("t").key("id", 1).set("a", nan),
      update("t").key("id", 1).set("a", infinite),
      update("t").key("id", 1).add("a", "three"),
      update("t").key("id", 1).add("a", nullptr),
      update("t").key("id", 1).subtract("a", least),
      update("t").key("id", 1).set("a", 1).require("b", equals("\xc0")),
  };
  for (const auto& s : bad) {
    EXPECT_EQ(outcome(check_values(s)), "invalid_argument");
  }
  EXPECT_EQ(outcome(check_values(update("t")
                                     .key("id", "schl\xc3\xbcssel")
                                     .set("a", nullptr)
                                     .set("b", blob{std::byte{0xff}})
                                     .add("c", 1.5))),
            "ok");
}

TEST(RenderShape, ValuesDoNotMatterAndNamesDo) {
  const auto a = update("t").key("id", 1).set("a", "secret");
  const auto b = update("t").key("id", 2).set("a", nullptr);
  EXPECT_TRUE(same_shape(a, b));
  EXPECT_EQ(shape_hash(a), shape_hash(b));
  const statement others[] = {
      erase("t").key("id", 1).set("a", 1),
      update("u").key("id", 1).set("a", 1),
      update("t").in_schema("s").key("id", 1).set("a", 1),
      update("t").key("ie", 1).set("a", 1),
      update("t").keys("id", {1, 2}).set("a", 1),
      update("t").key("id", 1).set("b", 1),
      update("t").key("id", 1).add("a", 1),
      update("t").key("id", 1).set("a", 1).require("a", above(1)),
      update("t").key("id", 1).set("a", 1).returning({"a"}),
      update("t").every_row().set("a", 1),
  };
  for (const auto& other : others) {
    EXPECT_FALSE(same_shape(a, other));
  }
}

TEST(RenderShape, TheShapeKeepsNoValue) {
  const auto s = upsert("t")
                     .key("id", "secret")
                     .set("a", "secret")
                     .subtract("b", 7)
                     .require("c", equals("secret"))
                     .returning({"a"});
  const auto bare = shape_of(s);
  EXPECT_TRUE(same_shape(s, bare));
  EXPECT_TRUE(bare.matches()[0].any_of[0].is_null());
  EXPECT_TRUE(bare.assignments()[0].operand.is_null());
  EXPECT_TRUE(bare.requirements()[0].holds.operand.is_null());
}

}  // namespace
}  // namespace lastdoor::fencing
