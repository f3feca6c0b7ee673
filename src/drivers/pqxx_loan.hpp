// drivers/pqxx_loan.hpp: lends a connection to libpqxx, for code that takes
// libpqxx's transactions. What differs between libpqxx 6.4 (Debian 12) and
// 7.10 (Debian 13) lives here and in pqxx_loan.cpp.
#pragma once

#include <memory>
#include <pqxx/version>

#include "drivers/postgres.hpp"

#if PQXX_VERSION_MAJOR >= 7
#include <pqxx/connection>
#else
#include <pqxx/connection_base>
#endif

namespace lastdoor::postgres_driver {

#if PQXX_VERSION_MAJOR >= 7
using pqxx_connection = pqxx::connection;
#else
using pqxx_connection = pqxx::connection_base;
#endif

// While it lives, the connection is libpqxx's: no other call may be made on
// it. Transactions opened on `get()` must be gone before the loan is.
class pqxx_loan {
 public:
  explicit pqxx_loan(connection& lender);
  ~pqxx_loan();
  pqxx_loan(const pqxx_loan&) = delete;
  pqxx_loan& operator=(const pqxx_loan&) = delete;

  [[nodiscard]] pqxx_connection& get() noexcept;

 private:
  class state;
  connection& lender_;
  std::unique_ptr<state> state_;
};

// The error for an exception that libpqxx threw: call it in a catch block.
// Anything that is not libpqxx's is thrown on. `may_have_been_applied`: the
// exception came from the commit.
[[nodiscard]] error translate_current_exception(std::string_view doing,
                                                bool may_have_been_applied);

}  // namespace lastdoor::postgres_driver
