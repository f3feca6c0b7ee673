// sqlite_lease_table.hpp: the rows of one name space: leases and the counter.
//
// Each member is one statement or a look at its answer; transactions are the
// caller's. Nothing here decides who gets a lease.
//
// Thread safety: as its connection: one thread at a time.
// Errors: what SQLite said; `damaged` for rows that lastdoor did not write.
#pragma once

#include <cstdint>
#include <lastdoor/clock.hpp>
#include <lastdoor/grant.hpp>
#include <lastdoor/lock_backend.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "drivers/sqlite.hpp"
#include "sqlite_counter.hpp"

namespace lastdoor {

// How far a commit waits for the disk.
//
// `written`, synchronous=NORMAL: the commit is in the log, safe from the death
// of this process, but a power cut may lose it. `synced`: it is on the disk.
// In WAL mode that is synchronous=FULL, which syncs the log at each commit.
//
// A file that is not in WAL mode belongs to an application that chose so, and
// is left as it is. There FULL is not enough: the directory entry of the
// rollback journal is not synced when it is deleted, so the journal may come
// back after a power cut and undo a commit. EXTRA syncs it. And NORMAL may
// even damage such a file. So all commits are EXTRA there: slower, never
// wrong.
enum class durability : std::uint8_t { written, synced };

struct lease_row {
  std::string owner;
  mark token;
  std::string holder;
  time_point expires_at;
  bool of_this_boot;
  bool released;

  // The expiry is what the holder stored. A lease of another boot is over.
  [[nodiscard]] bool held_at(time_point now) const noexcept {
    return !released && of_this_boot && now < expires_at;
  }
  [[nodiscard]] bool belongs_to(const grant& g) const noexcept {
    return owner == g.owner().str() && token == mark{g.token()};
  }
};

class lease_table {
 public:
  // Takes over a connection whose file has lastdoor's tables.
  [[nodiscard]] static result<lease_table> open(sqlite_driver::connection db,
                                                std::string name_space,
                                                std::string boot_id);

  [[nodiscard]] sqlite_driver::connection& db() noexcept { return db_; }

  // For the transactions to come; inside one it cannot be changed.
  [[nodiscard]] result<void> set(durability level);
  // True when a commit at `level` is on the disk before it is answered.
  [[nodiscard]] bool syncs(durability level) const noexcept {
    return !write_ahead_ || level == durability::synced;
  }

  // Nothing when the resource was never locked.
  [[nodiscard]] result<std::optional<lease_row>> find(
      const resource_name& resource, std::string_view doing);
  // Stores the lease of a new grant over whatever was there.
  [[nodiscard]] result<void> store(const lease_request& request,
                                   fencing_token token, time_point expires_at,
                                   std::string_view doing);
  // False when the lease of `g` is not held at `now`. Never shortens it.
  [[nodiscard]] result<bool> extend(const grant& g, time_point now,
                                    time_point expires_at,
                                    std::string_view doing);
  // Frees the lease of this owner, if there is one.
  [[nodiscard]] result<void> free(const resource_name& resource,
                                  const owner_id& owner,
                                  std::string_view doing);

  // A name space that has no counter and no leases begins at zero.
  [[nodiscard]] result<token_counter> counter(std::string_view doing);
  [[nodiscard]] result<void> store(const token_counter& c,
                                   std::string_view doing);

 private:
  lease_table(sqlite_driver::connection db, std::string name_space,
              std::string boot_id, bool write_ahead);
  [[nodiscard]] result<token_counter> first_counter(std::string_view doing);
  [[nodiscard]] error damaged_counter(std::string_view why,
                                      std::string_view doing) const;

  sqlite_driver::connection db_;
  std::string name_space_;
  std::string boot_id_;
  bool write_ahead_;
  std::optional<durability> level_;
};

}  // namespace lastdoor
