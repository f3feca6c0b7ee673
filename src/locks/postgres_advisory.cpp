#include <fmt/format.h>

#include <algorithm>
#include <lastdoor/locks/postgres.hpp>
#include <map>
#include <mutex>

#include "drivers/forks.hpp"
#include "locks/postgres_advisory_table.hpp"
#include "locks/postgres_common.hpp"
#include "locks/postgres_wakeups.hpp"
#include "locks/turnstile.hpp"

namespace lastdoor {

namespace {

using namespace std::chrono_literals;
using postgres_driver::connection;
using postgres_driver::pool;
using postgres_leases::advisory_state;

constexpr int rounds_max = 5;

// A lease and the session that it lives in. The session is in the pool's
// count, and goes back to it only after its lock was given back and seen to
// be given back; otherwise it is closed, which gives back everything.
struct held_lock {
  held_lock(owner_id who, pool::loan with, time_point until)
      : owner{std::move(who)}, session{std::move(with)}, promised{until} {}
  owner_id owner;
  pool::loan session;
  time_point promised;  // until when a holder was told that it holds
  turnstile gate;       // for the session
};

class advisory_backend final : public lock_backend {
 public:
  advisory_backend(postgres_setup setup, const postgres_locks_options& options)
      : source_{std::move(setup.source)},
        name_space_{"advisory/" + options.name_space},
        call_timeout_{options.call_timeout},
        time_{options.service.time},
        forks_{forks()},
        notify_{options.notify},
        pool_{setup.where, setup.connect, options.connections},
        wakeups_{std::move(setup.where), std::move(setup.connect), name_space_,
                 options.call_timeout} {}

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

  [[nodiscard]] result<void> start();

 private:
  using lock_ptr = std::shared_ptr<held_lock>;

  [[nodiscard]] result<pool::loan> borrow(time_point deadline);
  [[nodiscard]] result<lease_answer> acquire_by_deadline(
      const lease_request& request);
  [[nodiscard]] result<time_point> renew_by_deadline(const grant& held,
                                                     duration ttl,
                                                     time_point deadline);
  [[nodiscard]] result<void> release_by_deadline(const grant& held,
                                                 time_point deadline);
  [[nodiscard]] result<lease_status> look_at(const resource_name& resource);
  [[nodiscard]] result<fencing_token> attempt(connection& db,
                                              const lease_request& request);
  [[nodiscard]] static result<void> give_back(connection& db,
                                              time_point deadline);
  [[nodiscard]] result<void> prepare(connection& db,
                                     const lease_request& request,
                                     const advisory_state& seen);
  [[nodiscard]] result<void> recognise_release(const grant& held,
                                               time_point deadline);
  [[nodiscard]] lock_ptr find(const grant& held);
  void close_expired();
  void forget(const grant& held);

  const source_name source_;
  const std::string name_space_;
  const duration call_timeout_;
  const std::shared_ptr<clock> time_;
  const unsigned forks_;
  const bool notify_;
  pool pool_;
  postgres_wakeups wakeups_;
  std::mutex mutex_;
  // By resource. Destroyed before the pool that the sessions are of.
  std::map<resource_name, lock_ptr> held_;
};

// The right to use the session of a lock, until the scope ends.
class turn {
 public:
  static result<turn> take(turnstile& gate, duration patience) {
    if (patience <= duration{0} || !gate.enter(patience)) {
      return fail(errc::unavailable,
                  "another call on this lease took all the time");
    }
    return turn{gate};
  }
  turn(turn&& other) noexcept : gate_{std::exchange(other.gate_, nullptr)} {}
  turn& operator=(turn&&) = delete;
  ~turn() {
    if (gate_ != nullptr) {
      gate_->leave();
    }
  }

 private:
  explicit turn(turnstile& gate) noexcept : gate_{&gate} {}
  turnstile* gate_;
};

result<pool::loan> advisory_backend::borrow(time_point deadline) {
  if (forks() != forks_) {
    return fail(errc::misconfigured,
                "this lock service was opened before fork(); a child needs "
                "one of its own");
  }
  auto db = pool_.borrow(deadline);
  if (db && (*db)->pooled()) {
    return fail(errc::misconfigured,
                "there is a pooler between this process and the server, and "
                "a session's lock would be left with whoever has the session "
                "next: connect directly, or use leases");
  }
  return db;
}

result<void> advisory_backend::start() {
  const auto deadline = time_->now() + call_timeout_;
  auto db = borrow(deadline);
  if (!db) {
    return db.error();
  }
  return postgres_leases::check(**db, deadline);
}

advisory_backend::lock_ptr advisory_backend::find(const grant& held) {
  const std::lock_guard lock{mutex_};
  const auto it = held_.find(held.resource());
  if (it == held_.end() || it->second->owner != held.owner()) {
    return nullptr;
  }
  return it->second;
}

// A lease that was lost is not released by anyone. Its session is no use.
void advisory_backend::close_expired() {
  const auto now = time_->now();
  const std::lock_guard lock{mutex_};
  for (auto it = held_.begin(); it != held_.end();) {
    auto& candidate = *it->second;
    // Not while somebody renews it.
    if (!candidate.gate.enter(duration{0})) {
      ++it;
      continue;
    }
    const bool over = candidate.promised < now;
    if (over) {
      candidate.session->abandon();
    }
    candidate.gate.leave();
    it = over ? held_.erase(it) : std::next(it);
  }
}

void advisory_backend::forget(const grant& held) {
  const std::lock_guard lock{mutex_};
  const auto it = held_.find(held.resource());
  if (it != held_.end() && it->second->owner == held.owner()) {
    held_.erase(it);
  }
}

// Whatever lock the session has.
result<void> advisory_backend::give_back(connection& db, time_point deadline) {
  auto done = db.script({"SELECT pg_catalog.pg_advisory_unlock_all()",
                         "giving the lock back", postgres_driver::effect::reads,
                         deadline});
  return done ? result<void>{} : result<void>{done.error()};
}

result<void> advisory_backend::prepare(connection& db,
                                       const lease_request& request,
                                       const advisory_state& seen) {
  if (!seen.row.same_source) {
    return postgres_leases::raise(db, 0, request.deadline);
  }
  if (!seen.row.exists) {
    return postgres_leases::add(db, name_space_, request.resource,
                                request.deadline);
  }
  return {};
}

result<fencing_token> advisory_backend::attempt(connection& db,
                                                const lease_request& request) {
  for (int round = 0; round < rounds_max; ++round) {
    auto taken = postgres_leases::take_advisory(db, name_space_, request);
    if (!taken) {
      return taken.error();
    }
    if (*taken && (*taken)->token == (*taken)->drawn) {
      return fencing_token::from((*taken)->token);
    }
    if (*taken) {
      // The counter was set back; see the lease service. The token is dropped
      // and with it the lock, which is still this session's.
      if (auto ok = give_back(db, request.deadline); !ok) {
        return ok.error();
      }
      if (auto ok = postgres_leases::raise(db, 0, request.deadline); !ok) {
        return ok.error();
      }
      continue;
    }
    auto seen = postgres_leases::look_advisory(
        db, name_space_, request.resource, request.deadline);
    if (!seen) {
      return seen.error();
    }
    if (seen->locked && seen->row.same_source) {
      return busy(seen->row.holder, std::max(seen->row.left, duration{1ms}));
    }
    if (auto ok = prepare(db, request, *seen); !ok) {
      return ok.error();
    }
  }
  return fail(errc::busy, "others were faster each time");
}

result<lease_answer> advisory_backend::acquire_by_deadline(
    const lease_request& request) {
  // Before the first statement: what the holder may rely on starts here.
  const auto valid_until = validity_end(time_->now(), request.ttl);
  if (auto ok = check_postgres_ttl(request.ttl); !ok) {
    return ok.error();
  }
  close_expired();
  auto session = borrow(request.deadline);
  if (!session) {
    return session.error();
  }
  auto token = attempt(**session, request);
  if (!token) {
    // A clean refusal took nothing. Where the counter is at its end the lock
    // was taken first, and whoever asks next must not find it so. Otherwise
    // what was taken goes with the session, as soon as the server notices.
    const bool clean =
        token.code() == errc::busy || (token.code() == errc::token_exhausted &&
                                       give_back(**session, request.deadline));
    if (!clean) {
      (*session)->abandon();
    }
    // Nothing of this attempt can outlive its session.
    return token.code() == errc::in_doubt
               ? fail(errc::unavailable, token.error().text())
                     .backend(token.error().backend())
               : token.error();
  }
  if (time_->now() >= valid_until) {
    (*session)->abandon();
    return fail(errc::too_slow,
                "granted, but its whole TTL was over by then; undone");
  }
  const std::lock_guard lock{mutex_};
  held_.insert_or_assign(request.resource,
                         std::make_shared<held_lock>(
                             request.owner, *std::move(session), valid_until));
  return lease_answer{*token, valid_until};
}

result<time_point> advisory_backend::renew_by_deadline(const grant& held,
                                                       duration ttl,
                                                       time_point deadline) {
  const auto now = time_->now();
  if (auto ok = check_postgres_ttl(ttl); !ok) {
    return ok.error();
  }
  auto mine = forks() == forks_ ? find(held) : nullptr;
  if (!mine) {
    return not_owner();
  }
  auto my_turn = turn::take(mine->gate, deadline - now);
  if (!my_turn) {
    return my_turn.error();
  }
  // What was promised stands, if it is for longer.
  const auto until = std::max(validity_end(now, ttl), mine->promised);
  auto extended = postgres_leases::extend_advisory(*mine->session, name_space_,
                                                   held, ttl, deadline);
  if (extended && *extended) {
    mine->promised = until;
    return until;
  }
  if (mine->session->raw() != nullptr && !extended) {
    return extended.error();
  }
  // The session is gone, and the lock with it; or the row was taken away.
  mine->session->abandon();
  forget(held);
  return not_owner();
}

// A release of a lock that is not held here: was it given back before?
result<void> advisory_backend::recognise_release(const grant& held,
                                                 time_point deadline) {
  auto db = borrow(deadline);
  if (!db) {
    return db.error();
  }
  auto seen =
      postgres_leases::look(**db, name_space_, held.resource(), deadline);
  if (!seen) {
    return seen.error();
  }
  if (seen->owner == held.owner().str() && seen->released) {
    return {};
  }
  return not_owner();
}

result<void> advisory_backend::release_by_deadline(const grant& held,
                                                   time_point deadline) {
  auto mine = forks() == forks_ ? find(held) : nullptr;
  if (!mine) {
    return recognise_release(held, deadline);
  }
  auto my_turn = turn::take(mine->gate, deadline - time_->now());
  if (!my_turn) {
    return my_turn.error();
  }
  auto freed = postgres_leases::free_advisory(*mine->session, name_space_, held,
                                              deadline);
  if (!freed || !*freed) {
    mine->session->abandon();
  }
  forget(held);
  if (!freed) {
    return freed.error();
  }
  if (!*freed) {
    return not_owner();
  }
  return {};
}

result<lease_status> advisory_backend::look_at(const resource_name& resource) {
  const auto deadline = time_->now() + call_timeout_;
  auto db = borrow(deadline);
  if (!db) {
    return db.error();
  }
  auto seen =
      postgres_leases::look_advisory(**db, name_space_, resource, deadline);
  if (!seen) {
    return seen.error();
  }
  auto last = mark::from_store(seen->row.token);
  if (!last) {
    return last.error();
  }
  lease_status status;
  status.last_token = *last;
  if (seen->locked) {
    status.held = true;
    status.holder = seen->row.holder;
    status.remaining = std::max(seen->row.left, duration{0});
  }
  return status;
}

result<void> advisory_backend::raise_floor(mark floor) {
  const auto deadline = time_->now() + call_timeout_;
  auto db = borrow(deadline);
  if (!db) {
    return db.error();
  }
  return postgres_leases::raise(**db, floor.value(), deadline);
}

}  // namespace

result<std::unique_ptr<lock_backend>> open_postgres_advisory_backend(
    const std::string& url, const postgres_locks_options& options) {
  auto setup = set_up_postgres(url, options, "postgres-advisory");
  if (!setup) {
    return setup.error();
  }
  auto backend = std::make_unique<advisory_backend>(*std::move(setup), options);
  if (auto ok = backend->start(); !ok) {
    return ok.error();
  }
  return std::unique_ptr<lock_backend>{std::move(backend)};
}

result<lock_service> open_postgres_advisory_locks(
    const std::string& url, const postgres_locks_options& options) {
  auto backend = open_postgres_advisory_backend(url, options);
  if (!backend) {
    return backend.error();
  }
  return lock_service{*std::move(backend), options.service};
}

}  // namespace lastdoor
