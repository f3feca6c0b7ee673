// drivers/pqxx_transaction.hpp: the libpqxx transaction that a caller's
// function gets, while somebody else begins and ends the real one.
//
// Invariants
//   - Nothing it does sends BEGIN, COMMIT or ROLLBACK.
//   - `aborted()` is true once the function called abort(), or a statement
//     failed and libpqxx aborted in its name.
//
// Thread safety: none. Lifetime: within the loan of its connection.
#pragma once

#include <pqxx/dbtransaction>

#include "drivers/pqxx_loan.hpp"

namespace lastdoor::postgres_driver {

class lent_transaction final : public pqxx::dbtransaction {
 public:
#if PQXX_VERSION_MAJOR >= 7
  explicit lent_transaction(pqxx_connection& c)
      : dbtransaction{c, std::string_view {
                        "lastdoor"
                      }} {
    register_transaction();
  }
  ~lent_transaction() override { close(); }
#else
  explicit lent_transaction(pqxx_connection& c)
      : namedclass{"lastdoor"}, dbtransaction{c} {
    Begin();
  }
  ~lent_transaction() override { End(); }
#endif
  lent_transaction(const lent_transaction&) = delete;
  lent_transaction& operator=(const lent_transaction&) = delete;

  [[nodiscard]] bool aborted() const noexcept { return aborted_; }

 private:
#if PQXX_VERSION_MAJOR < 7
  void do_begin() override {}
#endif
  void do_commit() override {}
  void do_abort() override { aborted_ = true; }

  bool aborted_{false};
};

}  // namespace lastdoor::postgres_driver
