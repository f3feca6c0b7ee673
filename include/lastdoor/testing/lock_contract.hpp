// lock_contract.hpp: one suite that every lock back end has to pass.
//
// It checks the invariants that lock_backend.hpp lists, from outside: with
// several connections, threads and processes, some of them killed or stopped.
// A new back end brings one type and one line:
//
//   struct sqlite_file {
//     lastdoor::testing::temp_folder folder;
//     std::unique_ptr<lastdoor::lock_backend> connect() {
//       return lastdoor::open_sqlite_backend(folder / "locks.db").value();
//     }
//   };
//   LASTDOOR_LOCK_CONTRACT(sqlite, sqlite_file);
//
// Requirements on the type
//   - A new object is a private, empty lock service; gone with the object.
//   - `connect()` opens a back end on it, in this process or in one that was
//     forked after the object was made. At least one second of TTL is granted.
//   - Optional: `static constexpr int kill_points`, how many clients R26
//     kills; 50 unless told.
//   - Optional: `static constexpr int leases_of_a_session`, where a lease lives
//     in a session of the client that acquired it: only that client renews
//     and releases it, and it can hold so many; 60 or more.
//   - Optional: `void lose_next_reply()`. The next request of any connection
//     is carried out and its answer lost. Then add
//     LASTDOOR_LOCK_CONTRACT_REPLIES(name, type).
//
// The program links lastdoor::testing, the back end and gtest_main. Each test
// takes a private service, so they run in any order and side by side. Seeds
// are printed; LASTDOOR_TEST_SEED repeats one.
#pragma once

#include <lastdoor/testing/lock_contract_limits.hpp>
#include <lastdoor/testing/lock_contract_processes.hpp>
#include <lastdoor/testing/lock_contract_replies.hpp>
#include <lastdoor/testing/lock_contract_rules.hpp>

/// Runs the contract on `type`; `name` is the first part of the test names.
#define LASTDOOR_LOCK_CONTRACT(name, type)                            \
  namespace lastdoor::testing {                                       \
  INSTANTIATE_TYPED_TEST_SUITE_P(name, LockContract, type);           \
  INSTANTIATE_TYPED_TEST_SUITE_P(name, LockContractLimits, type);     \
  INSTANTIATE_TYPED_TEST_SUITE_P(name, LockContractProcesses, type);  \
  GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(LockContractReplies); \
  }                                                                   \
  static_assert(true, "takes the semicolon")

/// The part for back ends whose answers a test can lose.
#define LASTDOOR_LOCK_CONTRACT_REPLIES(name, type)                 \
  namespace lastdoor::testing {                                    \
  INSTANTIATE_TYPED_TEST_SUITE_P(name, LockContractReplies, type); \
  }                                                                \
  static_assert(true, "takes the semicolon")
