// inventory.hpp: the business of the demo, behind one small interface. A new
// store is one more implementation of it.
//
// A sale is what makes lost updates visible: the stock is read, the sale is
// worked out, and the new stock is written as a number. If somebody else sold
// in between, that sale is gone from the stock but not from the orders.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <lastdoor/lock_service.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace lastdoor::cli {

struct demo_sale {
  int sku;
  std::string order;  // its key
  std::int64_t quantity;
  std::int64_t stock_left;  // the stock that was read, less the quantity
  int worker;
  fencing_token token;
};

struct demo_balance {
  int sku;
  std::int64_t initial;
  std::int64_t sold;   // by the orders
  std::int64_t stock;  // by the stock table
  // Units that the stock still shows although they are sold. Zero is right.
  [[nodiscard]] std::int64_t lost() const noexcept {
    return stock - (initial - sold);
  }
};

// One tenure of the lock of one SKU, from grant to release.
class demo_tenure {
 public:
  virtual ~demo_tenure() = default;
  [[nodiscard]] virtual const lastdoor::grant& grant() const = 0;
  [[nodiscard]] virtual result<void> check() const = 0;
  [[nodiscard]] virtual result<void> sell(const demo_sale& s) = 0;
  [[nodiscard]] virtual result<void> release() = 0;
};

class demo_inventory {
 public:
  virtual ~demo_inventory() = default;

  // Makes the demo's own tables, demo_lastdoor_*; `precondition_failed` if
  // they are there. (Names in lastdoor_* are closed to a store's users.)
  [[nodiscard]] virtual result<void> create(int skus, std::int64_t stock) = 0;
  [[nodiscard]] virtual result<void> drop() = 0;

  [[nodiscard]] virtual result<std::int64_t> stock(int sku) = 0;
  [[nodiscard]] virtual result<std::vector<demo_balance>> audit() = 0;

  using tenure_ptr = std::unique_ptr<demo_tenure>;
  // The lock alone: `sell` is a plain transaction.
  [[nodiscard]] virtual result<tenure_ptr> lock_only(
      lock_service& locks, int sku, const acquire_options& o) = 0;
  // Through the gateway: `sell` is a fenced transaction of the session.
  [[nodiscard]] virtual result<tenure_ptr> fenced(lock_service& locks, int sku,
                                                  const acquire_options& o) = 0;
  // Straight to the store with a grant of old, as a program does that never
  // looks at its lease: nothing on this side stops it.
  [[nodiscard]] virtual result<void> sell_blindly(const lastdoor::grant& old,
                                                  const demo_sale& s) = 0;
};

// The resource of an SKU: lastdoor-demo/sku-3.
[[nodiscard]] std::string demo_resource(int sku);

[[nodiscard]] result<std::unique_ptr<demo_inventory>> open_demo_inventory(
    std::string_view store_url);

}  // namespace lastdoor::cli
