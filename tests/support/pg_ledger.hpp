// pg_ledger.hpp: a private database with lastdoor's tables, and the stock
// psql to write to it past the library.
#pragma once

#include <lastdoor/migrate.hpp>
#include <lastdoor/stores/postgres.hpp>
#include <lastdoor/testing/store_contract_client.hpp>
#include <ostream>
#include <string>

#include "support/temp_postgres.hpp"

namespace lastdoor::support {

struct psql_answer {
  int status{0};     // 0: all went well
  std::string text;  // both streams; SQLSTATEs included
};
inline void PrintTo(const psql_answer& a, std::ostream* out) {
  *out << "psql " << a.status << ": " << a.text;
}
/// Runs a command line of the shell.
[[nodiscard]] psql_answer run_shell(const std::string& command);
/// Runs a script through the stock psql, which stops at the first error.
[[nodiscard]] psql_answer psql(const std::string& url, const std::string& sql);

/// The grant's words as the arguments of lastdoor.claim and lastdoor.present.
[[nodiscard]] std::string arguments_of(const testing::terms& w);

class ledger_database : public temp_database {
 public:
  explicit ledger_database(temp_postgres& server = temp_postgres::shared());

  /// Runs statements on a connection of their own.
  void run(const std::string& sql) const { (void)query(sql); }
  /// Adds fence and guard to a table.
  void fence(const std::string& table, guard_mode guard) const;
  [[nodiscard]] postgres_store open(postgres_store_options o = {}) const;
  [[nodiscard]] psql_answer shell(const std::string& sql) const {
    return psql(url(), sql);
  }
  /// The same behind a claim, in one transaction.
  [[nodiscard]] psql_answer shell_as(const testing::terms& w,
                                     const std::string& sql) const;
};

}  // namespace lastdoor::support
