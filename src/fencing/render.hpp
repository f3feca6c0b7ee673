// render.hpp: a statement as SQL text and the list of what to bind.
//
// Invariants
//   - Names are quoted, values are bound; nothing of either is ever spliced.
//   - Columns are written as "table"."column" wherever an expression stands:
//     SQLite reads a bare "colunm" that does not exist as a string, and a
//     misspelt requirement would hold.
//   - The fence is a condition on the target row in the statement that
//     writes it, and it is assigned last: MariaDB evaluates assignments from
//     left to right, and a condition must see the old fence.
//
// Pure: no driver, no clock, no state. Thread safety: free functions.
//
// The text depends on the shape of a statement only (names, verbs, kinds of
// conditions, lengths of lists), never on values. So a store may prepare one
// text per shape and bind by slots.
#pragma once

#include <cstddef>
#include <cstdint>
#include <lastdoor/errors.hpp>
#include <lastdoor/fencing/rule.hpp>
#include <lastdoor/fencing/statement.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lastdoor::fencing {

enum class dialect : std::uint8_t { sqlite, postgres, mariadb };

// Where the value of one placeholder comes from.
struct slot {
  enum class origin : std::uint8_t {
    match,        // matches()[index].any_of[item]
    assignment,   // assignments()[index].operand
    negated,      // the same, with the sign turned round
    requirement,  // requirements()[index].holds.operand
    token,
    resource,
    owner,
    source,
  };
  origin from;
  std::uint32_t index{0};
  std::uint32_t item{0};

  friend bool operator==(const slot&, const slot&) = default;
};

struct rendered {
  std::string sql;
  std::vector<slot> slots;  // in the order of the placeholders
};

struct render_options {
  dialect target{dialect::sqlite};
  std::string_view fence_column{"fence_token"};
  write_rule rule{write_rule::many_per_grant};
  // Adds the condition that the ledger's row is exactly the grant's.
  bool ledger{false};
  // With the ledger, on Postgres: leaves the evidence that a guard asks for.
  bool evidence{false};
  // For statements that name no schema.
  std::string_view default_schema{};
};

// `invalid_argument` when the statement makes no sense or a name cannot be
// one in the dialect. Looks at the shape only.
[[nodiscard]] result<void> check_shape(const statement& s,
                                       const render_options& o);

// `invalid_argument` for text that is not UTF-8 or holds U+0000, for numbers
// that are not finite, for a key that is NULL and for sums with no number.
[[nodiscard]] result<void> check_values(const statement& s);

// The write. The statement must have passed `check_shape`.
[[nodiscard]] rendered render_write(const statement& s,
                                    const render_options& o);

// What is there now: one row for each row that `s` names, with the columns
//   fence, one truth value per requirement, then `also`.
// Of an upsert or insert: the row that its key names.
[[nodiscard]] rendered render_probe(const statement& s, const render_options& o,
                                    std::span<const std::string> also = {});

// The value of a slot that is not token, resource, owner or source.
// Of `negated`: the operand as it stands; the caller turns the sign.
[[nodiscard]] const value& value_of(const slot& at, const statement& s);

// A quoted name.
void append_quoted(std::string& out, std::string_view name, dialect d);

// Whether two names are one to the database: SQLite and MariaDB fold ASCII.
[[nodiscard]] bool same_name(std::string_view a, std::string_view b,
                             dialect d) noexcept;

// Two statements of one shape share one text.
[[nodiscard]] std::size_t shape_hash(const statement& s) noexcept;
[[nodiscard]] bool same_shape(const statement& a, const statement& b) noexcept;
// The shape alone: a copy without the values.
[[nodiscard]] statement shape_of(const statement& s);

}  // namespace lastdoor::fencing
