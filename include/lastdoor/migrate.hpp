// migrate.hpp: lastdoor's own tables, and fences for the tables you have.
//
// Invariants
//   - Each migration is applied once, in one transaction, in order; its text
//     is pinned by a checksum. Ten migrators at once do each step once.
//   - A migrator that dies at any moment leaves the old or the new state.
//   - `down` removes lastdoor's own objects only.
//   - `plan_fence` writes nothing; its SQL is what `add_fence` applies, and
//     may be pasted into any other migration tool.
//
// Thread safety: free functions; each opens a connection of its own.
// Errors: `misconfigured`, `unavailable` (busy for too long), `damaged`,
// `schema_mismatch` (unknown newer version, changed text, wrong column).
#pragma once

#include <cstdint>
#include <lastdoor/errors.hpp>
#include <optional>
#include <string>
#include <vector>

namespace lastdoor {

struct migration_status {
  int version;
  std::string name;
  bool applied;
  /// False when the text applied then is not the text of this release.
  bool checksum_matches;
};

enum class guard_mode : std::uint8_t {
  none,    // the fence column only
  audit,   // triggers record what they would refuse
  strict,  // triggers refuse
};

struct fence_request {
  std::string table;
  std::string schema{};  // default: main
  std::string column{"fence_token"};
  /// Default: none. A guard that is there is never taken off, or changed, by
  /// silence: then the request is refused with `invalid_argument`.
  std::optional<guard_mode> guard{};
};

/// SQL statements in order, without transaction bounds.
struct fence_plan {
  std::vector<std::string> statements;
  std::vector<std::string> notes;  // what a person should know first
};

namespace sqlite {

/// Applies what is missing. Creates the file when it is absent.
/// Answers the versions applied now.
[[nodiscard]] result<std::vector<int>> migrate_up(const std::string& path);
/// Takes back down to, not including, `to_version`; 0 removes everything of
/// lastdoor's, guards on tables first. Refuses while marks exist unless
/// `discard_marks`: without them an old token would pass.
[[nodiscard]] result<std::vector<int>> migrate_down(const std::string& path,
                                                    int to_version,
                                                    bool discard_marks);
[[nodiscard]] result<std::vector<migration_status>> migrate_status(
    const std::string& path);
/// Compares every object of lastdoor's, guards included, with what this
/// release would create. Answers the differences; empty is good.
[[nodiscard]] result<std::vector<std::string>> migrate_verify(
    const std::string& path);

/// What `add_fence` would do, given the table as it is.
[[nodiscard]] result<fence_plan> plan_fence(const std::string& path,
                                            const fence_request& request);
/// Adds or changes column and guard of one table, in one transaction.
/// Idempotent. Needs `migrate_up` first.
[[nodiscard]] result<fence_plan> add_fence(const std::string& path,
                                           const fence_request& request);

}  // namespace sqlite

namespace postgres {

/// Applies what is missing. The database must exist; lastdoor's objects are
/// in its schema `lastdoor`. Needs a connection of its own to the server
/// (`misconfigured` behind a pooler). Waits up to a minute for another
/// migrator. Answers the versions applied now.
[[nodiscard]] result<std::vector<int>> migrate_up(const std::string& url);
/// Takes back down to, not including, `to_version`, all in one transaction;
/// 0 removes everything of lastdoor's, guards on tables first. Refuses while
/// marks or leases exist unless `discard_marks`.
[[nodiscard]] result<std::vector<int>> migrate_down(const std::string& url,
                                                    int to_version,
                                                    bool discard_marks);
[[nodiscard]] result<std::vector<migration_status>> migrate_status(
    const std::string& url);
/// Compares every object of lastdoor's with what this release would create,
/// and looks whether each guard is whole and switched on. Answers the
/// differences; empty is good. Needs the rights of a migrator.
[[nodiscard]] result<std::vector<std::string>> migrate_verify(
    const std::string& url);

/// What `add_fence` would do, given the table as it is. `url` is a Postgres
/// URL or connection string. Without a schema the table is looked for along
/// the session's search_path; the notes say which one was found.
[[nodiscard]] result<fence_plan> plan_fence(const std::string& url,
                                            const fence_request& request);
/// Adds or changes column and guard of one table. Each step is a short
/// transaction that waits for its lock for a tenth of a second at most, with
/// pauses between tries: a table in use stays in use. `unavailable` names who
/// held it; what was done until then stays, and the next run does the rest.
/// Idempotent. Needs `migrate_up` first.
[[nodiscard]] result<fence_plan> add_fence(const std::string& url,
                                           const fence_request& request);

}  // namespace postgres
}  // namespace lastdoor
