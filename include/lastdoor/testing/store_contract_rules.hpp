// store_contract_rules.hpp: the store contract's rules about tokens, marks
// and owners. See store_contract.hpp.
#pragma once

#include <lastdoor/testing/store_contract_client.hpp>
#include <vector>

namespace lastdoor::testing {

template <class Service>
class StoreContract : public ::testing::Test {
 protected:
  // The mark of the default resource.
  [[nodiscard]] std::int64_t mark_now() {
    return store_->read_mark(resource("stock")).value().value();
  }
  [[nodiscard]] std::string write(const terms& t, const statement& s,
                                  const write_options& o = {}) {
    return outcome_of(store_->write(granted(t), s, o));
  }
  [[nodiscard]] std::int64_t qty(std::string_view id) {
    return service_.read(id).value().qty;
  }
  [[nodiscard]] std::string now(std::string_view id) {
    return snapshot(service_, *store_, id);
  }

  Service service_;
  std::unique_ptr<store> store_ = service_.connect();
};

TYPED_TEST_SUITE_P(StoreContract);

TYPED_TEST_P(StoreContract, G4_OlderTokenIsRefusedAndChangesNothing) {
  ASSERT_EQ(this->write({.token = 5}, bring_qty("a", 50)), "ok");
  const auto before = this->now("a");
  std::vector<statement> attempts = {
      put_qty("a", 40),
      bring_qty("a", 40),
      insert("items").key("id", "b").set("qty", 40),
      erase("items").key("id", "a"),
      update("items").keys("id", {"a"}).set("qty", 40),
  };
  if (has_tables<TypeParam>()) {
    attempts.push_back(update("items").every_row().set("qty", 40));
  }
  for (const auto& s : attempts) {
    auto r = this->store_->write(granted({.token = 4, .owner = 'b'}), s);
    ASSERT_EQ(outcome_of(r), "stale_token");
    EXPECT_EQ(r.error().presented(), 4);
    EXPECT_EQ(r.error().seen(), 5);
    EXPECT_EQ(r.error().resource(), "stock");
    EXPECT_TRUE(r.error().ends_lease());
    EXPECT_EQ(this->now("a"), before);
  }
  EXPECT_FALSE(this->service_.read("b"));
}

TYPED_TEST_P(StoreContract, F01_EqualTokenOfItsOwnerWritesAgainAndAgain) {
  EXPECT_EQ(this->write({.token = 5}, bring_qty("a", 1)), "ok");
  EXPECT_EQ(this->write({.token = 5}, put_qty("a", 2)), "ok");
  EXPECT_EQ(this->write({.token = 5}, put_qty("a", 3)), "ok");
  EXPECT_EQ(this->qty("a"), 3);
  EXPECT_EQ(this->write({.token = 5}, erase("items").key("id", "a")), "ok");
  EXPECT_EQ(this->write({.token = 5}, bring_qty("a", 4)), "ok");
  EXPECT_EQ(this->write({.token = 4}, put_qty("a", 9)), "stale_token");
  EXPECT_EQ(this->qty("a"), 4);
}

TYPED_TEST_P(StoreContract, EqualTokenOfAnotherOwnerIsRefused) {
  ASSERT_EQ(this->write({.token = 5}, bring_qty("a", 1)), "ok");
  const auto before = this->now("a");
  EXPECT_EQ(this->write({.token = 5, .owner = 'b'}, put_qty("a", 2)),
            "stale_token");
  EXPECT_EQ(
      outcome_of(this->store_->claim(granted({.token = 5, .owner = 'b'}))),
      "stale_token");
  EXPECT_EQ(this->now("a"), before);
}

TYPED_TEST_P(StoreContract, NewerTokenIsAdmittedAndRaisesTheMark) {
  ASSERT_EQ(this->write({.token = 5}, bring_qty("a", 1)), "ok");
  EXPECT_EQ(this->write({.token = 7, .owner = 'b'}, put_qty("a", 2)), "ok");
  EXPECT_EQ(this->mark_now(), 7);
  EXPECT_EQ(this->service_.read("a").value(), (item{"a", 2, "", 7}));
}

TYPED_TEST_P(StoreContract, G5_ClaimIsABarrierOnRowsNobodyHasTouchedYet) {
  this->service_.put({"a", 1});
  ASSERT_EQ(outcome_of(this->store_->claim(granted({.token = 5}))), "ok");
  ASSERT_EQ(
      outcome_of(this->store_->claim(granted({.token = 6, .owner = 'b'}))),
      "ok");
  EXPECT_EQ(this->mark_now(), 6);
  EXPECT_EQ(this->write({.token = 5}, put_qty("a", 2)), "stale_token");
  EXPECT_EQ(this->service_.read("a").value(), (item{"a", 1, "", 0}));
}

TYPED_TEST_P(StoreContract, ClaimIsRepeatableAndNeverLowers) {
  EXPECT_EQ(this->mark_now(), 0);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(outcome_of(this->store_->claim(granted({.token = 9}))), "ok");
    EXPECT_EQ(this->mark_now(), 9);
  }
  auto late = this->store_->claim(granted({.token = 8}));
  ASSERT_EQ(outcome_of(late), "stale_token");
  EXPECT_EQ(late.error().presented(), 8);
  EXPECT_EQ(late.error().seen(), 9);
  EXPECT_EQ(this->mark_now(), 9);
}

TYPED_TEST_P(StoreContract, TokensWorkAtBothEdgesOfTheirRange) {
  EXPECT_EQ(this->write({.token = 1}, bring_qty("a", 1)), "ok");
  EXPECT_EQ(this->write({.token = fencing_token::max - 1}, put_qty("a", 2)),
            "ok");
  EXPECT_EQ(this->write({.token = fencing_token::max}, put_qty("a", 3)), "ok");
  EXPECT_EQ(this->mark_now(), fencing_token::max);
  EXPECT_EQ(this->service_.read("a").value().fence, fencing_token::max);
  EXPECT_EQ(this->write({.token = fencing_token::max - 1}, put_qty("a", 4)),
            "stale_token");
  EXPECT_EQ(this->qty("a"), 3);
}

TYPED_TEST_P(StoreContract, TwoResourcesAreIndependent) {
  const terms one{.token = 9, .resource = "one"};
  const terms two{.token = 3, .resource = "two", .owner = 'b'};
  EXPECT_EQ(this->write(one, bring_qty("a", 1)), "ok");
  EXPECT_EQ(this->write(two, bring_qty("b", 1)), "ok");
  EXPECT_EQ(this->write(one, put_qty("a", 2)), "ok");
  EXPECT_EQ(this->store_->read_mark(resource("two")).value().value(), 3);
  // A row belongs to one resource; another one's lower token is stale there.
  EXPECT_EQ(this->write(two, put_qty("a", 7)), "stale_token");
  EXPECT_EQ(this->qty("a"), 2);
}

TYPED_TEST_P(StoreContract, TokensOfAnotherSourceAreRefused) {
  ASSERT_EQ(this->write({.token = 5}, bring_qty("a", 1)), "ok");
  const auto before = this->now("a");
  const terms foreign{.token = 99, .owner = 'b', .source = "test/two"};
  EXPECT_EQ(this->write(foreign, put_qty("a", 2)), "wrong_source");
  EXPECT_EQ(outcome_of(this->store_->claim(granted(foreign))), "wrong_source");
  EXPECT_EQ(this->now("a"), before);
}

TYPED_TEST_P(StoreContract, HandOverMovesMarksAndRetiresTheSource) {
  ASSERT_EQ(this->write({.token = 5}, bring_qty("a", 1)), "ok");
  ASSERT_EQ(this->write({.token = 8, .resource = "other"}, bring_qty("b", 1)),
            "ok");
  const auto from = source_name::parse("test/one").value();
  const auto to = source_name::parse("test/two").value();
  EXPECT_EQ(this->store_->highest_mark().value().value(), 8);
  EXPECT_EQ(this->store_->hand_over(from, to).value(), 2);
  EXPECT_EQ(this->mark_now(), 5);

  EXPECT_EQ(this->write({.token = 6}, put_qty("a", 2)), "wrong_source");
  EXPECT_EQ(this->write({.token = 5}, put_qty("a", 2)), "wrong_source");
  // Also where the store has no mark to compare with.
  EXPECT_EQ(this->write({.token = 6, .resource = "new"}, bring_qty("c", 2)),
            "wrong_source");
  EXPECT_EQ(this->write({.token = 4, .owner = 'b', .source = "test/two"},
                        put_qty("a", 2)),
            "stale_token");
  EXPECT_EQ(this->write({.token = 9, .owner = 'b', .source = "test/two"},
                        put_qty("a", 3)),
            "ok");

  EXPECT_EQ(this->store_->hand_over(from, to).value(), 0);  // a repeat
  EXPECT_EQ(outcome_of(this->store_->hand_over(to, from)), "invalid_argument");
  EXPECT_EQ(outcome_of(this->store_->hand_over(to, to)), "invalid_argument");
}

TYPED_TEST_P(StoreContract, ListsMarksInOrderPageByPage) {
  std::vector<std::string> names;
  for (const char* name : {"b", "a/2", "a", "\xc3\xa9", "Z"}) {
    ASSERT_EQ(outcome_of(this->store_->claim(granted({.resource = name}))),
              "ok");
  }
  std::string after;
  for (;;) {
    const auto page = this->store_->list_marks(after, 2).value();
    ASSERT_LE(page.size(), 2U);
    if (page.empty()) {
      break;
    }
    for (const auto& m : page) {
      names.push_back(m.resource);
      EXPECT_EQ(m.token.value(), 1);
      EXPECT_EQ(m.source, "test/one");
    }
    after = names.back();
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"Z", "a", "a/2", "b", "\xc3\xa9"}));
  EXPECT_TRUE(this->store_->list_marks("", 0).value().empty());
}

TYPED_TEST_P(StoreContract, AGrantThatIsOverIsRefusedBeforeAnythingIsSent) {
  auto time = std::make_shared<set_clock>();
  auto local = this->service_.connect(time);
  this->service_.put({"a", 1});
  const auto g =
      granted({.token = 5, .valid_until = time_point{std::chrono::hours{2}}});
  ASSERT_EQ(outcome_of(local->write(g, put_qty("a", 2))), "ok");
  time->set(std::chrono::hours{2});  // validity ends before its last moment
  EXPECT_EQ(outcome_of(local->write(g, put_qty("a", 3))), "lease_lost");
  EXPECT_EQ(outcome_of(local->claim(g)), "lease_lost");
  EXPECT_EQ(this->qty("a"), 2);
  const auto later =
      granted({.token = 6, .valid_until = time_point{std::chrono::hours{1}}});
  EXPECT_EQ(outcome_of(local->claim(later)), "lease_lost");
  EXPECT_EQ(this->mark_now(), 5);
}

REGISTER_TYPED_TEST_SUITE_P(
    StoreContract, G4_OlderTokenIsRefusedAndChangesNothing,
    F01_EqualTokenOfItsOwnerWritesAgainAndAgain,
    EqualTokenOfAnotherOwnerIsRefused, NewerTokenIsAdmittedAndRaisesTheMark,
    G5_ClaimIsABarrierOnRowsNobodyHasTouchedYet,
    ClaimIsRepeatableAndNeverLowers, TokensWorkAtBothEdgesOfTheirRange,
    TwoResourcesAreIndependent, TokensOfAnotherSourceAreRefused,
    HandOverMovesMarksAndRetiresTheSource, ListsMarksInOrderPageByPage,
    AGrantThatIsOverIsRefusedBeforeAnythingIsSent);

}  // namespace lastdoor::testing
