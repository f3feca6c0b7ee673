#include "sqlite_locks.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "drivers/forks.hpp"
#include "drivers/sqlite.hpp"
#include "sqlite_lease_table.hpp"
#include "stores/sqlite_migrate.hpp"
#include "turnstile.hpp"

namespace lastdoor {

namespace {

using sqlite_driver::connection;
using sqlite_driver::transaction;

constexpr std::string_view acquiring = "acquiring the lease";
constexpr std::string_view renewing = "renewing the lease";
constexpr std::string_view releasing = "releasing the lease";
constexpr std::string_view inspecting = "looking at the lease";
constexpr std::string_view raising = "raising the token counter";

error not_owner(const grant& g) {
  return fail(errc::not_owner,
              "the lease is over, or somebody else's; a new grant is needed")
      .about(g.resource().str())
      .presented(g.token().value());
}

// Says of what, whatever went wrong.
template <class T>
result<T> about(const resource_name& resource, result<T> r) {
  if (!r) {
    r.error().about(resource.str());
  }
  return r;
}
template <class T>
result<T> about(const grant& g, result<T> r) {
  if (!r) {
    r.error().about(g.resource().str()).presented(g.token().value());
  }
  return r;
}

class sqlite_backend final : public lock_backend {
 public:
  sqlite_backend(lease_table rows, source_name source,
                 const sqlite_locks_options& options)
      : source_{std::move(source)},
        call_timeout_{options.call_timeout},
        time_{options.service.time},
        forks_{forks()},
        rows_{std::move(rows)} {}

  [[nodiscard]] const source_name& source() const noexcept override {
    return source_;
  }
  [[nodiscard]] duration max_ttl() const noexcept override {
    return std::chrono::hours{24};
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
  [[nodiscard]] result<void> raise_floor(mark floor) override;

 private:
  // The right to use the connection, until the scope ends.
  class turn {
   public:
    explicit turn(turnstile& gate) noexcept : gate_{&gate} {}
    turn(turn&& other) noexcept : gate_{std::exchange(other.gate_, nullptr)} {}
    turn& operator=(turn&&) = delete;
    ~turn() {
      if (gate_ != nullptr) {
        gate_->leave();
      }
    }

   private:
    turnstile* gate_;
  };

  result<turn> take_turn(time_point deadline);
  [[nodiscard]] result<void> check_ttl(duration ttl) const;

  result<lease_answer> acquire_by_deadline(const lease_request& request);
  result<time_point> renew_by_deadline(const grant& held, duration ttl,
                                       time_point deadline);
  result<void> release_by_deadline(const grant& held, time_point deadline);
  result<lease_status> look_at(const resource_name& resource);

  [[nodiscard]] result<void> refuse_if_held(
      const std::optional<lease_row>& row) const;
  result<fencing_token> grant_lease(const lease_request& request);
  result<std::optional<fencing_token>> grant_once(const lease_request& request,
                                                  durability level);
  [[nodiscard]] result<token_counter> draw(const std::optional<lease_row>& row,
                                           const token_counter& counter) const;
  result<bool> free_own(const resource_name& resource, const owner_id& owner);

  const source_name source_;
  const duration call_timeout_;
  const std::shared_ptr<clock> time_;
  const unsigned forks_;

  turnstile gate_;
  lease_table rows_;  // only for the thread whose turn it is
};

auto sqlite_backend::take_turn(time_point deadline) -> result<turn> {
  // A forked child has neither the parent's locks nor the threads that may
  // have been inside; nothing below is safe to touch there.
  if (forks() != forks_) {
    return fail(errc::misconfigured,
                "this lock service was opened before fork(); a child needs "
                "one of its own");
  }
  const auto now = time_->now();
  if (now >= deadline || !gate_.enter(deadline - now)) {
    return fail(errc::unavailable,
                "the time for this call was over before its turn came");
  }
  turn mine{gate_};
  if (rows_.db().moved()) {
    return fail(errc::misconfigured, sqlite_driver::moved_text);
  }
  rows_.db().busy_timeout(std::max(deadline - time_->now(), duration{0}));
  return mine;
}

result<void> sqlite_backend::check_ttl(duration ttl) const {
  if (ttl < std::chrono::milliseconds{1} || ttl > max_ttl()) {
    return fail(errc::invalid_argument, "a TTL is 1 ms to 24 h");
  }
  return {};
}

result<void> sqlite_backend::refuse_if_held(
    const std::optional<lease_row>& row) const {
  const auto now = time_->now();
  if (!row || !row->held_at(now)) {
    return {};
  }
  const auto left =
      std::chrono::ceil<std::chrono::milliseconds>(row->expires_at - now);
  return fail(errc::busy, fmt::format("held by '{}' for up to {} ms",
                                      row->holder, left.count()))
      .retry_after_ms(left.count());
}

// The counter after one more token, which must be above every token that this
// resource has seen: a counter that stands below was put back by somebody.
result<token_counter> sqlite_backend::draw(const std::optional<lease_row>& row,
                                           const token_counter& counter) const {
  if (counter.exhausted()) {
    return fail(errc::token_exhausted,
                fmt::format("the token counter of {} is at its end, {}",
                            source_.str(), fencing_token::max));
  }
  const auto next = counter.drawn();
  if (row && row->token.value() >= next.value) {
    return fail(errc::damaged,
                fmt::format("the token counter of {} would give {}, which is "
                            "not above the last token of this lease, {}",
                            source_.str(), next.value, row->token.value()));
  }
  return next;
}

// One transaction: look again, draw, store. Nothing when the next token needs
// a reservation and `level` would not put it on the disk.
result<std::optional<fencing_token>> sqlite_backend::grant_once(
    const lease_request& request, durability level) {
  if (auto ok = rows_.set(level); !ok) {
    return ok.error();
  }
  auto tx = transaction::begin_immediate(rows_.db(), acquiring);
  if (!tx) {
    return tx.error();
  }
  auto row = rows_.find(request.resource, acquiring);
  if (!row) {
    return row.error();
  }
  if (auto is_free = refuse_if_held(*row); !is_free) {
    return is_free.error();
  }
  auto counter = rows_.counter(acquiring);
  if (!counter) {
    return counter.error();
  }
  auto next = draw(*row, *counter);
  if (!next) {
    return next.error();
  }
  if (counter->needs_block() && !rows_.syncs(level)) {
    return std::optional<fencing_token>{};
  }
  auto token = fencing_token::from(next->value);
  if (!token) {
    return token.error();
  }
  if (auto ok = rows_.store(*next, acquiring); !ok) {
    return ok.error();
  }
  // The clock is read while the write lock is held: the wait for it may have
  // been long, and the holder is given the time it asked for from now on.
  const auto expires_at = time_->now() + request.ttl;
  if (auto ok = rows_.store(request, *token, expires_at, acquiring); !ok) {
    return ok.error();
  }
  if (auto ok = tx->commit(acquiring); !ok) {
    return ok.error();
  }
  return std::optional{*token};
}

// The first token of a block is drawn in the transaction that reserves the
// block, so it cannot be answered before the reservation is on the disk; no
// other process sees it before that either. All further tokens of the block
// are covered by it: sqlite_counter.hpp has the argument.
result<fencing_token> sqlite_backend::grant_lease(
    const lease_request& request) {
  auto token = grant_once(request, durability::written);
  if (token && !*token) {
    token = grant_once(request, durability::synced);
  }
  if (!token) {
    return token.error();
  }
  if (!*token) {
    return fail(errc::internal, "a synced reservation was not enough");
  }
  return **token;
}

// False when there is no such lease.
result<bool> sqlite_backend::free_own(const resource_name& resource,
                                      const owner_id& owner) {
  if (auto ok = rows_.set(durability::written); !ok) {
    return ok.error();
  }
  auto tx = transaction::begin_immediate(rows_.db(), releasing);
  if (!tx) {
    return tx.error();
  }
  auto freed = rows_.free(resource, owner, releasing);
  if (!freed) {
    return freed.error();
  }
  if (auto ok = tx->commit(releasing); !ok) {
    return ok.error();
  }
  return *freed;
}

result<lease_answer> sqlite_backend::acquire_by_deadline(
    const lease_request& request) {
  if (auto ok = check_ttl(request.ttl); !ok) {
    return ok.error();
  }
  // Before the first statement: what the holder may rely on starts here.
  const auto valid_until = time_->now() + request.ttl;
  auto mine = take_turn(request.deadline);
  if (!mine) {
    return mine.error();
  }
  // A look first: whoever finds it held takes no write lock, so a crowd of
  // waiters does not slow the holder's renewals down.
  auto row = rows_.find(request.resource, acquiring);
  if (!row) {
    return row.error();
  }
  if (auto is_free = refuse_if_held(*row); !is_free) {
    return is_free.error();
  }
  auto token = grant_lease(request);
  if (!token && token.code() == errc::in_doubt &&
      free_own(request.resource, request.owner)) {
    // The row is not ours, or is freed: nothing is left of this attempt.
    return fail(errc::unavailable, token.error().text())
        .backend(token.error().backend());
  }
  if (!token) {
    return token.error();
  }
  if (time_->now() >= valid_until) {
    free_own(request.resource, request.owner).ignore();
    return fail(errc::too_slow,
                "granted, but its whole TTL was over by then; undone");
  }
  return lease_answer{*token, valid_until};
}

result<time_point> sqlite_backend::renew_by_deadline(const grant& held,
                                                     duration ttl,
                                                     time_point deadline) {
  if (auto ok = check_ttl(ttl); !ok) {
    return ok.error();
  }
  const auto valid_until = time_->now() + ttl;
  auto mine = take_turn(deadline);
  if (!mine) {
    return mine.error();
  }
  // A lease that is over or foreign never comes back to this owner, so a look
  // without the write lock is enough to refuse.
  auto row = rows_.find(held.resource(), renewing);
  if (!row) {
    return row.error();
  }
  if (!*row || !(*row)->belongs_to(held) || !(*row)->held_at(time_->now())) {
    return not_owner(held);
  }
  if (auto ok = rows_.set(durability::written); !ok) {
    return ok.error();
  }
  auto tx = transaction::begin_immediate(rows_.db(), renewing);
  if (!tx) {
    return tx.error();
  }
  const auto now = time_->now();
  auto extended = rows_.extend(held, now, now + ttl, renewing);
  if (!extended) {
    return extended.error();
  }
  if (!*extended) {
    return not_owner(held);
  }
  if (auto ok = tx->commit(renewing); !ok) {
    return ok.error();
  }
  return valid_until;
}

result<void> sqlite_backend::release_by_deadline(const grant& held,
                                                 time_point deadline) {
  auto mine = take_turn(deadline);
  if (!mine) {
    return mine.error();
  }
  auto row = rows_.find(held.resource(), releasing);
  if (!row) {
    return row.error();
  }
  if (!*row || !(*row)->belongs_to(held)) {
    return not_owner(held);
  }
  if ((*row)->released) {
    return {};  // by an earlier call, whose answer may have been lost
  }
  if (!(*row)->held_at(time_->now())) {
    return not_owner(held);
  }
  auto freed = free_own(held.resource(), held.owner());
  if (!freed) {
    return freed.error();
  }
  if (!*freed) {
    return not_owner(held);  // it ran out and was taken while we waited
  }
  return {};
}

result<lease_status> sqlite_backend::look_at(const resource_name& resource) {
  auto mine = take_turn(time_->now() + call_timeout_);
  if (!mine) {
    return mine.error();
  }
  auto row = rows_.find(resource, inspecting);
  if (!row) {
    return row.error();
  }
  lease_status status;
  if (!*row) {
    return status;
  }
  const auto now = time_->now();
  status.last_token = (*row)->token;
  if ((*row)->held_at(now)) {
    status.held = true;
    status.holder = (*row)->holder;
    status.remaining = (*row)->expires_at - now;
  }
  return status;
}

result<void> sqlite_backend::raise_floor(mark floor) {
  auto mine = take_turn(time_->now() + call_timeout_);
  if (!mine) {
    return mine.error();
  }
  // Synced: a floor is a promise about data that lies in another store.
  if (auto ok = rows_.set(durability::synced); !ok) {
    return ok.error();
  }
  auto tx = transaction::begin_immediate(rows_.db(), raising);
  if (!tx) {
    return tx.error();
  }
  auto counter = rows_.counter(raising);
  if (!counter) {
    return counter.error();
  }
  // A reservation covers the value, so a value that is high enough is also
  // safe from a power cut.
  if (counter->value >= floor.value()) {
    return {};
  }
  if (auto ok = rows_.store(counter->raised(floor), raising); !ok) {
    return ok.error();
  }
  return tx->commit(raising);
}

}  // namespace

result<std::unique_ptr<lock_backend>> open_sqlite_backend_in_boot(
    const std::string& path, const sqlite_locks_options& options,
    std::string boot_id) {
  if (options.name_space.empty()) {
    return fail(errc::invalid_argument, "a name space must not be empty");
  }
  auto source = source_name::parse("sqlite/" + options.name_space);
  if (!source) {
    return source.error();
  }
  if (options.call_timeout <= duration{0} ||
      options.call_timeout > std::chrono::hours{24} || !options.service.time) {
    return fail(errc::invalid_argument,
                "a lock service needs a call timeout of at most 24 h, and a "
                "clock");
  }
  auto db = connection::open(path, sqlite_driver::open_mode::create);
  if (!db) {
    return db.error();
  }
  db->busy_timeout(options.call_timeout);
  if (auto ok = sqlite::apply_all(*db); !ok) {
    return ok.error();
  }
  auto rows =
      lease_table::open(std::move(*db), options.name_space, std::move(boot_id));
  if (!rows) {
    return rows.error();
  }
  return std::unique_ptr<lock_backend>{
      std::make_unique<sqlite_backend>(std::move(*rows), *source, options)};
}

}  // namespace lastdoor
