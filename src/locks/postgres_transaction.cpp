#include <fmt/format.h>

#include <lastdoor/locks/postgres_transaction.hpp>
#include <pqxx/result>
#include <pqxx/transaction_base>

#include "drivers/pqxx_loan.hpp"

namespace lastdoor::postgres {

namespace {

using postgres_driver::quoted_name;
using postgres_driver::translate_current_exception;

// As lastdoor.lock_key, which needs the migrations; this does not. The prefix
// keeps these locks apart from the sessions' ones.
constexpr std::string_view key_sql =
    "('x' || pg_catalog.encode(pg_catalog.substr(pg_catalog.sha256("
    "pg_catalog.convert_to('lastdoor/transaction/' || {}, 'UTF8')), 1, 8), "
    "'hex'))::bit(64)::bigint";

std::string_view clause(if_row_locked what) noexcept {
  switch (what) {
    case if_row_locked::skip:
      return " SKIP LOCKED";
    case if_row_locked::refuse:
      return " NOWAIT";
    case if_row_locked::wait:
      break;
  }
  return "";
}

std::string claim_sql(const job_queue& queue, if_row_locked what) {
  const auto table = queue.schema.empty() ? quoted_name(queue.table)
                                          : quoted_name(queue.schema) + '.' +
                                                quoted_name(queue.table);
  return fmt::format(
      "WITH job AS MATERIALIZED (SELECT {key} AS key FROM {table}{where}"
      "{order} LIMIT 1 FOR UPDATE{clause}), "
      "source AS MATERIALIZED (SELECT pg_catalog.substr("
      "pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_insert_lsn()), "
      "1, 8) = (SELECT s.timeline FROM lastdoor.token_source AS s) AS same) "
      // The token is drawn after the row was won: whoever had it before drew
      // a lower one.
      "SELECT job.key::text, CASE WHEN source.same "
      "THEN pg_catalog.nextval('lastdoor.token') ELSE 0 END "
      "FROM job, source",
      fmt::arg("key", quoted_name(queue.key)), fmt::arg("table", table),
      fmt::arg("where",
               queue.ready.empty() ? "" : " WHERE (" + queue.ready + ')'),
      fmt::arg("order",
               queue.order_by.empty() ? "" : " ORDER BY " + queue.order_by),
      fmt::arg("clause", clause(what)));
}

}  // namespace

result<void> lock_in_transaction(pqxx::transaction_base& tx,
                                 std::string_view resource, if_taken what) {
  auto name = resource_name::parse(resource);
  if (!name) {
    return name.error();
  }
  constexpr std::string_view doing = "locking in a transaction";
  try {
    const auto key = fmt::format(key_sql, tx.quote(name->str()));
    if (what == if_taken::wait) {
      tx.exec(fmt::format("SELECT pg_catalog.pg_advisory_xact_lock({})", key));
      return {};
    }
    const auto got = tx.exec(
        fmt::format("SELECT pg_catalog.pg_try_advisory_xact_lock({})", key));
    if (got.size() == 1 && got[0][0].as<bool>()) {
      return {};
    }
    return fail(errc::busy, "another transaction holds it").about(resource);
  } catch (...) {
    return translate_current_exception(doing, false).about(resource);
  }
}

result<std::optional<claimed_job>> claim_job(pqxx::transaction_base& tx,
                                             const job_queue& queue,
                                             if_row_locked what) {
  constexpr std::string_view doing = "taking a job";
  try {
    const auto rows = tx.exec(claim_sql(queue, what));
    if (rows.empty()) {
      return std::optional<claimed_job>{};
    }
    const auto drawn = rows[0][1].as<std::int64_t>();
    if (drawn == 0) {
      return fail(errc::token_regressed,
                  "this server is not the one that the token counter belonged "
                  "to; open a lock service to raise it")
          .about(queue.table);
    }
    auto token = fencing_token::from(drawn);
    if (!token) {
      return token.error();
    }
    return std::optional{claimed_job{rows[0][0].as<std::string>(), *token}};
  } catch (...) {
    auto e = translate_current_exception(doing, false);
    if (e.backend() == "55P03") {
      return fail(errc::busy, e.text()).backend(e.backend()).about(queue.table);
    }
    return e.about(queue.table);
  }
}

}  // namespace lastdoor::postgres
