#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <lastdoor/locks/postgres.hpp>

#include "drivers/forks.hpp"
#include "drivers/postgres_pool.hpp"
#include "locks/postgres_common.hpp"
#include "locks/postgres_lease_table.hpp"
#include "locks/postgres_wakeups.hpp"
#include "stores/postgres_migrate.hpp"

namespace lastdoor {

namespace {

using namespace std::chrono_literals;
using postgres_driver::connection;
using postgres_driver::pool;
using postgres_leases::granted;
using postgres_leases::row_state;

// How often one attempt starts over: for a row that has to be made first, a
// counter that has to be raised first, a lease that was freed under its eyes.
constexpr int rounds_max = 5;

class postgres_backend final : public lock_backend {
 public:
  postgres_backend(postgres_setup setup, const postgres_locks_options& options)
      : source_{std::move(setup.source)},
        name_space_{options.name_space},
        call_timeout_{options.call_timeout},
        time_{options.service.time},
        forks_{forks()},
        notify_{options.notify},
        pool_{setup.where, setup.connect, options.connections},
        wakeups_{std::move(setup.where), std::move(setup.connect),
                 options.name_space, options.call_timeout} {}

  [[nodiscard]] const source_name& source() const noexcept override {
    return source_;
  }
  [[nodiscard]] duration max_ttl() const noexcept override {
    return postgres_max_ttl;
  }
  [[nodiscard]] duration call_timeout() const noexcept override {
    return call_timeout_;
  }

  [[nodiscard]] result<lease_answer> try_acquire(
      const lease_request& request) override {
    return about(request.resource, acquire_by_deadline(request));
  }
  [[nodiscard]] result<time_point> renew(const grant& held, duration ttl,
                                         time_point deadline) override {
    return about(held, renew_by_deadline(held, ttl, deadline));
  }
  [[nodiscard]] result<void> release(const grant& held,
                                     time_point deadline) override {
    return about(held, release_by_deadline(held, deadline));
  }
  [[nodiscard]] result<lease_status> inspect(
      const resource_name& resource) override {
    return about(resource, look_at(resource));
  }
  [[nodiscard]] std::shared_ptr<void> watch(const resource_name& resource,
                                            alarm& bell) override {
    return notify_ ? wakeups_.watch(resource.str(), bell) : nullptr;
  }
  [[nodiscard]] result<void> raise_floor(mark floor) override;

  // The first connection, and what needs to be looked at once.
  [[nodiscard]] result<void> start();

 private:
  [[nodiscard]] result<pool::loan> borrow(time_point deadline);
  [[nodiscard]] result<lease_answer> acquire_by_deadline(
      const lease_request& request);
  [[nodiscard]] result<time_point> renew_by_deadline(const grant& held,
                                                     duration ttl,
                                                     time_point deadline);
  [[nodiscard]] result<void> release_by_deadline(const grant& held,
                                                 time_point deadline);
  [[nodiscard]] result<lease_status> look_at(const resource_name& resource);

  [[nodiscard]] result<fencing_token> attempt(const lease_request& request);
  [[nodiscard]] result<bool> keep(connection& db, const lease_request& request,
                                  const granted& g, std::int64_t before);
  [[nodiscard]] result<void> prepare(connection& db,
                                     const lease_request& request,
                                     const row_state& seen);
  [[nodiscard]] result<void> undo(const lease_request& request);

  const source_name source_;
  const std::string name_space_;
  const duration call_timeout_;
  const std::shared_ptr<clock> time_;
  const unsigned forks_;
  const bool notify_;
  // The highest token that this service was granted. The counter is never at
  // or below it unless somebody set it back.
  std::atomic<std::int64_t> highest_{0};
  pool pool_;
  postgres_wakeups wakeups_;
};

result<pool::loan> postgres_backend::borrow(time_point deadline) {
  // The sessions are the parent's, and so are the locks of the pool.
  if (forks() != forks_) {
    return fail(errc::misconfigured,
                "this lock service was opened before fork(); a child needs "
                "one of its own");
  }
  return pool_.borrow(deadline);
}

result<void> postgres_backend::start() {
  const auto deadline = time_->now() + call_timeout_;
  auto db = borrow(deadline);
  if (!db) {
    return db.error();
  }
  return postgres_leases::check(**db, deadline);
}

// False: it was not to be kept, and was undone; start over.
result<bool> postgres_backend::keep(connection& db,
                                    const lease_request& request,
                                    const granted& g, std::int64_t before) {
  // Two grants must not carry the same token, and no later one a lower one.
  // Where the counter was set back, another resource may have had this one.
  if (g.token != g.drawn || g.token <= before) {
    auto freed = postgres_leases::free_lease(db, name_space_, request.resource,
                                             request.owner, request.deadline);
    if (!freed) {
      return freed.error();
    }
    if (auto ok = postgres_leases::raise(db, before, request.deadline); !ok) {
      return ok.error();
    }
    return false;
  }
  // Somebody held the row, but not the lease, for a while: the time to live
  // began before it was ours.
  if (g.left < request.ttl - std::min(request.ttl / 20, duration{50ms})) {
    return postgres_leases::extend(db, name_space_, request.resource,
                                   request.owner, request.ttl,
                                   request.deadline);
  }
  return true;
}

// What has to be done before the lease can be granted, if anything.
result<void> postgres_backend::prepare(connection& db,
                                       const lease_request& request,
                                       const row_state& seen) {
  if (!seen.same_source) {
    return postgres_leases::raise(db, highest_.load(), request.deadline);
  }
  if (!seen.exists) {
    return postgres_leases::add(db, name_space_, request.resource,
                                request.deadline);
  }
  return {};
}

result<fencing_token> postgres_backend::attempt(const lease_request& request) {
  auto db = borrow(request.deadline);
  if (!db) {
    return db.error();
  }
  for (int round = 0; round < rounds_max; ++round) {
    const auto before = highest_.load();
    auto taken = postgres_leases::take(**db, name_space_, request);
    if (!taken) {
      return taken.error();
    }
    if (*taken) {
      auto kept = keep(**db, request, **taken, before);
      if (!kept) {
        return kept.error();
      }
      if (*kept) {
        return fencing_token::from((*taken)->token);
      }
      continue;
    }
    auto seen = postgres_leases::look(**db, name_space_, request.resource,
                                      request.deadline);
    if (!seen) {
      return seen.error();
    }
    if (seen->left > duration{0} && seen->same_source) {
      return busy(seen->holder, seen->left);
    }
    if (auto ok = prepare(**db, request, *seen); !ok) {
      return ok.error();
    }
  }
  return fail(errc::busy, "others were faster each time");
}

result<void> postgres_backend::undo(const lease_request& request) {
  auto db = borrow(request.deadline);
  if (!db) {
    return db.error();
  }
  auto freed = postgres_leases::free_lease(**db, name_space_, request.resource,
                                           request.owner, request.deadline);
  if (!freed) {
    return freed.error();
  }
  return {};
}

result<lease_answer> postgres_backend::acquire_by_deadline(
    const lease_request& request) {
  // Before the first statement: what the holder may rely on starts here.
  const auto valid_until = validity_end(time_->now(), request.ttl);
  if (auto ok = check_postgres_ttl(request.ttl); !ok) {
    return ok.error();
  }
  auto token = attempt(request);
  if (!token && token.code() == errc::in_doubt && undo(request)) {
    // The lease is not ours, or is freed: nothing is left of this attempt.
    return fail(errc::unavailable, token.error().text())
        .backend(token.error().backend());
  }
  if (!token) {
    return token.error();
  }
  for (auto seen = highest_.load(); seen < token->value();) {
    if (highest_.compare_exchange_weak(seen, token->value())) {
      break;
    }
  }
  if (time_->now() >= valid_until) {
    undo(request).ignore();
    return fail(errc::too_slow,
                "granted, but its whole TTL was over by then; undone");
  }
  return lease_answer{*token, valid_until};
}

result<time_point> postgres_backend::renew_by_deadline(const grant& held,
                                                       duration ttl,
                                                       time_point deadline) {
  const auto valid_until = validity_end(time_->now(), ttl);
  if (auto ok = check_postgres_ttl(ttl); !ok) {
    return ok.error();
  }
  auto db = borrow(deadline);
  if (!db) {
    return db.error();
  }
  auto extended = postgres_leases::extend(**db, name_space_, held.resource(),
                                          held.owner(), ttl, deadline);
  if (!extended) {
    return extended.error();
  }
  if (!*extended) {
    return not_owner();
  }
  return valid_until;
}

result<void> postgres_backend::release_by_deadline(const grant& held,
                                                   time_point deadline) {
  auto db = borrow(deadline);
  if (!db) {
    return db.error();
  }
  auto freed = postgres_leases::free_lease(**db, name_space_, held.resource(),
                                           held.owner(), deadline);
  if (!freed) {
    return freed.error();
  }
  if (!*freed) {
    return not_owner();
  }
  return {};
}

result<lease_status> postgres_backend::look_at(const resource_name& resource) {
  const auto deadline = time_->now() + call_timeout_;
  auto db = borrow(deadline);
  if (!db) {
    return db.error();
  }
  auto seen = postgres_leases::look(**db, name_space_, resource, deadline);
  if (!seen) {
    return seen.error();
  }
  auto last = mark::from_store(seen->token);
  if (!last) {
    return last.error();
  }
  lease_status status;
  status.last_token = *last;
  if (seen->left > duration{0}) {
    status.held = true;
    status.holder = seen->holder;
    status.remaining = seen->left;
  }
  return status;
}

result<void> postgres_backend::raise_floor(mark floor) {
  const auto deadline = time_->now() + call_timeout_;
  auto db = borrow(deadline);
  if (!db) {
    return db.error();
  }
  return postgres_leases::raise(**db, floor.value(), deadline);
}

}  // namespace

result<std::unique_ptr<lock_backend>> open_postgres_backend(
    const std::string& url, const postgres_locks_options& options) {
  auto setup = set_up_postgres(url, options, "postgres");
  if (!setup) {
    return setup.error();
  }
  auto backend = std::make_unique<postgres_backend>(*std::move(setup), options);
  if (auto ok = backend->start(); !ok) {
    return ok.error();
  }
  return std::unique_ptr<lock_backend>{std::move(backend)};
}

result<lock_service> open_postgres_locks(
    const std::string& url, const postgres_locks_options& options) {
  auto backend = open_postgres_backend(url, options);
  if (!backend) {
    return backend.error();
  }
  return lock_service{*std::move(backend), options.service};
}

}  // namespace lastdoor
