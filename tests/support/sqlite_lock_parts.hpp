// sqlite_lock_parts.hpp: what the tests of the SQLite lock back end share.
#pragma once

#include <gmock/gmock.h>
#include <lastdoor/testing/lock_contract_client.hpp>

#include <memory>
#include <string>

#include "locks/sqlite_locks.hpp"
#include "support/sqlite_files.hpp"

namespace lastdoor::testing {

// Takes over the file's boot from whoever asks for another.
inline contender open_locks(const std::string& path,
                            const sqlite_locks_options& options = {},
                            const std::string& boot = "this boot") {
  return contender{open_sqlite_backend_in_boot(path, options, boot).value(),
                   "us"};
}

// Lets a test write what lastdoor itself refuses to.
inline void tamper(const std::string& path, const std::string& sql) {
  raw_sqlite db{path};
  db.run(
      "PRAGMA ignore_check_constraints = ON;"
      "DROP TRIGGER IF EXISTS lastdoor_counters_update;"
      "DROP TRIGGER IF EXISTS lastdoor_counters_delete;"
      "DROP TRIGGER IF EXISTS lastdoor_counters_insert;" +
      sql);
}

}  // namespace lastdoor::testing
