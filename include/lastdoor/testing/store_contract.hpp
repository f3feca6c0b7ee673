// store_contract.hpp: one suite that every store has to pass.
//
// It checks the invariants that stores/store.hpp lists, from outside: rows are
// read and written past lastdoor to see what really happened. A new store
// brings one type and one line:
//
//   struct sqlite_file {
//     lastdoor::testing::temp_folder folder;
//     ...
//   };
//   LASTDOOR_STORE_CONTRACT(sqlite, sqlite_file);
//
// Requirements on the type
//   - A new object is a private, empty database with lastdoor's tables and the
//     table items(id text primary key, qty integer, note text), fenced by a
//     column `fence_token`; gone with the object.
//   - `std::unique_ptr<store> connect(std::shared_ptr<clock> = boot_clock())`
//     opens a store with the ledger and the rule many_per_grant on it, in this
//     process or in one that was forked after the object was made.
//   - `std::optional<item> read(std::string_view id)` and
//     `void put(const item&)` read and write a row past lastdoor; `put` leaves
//     the fence as a program would that does not know it. They keep nothing
//     open: the test forks.
//   - Optional: `static constexpr bool tables = false` for a store of keys and
//     values, whose `items` are what its statements write. It is spared
//     `every_row()` and what a missing column does.
//   - Optional: `static constexpr int pairs`, how many pairs of writers P12
//     races; 300 unless told, 10,000 with LASTDOOR_TEST_LONG set.
//
// The program links lastdoor::testing, the store and gtest_main. Each test
// takes a private database, so they run in any order and side by side. Seeds
// are printed; LASTDOOR_TEST_SEED repeats one.
#pragma once

#include <lastdoor/testing/store_contract_races.hpp>
#include <lastdoor/testing/store_contract_rules.hpp>
#include <lastdoor/testing/store_contract_writes.hpp>

/// Runs the contract on `type`; `name` is the first part of the test names.
#define LASTDOOR_STORE_CONTRACT(name, type)                        \
  namespace lastdoor::testing {                                    \
  INSTANTIATE_TYPED_TEST_SUITE_P(name, StoreContract, type);       \
  INSTANTIATE_TYPED_TEST_SUITE_P(name, StoreContractWrites, type); \
  INSTANTIATE_TYPED_TEST_SUITE_P(name, StoreContractRaces, type);  \
  }                                                                \
  static_assert(true, "takes the semicolon")
