// fencing/statement.hpp: one write, as data.
//
// Invariants
//   - Names are always quoted and values always bound: SQL in a name or a
//     value is inert.
//   - The fence is a condition on the target row, in the statement that
//     writes it. Nothing is read first and written later.
//   - A statement that names several rows is all or nothing.
//
// The builder knows no driver. `render.hpp` in src/fencing turns a statement
// into the SQL of a dialect; a store adds the token and runs it.
//
// Rejected: SQL text with a fence spliced in by rewriting (a parser per
// dialect, and the day it errs a write goes through unfenced); a query
// language of our own (for anything beyond these verbs use `transaction`,
// where any SQL runs behind the claim).
//
// Thread safety: values. Errors: none here; a statement that makes no sense
// is refused with `invalid_argument` by the store before anything is sent.
//
// Example:
//
//   update("inventory").key("sku", "1001")
//       .subtract("qty", 3).require("qty", at_least(3)).returning({"qty"})
#pragma once

#include <cstdint>
#include <lastdoor/fencing/value.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace lastdoor {

/// A condition on one column; made by the functions below.
struct condition {
  enum class kind : std::uint8_t {
    equals,
    differs,
    at_least,
    at_most,
    above,
    below,
    is_null,
    not_null,
  };
  kind op;
  value operand;
};

[[nodiscard]] inline condition equals(value v) {
  return {condition::kind::equals, std::move(v)};
}
[[nodiscard]] inline condition differs(value v) {
  return {condition::kind::differs, std::move(v)};
}
[[nodiscard]] inline condition at_least(value v) {
  return {condition::kind::at_least, std::move(v)};
}
[[nodiscard]] inline condition at_most(value v) {
  return {condition::kind::at_most, std::move(v)};
}
[[nodiscard]] inline condition above(value v) {
  return {condition::kind::above, std::move(v)};
}
[[nodiscard]] inline condition below(value v) {
  return {condition::kind::below, std::move(v)};
}
[[nodiscard]] inline condition is_null() {
  return {condition::kind::is_null, {}};
}
[[nodiscard]] inline condition not_null() {
  return {condition::kind::not_null, {}};
}

class statement {
 public:
  enum class verb : std::uint8_t { update, insert, upsert, erase };
  enum class change : std::uint8_t { set, add, subtract };

  struct assignment {
    std::string column;
    change how;
    value operand;
  };
  struct match {  // the column's value is one of these
    std::string column;
    std::vector<value> any_of;
  };
  struct requirement {
    std::string column;
    condition holds;
  };

  statement(verb v, std::string table) : verb_{v}, table_{std::move(table)} {}

  // Each of these comes twice: a statement built in one expression is moved
  // into what keeps it, not copied.

  /// The schema (attached database) of the table; default: the connection's.
  statement& in_schema(std::string name) &;
  statement&& in_schema(std::string name) && {
    return std::move(in_schema(std::move(name)));
  }

  /// Names the row: all key columns must match. For upsert and insert these
  /// are also the values stored, and the conflict target of the upsert.
  statement& key(std::string column, value v) &;
  statement&& key(std::string column, value v) && {
    return std::move(key(std::move(column), std::move(v)));
  }
  /// Names several rows. Each of the values must name a row, or the write is
  /// refused as `missing`; one fenced-off row refuses the whole write.
  statement& keys(std::string column, std::vector<value> any_of) &;
  statement&& keys(std::string column, std::vector<value> any_of) && {
    return std::move(keys(std::move(column), std::move(any_of)));
  }
  /// Every row of the table. Never the default: it must be said.
  statement& every_row() &;
  statement&& every_row() && { return std::move(every_row()); }

  statement& set(std::string column, value v) &;
  statement&& set(std::string column, value v) && {
    return std::move(set(std::move(column), std::move(v)));
  }
  /// column = column + v. Of an upsert that inserts: v. A sum of integers that
  /// does not fit is refused, and nothing written.
  statement& add(std::string column, value v) &;
  statement&& add(std::string column, value v) && {
    return std::move(add(std::move(column), std::move(v)));
  }
  /// column = column - v. Of an upsert that inserts: -v.
  statement& subtract(std::string column, value v) &;
  statement&& subtract(std::string column, value v) && {
    return std::move(subtract(std::move(column), std::move(v)));
  }

  /// Holds on the row as it is before the write, else the whole write is
  /// refused with `precondition_failed`. Comparisons with NULL do not hold.
  /// An upsert that inserts has no row before and skips it.
  statement& require(std::string column, condition c) &;
  statement&& require(std::string column, condition c) && {
    return std::move(require(std::move(column), std::move(c)));
  }

  /// Columns of the written rows (as they are afterwards; of an erase:
  /// before) to give back with the receipt.
  statement& returning(std::vector<std::string> columns) &;
  statement&& returning(std::vector<std::string> columns) && {
    return std::move(returning(std::move(columns)));
  }

  [[nodiscard]] verb what() const noexcept { return verb_; }
  [[nodiscard]] const std::string& table() const noexcept { return table_; }
  [[nodiscard]] const std::string& schema() const noexcept { return schema_; }
  [[nodiscard]] const std::vector<match>& matches() const noexcept {
    return matches_;
  }
  [[nodiscard]] bool wants_every_row() const noexcept { return every_row_; }
  [[nodiscard]] const std::vector<assignment>& assignments() const noexcept {
    return assignments_;
  }
  [[nodiscard]] const std::vector<requirement>& requirements() const noexcept {
    return requirements_;
  }
  [[nodiscard]] const std::vector<std::string>& returned() const noexcept {
    return returned_;
  }

 private:
  verb verb_;
  bool every_row_{false};
  std::string table_;
  std::string schema_;
  std::vector<match> matches_;
  std::vector<assignment> assignments_;
  std::vector<requirement> requirements_;
  std::vector<std::string> returned_;
};

/// Changes rows that exist. Needs a key and at least one assignment.
[[nodiscard]] inline statement update(std::string table) {
  return {statement::verb::update, std::move(table)};
}
/// Adds one row; `precondition_failed` when one with its key is there.
[[nodiscard]] inline statement insert(std::string table) {
  return {statement::verb::insert, std::move(table)};
}
/// Adds the row or changes the one that is there. Needs a key.
[[nodiscard]] inline statement upsert(std::string table) {
  return {statement::verb::upsert, std::move(table)};
}
/// Deletes rows. Needs the ledger: with the column alone the mark would go
/// with the row, and a late insert would bring the row back.
[[nodiscard]] inline statement erase(std::string table) {
  return {statement::verb::erase, std::move(table)};
}

}  // namespace lastdoor
