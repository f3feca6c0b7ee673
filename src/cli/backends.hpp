// backends.hpp: from a URL to a lock service, a store, a migrator.
//
// The one place that knows schemes; a new back end is a new line here:
//
//   sqlite:PATH                    relative or absolute
//   sqlite:PATH?namespace=NAME     of a lock service: its token source is
//                                  sqlite/NAME instead of sqlite/default
//   postgresql://USER@HOST/DB      as libpq takes it, parameters included;
//                                  also postgres://
//   postgresql://...?namespace=NAME  of a lock service: its token source is
//                                  postgres/NAME instead of postgres/default
//   redis://[user:password@]host[:port][/db][?namespace=NAME]
//                                  also rediss:// and redis+unix:///path; see
//                                  redis_server.hpp. Of a lock service the
//                                  source is redis/NAME; of a store it says
//                                  which ledger and rows
//   redlock://[user:password@]H1:P1,H2:P2,...[/db][?namespace=NAME]
//                                  a lock service only; see locks/redlock.hpp
//
// Errors: `invalid_argument` for a URL that makes no sense or whose scheme
// is not built in, else what the back end says. No message shows a password.
#pragma once

#include <lastdoor/lock_service.hpp>
#include <lastdoor/migrate.hpp>
#include <lastdoor/stores/store.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lastdoor::cli {

struct backend_url {
  std::string scheme;
  // SQLite: what follows "scheme:". Others: the whole URL. All without the
  // namespace.
  std::string path;
  std::string name_space;  // empty: the default
};

// `option` starts a message: "--locks". Accepts what is built in only.
[[nodiscard]] result<backend_url> parse_url(std::string_view option,
                                            std::string_view url);

[[nodiscard]] result<lock_service> open_locks(
    std::string_view url, lock_service_options options = {});

// The same for those who only look: `missing` when there is no file, instead
// of making one.
[[nodiscard]] result<lock_service> open_existing_locks(std::string_view url);

[[nodiscard]] result<std::unique_ptr<store>> open_store(std::string_view url);

// lastdoor's tables in one database.
class migrator {
 public:
  virtual ~migrator() = default;
  // What a person types to confirm that it is this database: its path, or its
  // URL without a password.
  [[nodiscard]] virtual const std::string& name() const noexcept = 0;
  [[nodiscard]] virtual result<std::vector<int>> up() = 0;
  [[nodiscard]] virtual result<std::vector<int>> down(int to,
                                                      bool discard_marks) = 0;
  [[nodiscard]] virtual result<std::vector<migration_status>> status() = 0;
  [[nodiscard]] virtual result<std::vector<std::string>> verify() = 0;
  [[nodiscard]] virtual result<fence_plan> plan(const fence_request& r) = 0;
  [[nodiscard]] virtual result<fence_plan> apply(const fence_request& r) = 0;
  // The statements of a plan as one text that the database's own shell takes.
  [[nodiscard]] virtual std::string script(const fence_plan& plan) const = 0;
};

[[nodiscard]] result<std::unique_ptr<migrator>> open_migrator(
    std::string_view url);

}  // namespace lastdoor::cli
