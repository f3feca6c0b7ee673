// store_contract_writes.hpp: the store contract's rules about the outcome of
// built writes. See store_contract.hpp.
#pragma once

#include <lastdoor/testing/store_contract_rules.hpp>

namespace lastdoor::testing {

template <class Service>
class StoreContractWrites : public StoreContract<Service> {};

TYPED_TEST_SUITE_P(StoreContractWrites);

TYPED_TEST_P(StoreContractWrites, FirstWriteOfAMissingRow) {
  EXPECT_EQ(this->write({}, put_qty("a", 1)), "missing");
  EXPECT_EQ(this->write({}, erase("items").key("id", "a")), "missing");
  EXPECT_FALSE(this->service_.read("a"));
  EXPECT_EQ(this->write({}, insert("items").key("id", "a").set("qty", 1)),
            "ok");
  EXPECT_EQ(this->write({}, bring_qty("b", 2)), "ok");
  EXPECT_EQ(this->service_.read("a").value(), (item{"a", 1, "", 1}));
  EXPECT_EQ(this->service_.read("b").value(), (item{"b", 2, "", 1}));
}

TYPED_TEST_P(StoreContractWrites, InsertOfARowThatIsThereIsRefused) {
  this->service_.put({"a", 1});
  const auto s = insert("items").key("id", "a").set("qty", 2);
  EXPECT_EQ(this->write({.token = 5}, s), "precondition_failed");
  EXPECT_EQ(this->service_.read("a").value(), (item{"a", 1, "", 0}));
}

TYPED_TEST_P(StoreContractWrites, RequirementIsCheckedAndItsColumnNamed) {
  this->service_.put({"a", 2, "x"});
  auto r = this->store_->write(granted({}), update("items")
                                                .key("id", "a")
                                                .subtract("qty", 3)
                                                .require("note", equals("x"))
                                                .require("qty", at_least(3)));
  ASSERT_EQ(outcome_of(r), "precondition_failed");
  EXPECT_NE(r.error().message().find("qty"), std::string::npos);
  EXPECT_EQ(this->service_.read("a").value(), (item{"a", 2, "x", 0}));
  EXPECT_EQ(
      this->write({}, update("items").key("id", "a").subtract("qty", 2).require(
                          "qty", at_least(2))),
      "ok");
  EXPECT_EQ(this->qty("a"), 0);
}

TYPED_TEST_P(StoreContractWrites, AStaleWriteIsNeverTakenForARequirement) {
  ASSERT_EQ(this->write({.token = 9}, bring_qty("a", 1)), "ok");
  EXPECT_EQ(
      this->write({.token = 8}, put_qty("a", 2).require("qty", equals(7))),
      "stale_token");
}

TYPED_TEST_P(StoreContractWrites, SumsAndReturnedColumns) {
  EXPECT_EQ(this->write({}, upsert("items").key("id", "a").subtract("qty", 3)),
            "ok");
  EXPECT_EQ(this->qty("a"), -3);
  auto r = this->store_->write(
      granted({}),
      upsert("items").key("id", "a").add("qty", 10).returning({"qty", "id"}));
  ASSERT_EQ(outcome_of(r), "ok");
  EXPECT_EQ(r->rows, 1);
  EXPECT_FALSE(r->already_applied);
  ASSERT_EQ(r->returned.size(), 1U);
  EXPECT_EQ(r->returned[0], (std::vector<value>{7, "a"}));
  EXPECT_EQ(this->write({}, upsert("items").key("id", "a").subtract("qty", 2)),
            "ok");
  EXPECT_EQ(this->qty("a"), 5);
}

TYPED_TEST_P(StoreContractWrites, F05_LateInsertAfterDeleteIsStale) {
  const auto late = insert("items").key("id", "a").set("qty", 1);
  ASSERT_EQ(this->write({.token = 1}, bring_qty("a", 1)), "ok");
  ASSERT_EQ(
      this->write({.token = 2, .owner = 'b'}, erase("items").key("id", "a")),
      "ok");
  EXPECT_EQ(this->write({.token = 1}, late), "stale_token");
  EXPECT_EQ(this->write({.token = 1}, bring_qty("a", 1)), "stale_token");
  EXPECT_FALSE(this->service_.read("a"));
  EXPECT_EQ(this->write({.token = 3, .owner = 'c'}, bring_qty("a", 3)), "ok");
  EXPECT_EQ(
      this->write({.token = 2, .owner = 'b'}, erase("items").key("id", "a")),
      "stale_token");
  EXPECT_EQ(this->qty("a"), 3);
}

TYPED_TEST_P(StoreContractWrites, F05_DeleteOfAnAbsentRowStillRaisesTheMark) {
  EXPECT_EQ(this->write({.token = 5}, erase("items").key("id", "a")),
            "missing");
  EXPECT_EQ(this->write({.token = 4}, bring_qty("a", 1)), "stale_token");
  EXPECT_FALSE(this->service_.read("a"));
}

TYPED_TEST_P(StoreContractWrites, F06_SeveralRowsAreAllOrNothing) {
  const terms one{.token = 1, .resource = "one"};
  const terms nine{.token = 9, .resource = "nine", .owner = 'b'};
  ASSERT_EQ(this->write(one, bring_qty("a", 1)), "ok");
  ASSERT_EQ(this->write(nine, bring_qty("b", 1)), "ok");
  ASSERT_EQ(this->write(one, bring_qty("c", 1)), "ok");
  const terms five{.token = 5, .resource = "five", .owner = 'c'};
  std::vector<statement> attempts = {
      update("items").keys("id", {"a", "b", "c"}).set("qty", 7),
      erase("items").keys("id", {"c", "b", "a"})};
  if (has_tables<TypeParam>()) {
    attempts.push_back(update("items").every_row().set("qty", 7));
  }
  for (const auto& s : attempts) {
    auto r = this->store_->write(granted(five), s);
    ASSERT_EQ(outcome_of(r), "stale_token");
    EXPECT_NE(r.error().message().find("'b'"), std::string::npos)
        << r.error().message();
    EXPECT_EQ(r.error().seen(), 9);
    for (const char* id : {"a", "b", "c"}) {
      EXPECT_EQ(this->qty(id), 1);
    }
    EXPECT_TRUE(this->store_->read_mark(resource("five")).value().none());
  }
  const terms ten{.token = 10, .resource = "five", .owner = 'd'};
  auto r = this->store_->write(
      granted(ten), update("items").keys("id", {"a", "b", "c"}).set("qty", 7));
  ASSERT_EQ(outcome_of(r), "ok");
  EXPECT_EQ(r->rows, 3);
  EXPECT_EQ(this->qty("b"), 7);
}

TYPED_TEST_P(StoreContractWrites, F06_EachValueOfAListMustNameARow) {
  this->service_.put({"a", 1});
  this->service_.put({"b", 1});
  auto r = this->store_->write(
      granted({}), update("items").keys("id", {"a", "nobody"}).set("qty", 2));
  ASSERT_EQ(outcome_of(r), "missing");
  EXPECT_NE(r.error().message().find("nobody"), std::string::npos);
  EXPECT_EQ(this->qty("a"), 1);
  EXPECT_EQ(this->write(
                {}, update("items").keys("id", {"a", "b", "a"}).add("qty", 1)),
            "ok");
  EXPECT_EQ(this->qty("a"), 2);
}

TYPED_TEST_P(StoreContractWrites, F06_OneRowThatFailsARequirementStopsAll) {
  this->service_.put({"a", 5});
  this->service_.put({"b", 1});
  const auto take = update("items")
                        .keys("id", {"a", "b"})
                        .subtract("qty", 3)
                        .require("qty", at_least(3));
  EXPECT_EQ(this->write({}, take), "precondition_failed");
  EXPECT_EQ(this->qty("a"), 5);
  EXPECT_EQ(this->qty("b"), 1);
}

TYPED_TEST_P(StoreContractWrites, F08_ANumberedWriteIsAppliedOnce) {
  this->service_.put({"a", 10});
  const auto take = update("items").key("id", "a").subtract("qty", 1);
  const auto numbered = [&](std::int64_t n) {
    return this->store_->write(granted({.token = 5}), take, {.sequence = n});
  };
  EXPECT_FALSE(numbered(1).value().already_applied);
  EXPECT_TRUE(numbered(1).value().already_applied);
  EXPECT_FALSE(numbered(2).value().already_applied);
  EXPECT_TRUE(numbered(1).value().already_applied);
  EXPECT_EQ(this->qty("a"), 8);
  EXPECT_EQ(this->store_->list_marks("", 9).value()[0].last_sequence, 2);
  // The next grant counts anew.
  auto r = this->store_->write(granted({.token = 6, .owner = 'b'}), take,
                               {.sequence = 1});
  EXPECT_FALSE(r.value().already_applied);
  EXPECT_EQ(this->qty("a"), 7);
  EXPECT_EQ(this->write({.token = 6, .owner = 'b'}, take, {.sequence = 0}),
            "invalid_argument");
}

TYPED_TEST_P(StoreContractWrites, F08_AFailedNumberedWriteMayBeRepeated) {
  const auto s = put_qty("a", 1);
  EXPECT_EQ(this->write({}, s, {.sequence = 1}), "missing");
  this->service_.put({"a", 0});
  EXPECT_EQ(this->write({}, s, {.sequence = 1}), "ok");
  EXPECT_EQ(this->qty("a"), 1);
}

TYPED_TEST_P(StoreContractWrites, X04_TwoCopiesOfAHolderWriteANumberOnce) {
  this->service_.put({"a", 0});
  auto copy = this->service_.connect();
  const auto g = granted({.token = 5});
  ASSERT_EQ(
      outcome_of(this->store_->write(g, put_qty("a", 1), {.sequence = 1})),
      "ok");
  auto second = copy->write(g, put_qty("a", 2), {.sequence = 1});
  EXPECT_TRUE(second.value().already_applied);
  EXPECT_EQ(this->qty("a"), 1);
}

TYPED_TEST_P(StoreContractWrites, F11_RowsFromBeforeTheFenceCanBeWritten) {
  this->service_.put({"a", 1});
  EXPECT_EQ(this->write({.token = 5}, put_qty("a", 2)), "ok");
  EXPECT_EQ(this->service_.read("a").value().fence, 5);
}

TYPED_TEST_P(StoreContractWrites, S05_P15_UpsertBelowTheFenceIsStale) {
  const terms nine{.token = 9, .resource = "nine"};
  ASSERT_EQ(this->write(nine, bring_qty("a", 9)), "ok");
  const terms five{.token = 5, .resource = "five", .owner = 'b'};
  auto r =
      this->store_->write(granted(five), bring_qty("a", 5).returning({"qty"}));
  ASSERT_EQ(outcome_of(r), "stale_token");
  EXPECT_EQ(r.error().seen(), 9);
  EXPECT_EQ(this->qty("a"), 9);
  EXPECT_TRUE(this->store_->read_mark(resource("five")).value().none());
}

TYPED_TEST_P(StoreContractWrites, StatementsThatMakeNoSenseAreRefused) {
  for (const auto& s :
       {update("items").set("qty", 1), update("items").key("id", "a"),
        update("").key("id", "a").set("qty", 1),
        update("items").keys("id", {}).set("qty", 1),
        update("items").key("id", "a").set("id", "b"),
        update("items").key("id", "a").set("fence_token", 99),
        update("items").key("id", nullptr).set("qty", 1)}) {
    EXPECT_EQ(this->write({.token = 5}, s), "invalid_argument");
  }
  EXPECT_EQ(this->mark_now(), 0);
  if (!has_tables<TypeParam>()) {
    return;
  }
  EXPECT_EQ(this->write({}, update("nowhere").key("id", 1).set("a", 1)),
            "schema_mismatch");
  EXPECT_EQ(this->write({}, update("items").key("id", 1).set("qtyy", 1)),
            "schema_mismatch");
  EXPECT_EQ(this->write({}, put_qty("a", 1).require("qtyy", at_least(1))),
            "schema_mismatch");
}

REGISTER_TYPED_TEST_SUITE_P(
    StoreContractWrites, FirstWriteOfAMissingRow,
    InsertOfARowThatIsThereIsRefused, RequirementIsCheckedAndItsColumnNamed,
    AStaleWriteIsNeverTakenForARequirement, SumsAndReturnedColumns,
    F05_LateInsertAfterDeleteIsStale, F05_DeleteOfAnAbsentRowStillRaisesTheMark,
    F06_SeveralRowsAreAllOrNothing, F06_EachValueOfAListMustNameARow,
    F06_OneRowThatFailsARequirementStopsAll, F08_ANumberedWriteIsAppliedOnce,
    F08_AFailedNumberedWriteMayBeRepeated,
    X04_TwoCopiesOfAHolderWriteANumberOnce,
    F11_RowsFromBeforeTheFenceCanBeWritten, S05_P15_UpsertBelowTheFenceIsStale,
    StatementsThatMakeNoSenseAreRefused);

}  // namespace lastdoor::testing
