// backend_parts.hpp: what each back end of the tool provides. For
// backends.cpp and the files it dispatches to.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "cli/backends.hpp"

namespace lastdoor::cli {

// One kind of database. A function that is missing is refused by name.
struct backend {
  // Checks and completes what `parse_url` has split at the first colon.
  result<backend_url> (*check)(std::string_view option, std::string_view url,
                               backend_url u);
  result<lock_service> (*open_locks)(const backend_url& u,
                                     lock_service_options o);
  result<std::unique_ptr<store>> (*open_store)(const backend_url& u);
  result<std::unique_ptr<migrator>> (*open_migrator)(const backend_url& u);
  // Whether a store's URL may name a namespace too.
  bool store_has_name_space{false};
};

extern const backend sqlite_backend;
extern const backend postgres_backend;
extern const backend redis_backend;
extern const backend redlock_backend;

// `invalid_argument`: "<option>: '<url>' <why>", without the password.
[[nodiscard]] error refuse_url(std::string_view option, std::string_view url,
                               std::string_view why);

// A plan's notes as SQL comments.
[[nodiscard]] std::string notes_as_comments(const fence_plan& plan);
// One statement with its semicolon and line end.
[[nodiscard]] std::string as_line(std::string_view statement);

// A migrator whose verbs are the free functions of migrate.hpp.
struct migrate_verbs {
  result<std::vector<int>> (*up)(const std::string& where);
  result<std::vector<int>> (*down)(const std::string& where, int to,
                                   bool discard_marks);
  result<std::vector<migration_status>> (*status)(const std::string& where);
  result<std::vector<std::string>> (*verify)(const std::string& where);
  result<fence_plan> (*plan)(const std::string& where, const fence_request& r);
  result<fence_plan> (*apply)(const std::string& where, const fence_request& r);
  std::string (*script)(const fence_plan& plan);
};
[[nodiscard]] std::unique_ptr<migrator> make_migrator(
    const migrate_verbs& verbs, std::string where, std::string name);

}  // namespace lastdoor::cli
