// redis_rows.hpp: a built statement as steps of redis_write.lua. A row is a
// hash, a column a field.
//
// Thread safety: values.
#pragma once

#include <lastdoor/stores/redis.hpp>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lastdoor {

struct redis_plan {
  std::vector<detail::redis_step> steps;
  // What to call a key in messages; the key itself where there is nothing.
  std::map<std::string, std::string> names{};
  std::int64_t rows{0};
  // For each row what the statement's key says of the returned columns, as
  // a row itself does not hold them all; null: ask the server's answer.
  std::vector<std::vector<const value*>> keys_returned{};
};

// `invalid_argument` for what makes no sense, or none on Redis. The plan
// refers to the statement.
[[nodiscard]] result<redis_plan> plan_rows(const statement& s,
                                           std::string_view name_space,
                                           fencing_token token);

// A list of commands, conditions first.
[[nodiscard]] result<redis_plan> plan_commands(const redis_commands& c);

}  // namespace lastdoor
