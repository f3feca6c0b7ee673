// repository.hpp: put a fence around a repository class you already have.
//
// Your repository's methods take the driver's transaction (for SQLite:
// sqlite3*) as their first parameter. `fenced_repository` runs each call in a
// transaction that has claimed the session's grant. The repository's SQL does
// not change, and a stale holder cannot commit through it.
//
// Errors: this is the one throwing surface. A rejected call throws `failure`
// (see errors.hpp; `failure::code()` decides what to do); an exception of
// the repository itself rolls back and passes through. No rejection is ever
// swallowed.
//
// Thread safety: as safe as the repository; calls through one wrapper are
// serialised by the store.
// Lifetime: refers to session and repository, which must outlive it.
//
// Example:
//
//   lastdoor::fenced_repository stock{session, inventory};
//   int left = stock.call(&inventory_repository::take, "sku-1001", 3);
//   stock.call([&](auto& repo, sqlite3* db) {   // several calls, one unit
//     repo.take(db, "sku-1001", 3);
//     repo.put(db, "sku-2002", 3);
//   });
#pragma once

#include <functional>
#include <lastdoor/gateway.hpp>
#include <type_traits>
#include <utility>

namespace lastdoor {

template <fenced_store Store, class Repository>
class fenced_repository {
 public:
  fenced_repository(session<Store>& s, Repository& r) noexcept
      : session_{&s}, repository_{&r} {}

  /// One method of the repository, in a fenced transaction of its own.
  /// The transaction is put in front of `args`.
  template <class R, class Tx, class... Params, class... Args>
  R call(R (Repository::*method)(Tx, Params...), Args&&... args) {
    return run([&](auto&& tx) -> R {
      return std::invoke(method, *repository_, tx, std::forward<Args>(args)...);
    });
  }
  template <class R, class Tx, class... Params, class... Args>
  R call(R (Repository::*method)(Tx, Params...) const, Args&&... args) {
    return run([&](auto&& tx) -> R {
      return std::invoke(method, *repository_, tx, std::forward<Args>(args)...);
    });
  }

  /// Several calls in one fenced transaction: `f(repository, transaction)`.
  template <class F>
  requires(!std::is_member_function_pointer_v<std::decay_t<F>>) auto call(
      F&& f) {
    return run([&](auto&& tx) { return f(*repository_, tx); });
  }

 private:
  template <class Body>
  auto run(Body&& body) {
    return session_->transaction(std::forward<Body>(body)).value();
  }

  session<Store>* session_;
  Repository* repository_;
};

}  // namespace lastdoor
