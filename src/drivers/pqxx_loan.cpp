#include "drivers/pqxx_loan.hpp"

#include <fmt/format.h>

#include <pqxx/except>
#if PQXX_VERSION_MAJOR < 7
#include <pqxx/connectionpolicy>
#endif
#include <stdexcept>

namespace lastdoor::postgres_driver {

#if PQXX_VERSION_MAJOR >= 7

class pqxx_loan::state {
 public:
  explicit state(PGconn* conn)
      : connection_{pqxx::connection::seize_raw_connection(conn)} {}
  ~state() { (void)std::move(connection_).release_raw_connection(); }
  state(const state&) = delete;
  state& operator=(const state&) = delete;
  pqxx_connection& get() noexcept { return connection_; }

 private:
  pqxx::connection connection_;
};

#else

namespace {

// Hands out a connection that is open already; never opens another, never
// closes it.
class lending_policy : public pqxx::connectionpolicy {
 public:
  explicit lending_policy(PGconn* conn) : connectionpolicy{""}, conn_{conn} {}
  handle do_startconnect(handle) override {
    if (PQstatus(conn_) != CONNECTION_OK) {
      throw pqxx::broken_connection{"the connection is lost"};
    }
    return conn_;
  }
  handle do_completeconnect(handle orig) override { return orig; }
  handle do_dropconnect(handle) noexcept override { return nullptr; }
  handle do_disconnect(handle) noexcept override { return nullptr; }
  bool is_ready(handle h) const noexcept override { return h != nullptr; }

 private:
  PGconn* conn_;
};

struct policy_holder {
  lending_policy policy;
};

class lent_connection : private policy_holder, public pqxx::connection_base {
 public:
  explicit lent_connection(PGconn* conn)
      : policy_holder{lending_policy{conn}}, connection_base{policy} {
    init();
  }
  ~lent_connection() { close(); }
};

}  // namespace

class pqxx_loan::state {
 public:
  explicit state(PGconn* conn) : connection_{conn} {}
  pqxx_connection& get() noexcept { return connection_; }

 private:
  lent_connection connection_;
};

#endif

pqxx_loan::pqxx_loan(connection& lender) : lender_{lender} {
  PQsetnonblocking(lender.raw(), 0);
  state_ = std::make_unique<state>(lender.raw());
}

pqxx_loan::~pqxx_loan() {
  state_.reset();
  // libpqxx's notice processor pointed into the object that is gone.
  PQsetNoticeProcessor(
      lender_.raw(), [](void*, const char*) {}, nullptr);
  PQsetnonblocking(lender_.raw(), 1);
}

pqxx_connection& pqxx_loan::get() noexcept { return state_->get(); }

error translate_current_exception(std::string_view doing,
                                  bool may_have_been_applied) {
  const auto lost = may_have_been_applied ? errc::in_doubt : errc::unavailable;
  const auto text = [&](const std::exception& e) {
    return fmt::format("{}: {}", doing, e.what());
  };
  try {
    throw;
  } catch (const pqxx::in_doubt_error& e) {
    return fail(errc::in_doubt, text(e));
  } catch (const pqxx::statement_completion_unknown& e) {
    return fail(errc::in_doubt, text(e)).backend("40003");
  } catch (const pqxx::transaction_rollback& e) {
    // Not an sql_error in libpqxx 6. Rolled back, whatever was running.
    return fail(errc::unavailable, text(e)).backend("40");
  } catch (const pqxx::broken_connection& e) {
    return fail(lost, text(e));
  } catch (const pqxx::sql_error& e) {
    return fail(code_of(e.sqlstate()), text(e)).backend(e.sqlstate());
  } catch (const pqxx::usage_error& e) {
    return fail(errc::invalid_argument, text(e));
  } catch (const pqxx::failure& e) {
    return fail(lost, text(e));
  }
}

}  // namespace lastdoor::postgres_driver
