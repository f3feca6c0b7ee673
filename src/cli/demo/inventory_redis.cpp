#include "cli/demo/inventory_redis.hpp"

#include <fmt/format.h>

#include <charconv>
#include <functional>
#include <initializer_list>
#include <lastdoor/gateway.hpp>
#include <lastdoor/stores/redis.hpp>
#include <utility>

#include "drivers/redis_calls.hpp"

namespace lastdoor::cli {

namespace {

namespace driver = redis_driver;
using namespace std::chrono_literals;

constexpr duration patience = 5s;

std::int64_t whole(std::string_view digits) {
  std::int64_t n{};
  std::from_chars(digits.data(), digits.data() + digits.size(), n);
  return n;
}

// The demo's keys: a string for each stock, a hash of orders for each, and a
// hash of what there was at first.
class demo_keys {
 public:
  explicit demo_keys(std::string_view name_space)
      : prefix_{fmt::format("{{{}}}:demo_lastdoor:", name_space)} {}
  [[nodiscard]] std::string stock(int sku) const {
    return fmt::format("{}stock:{}", prefix_, sku);
  }
  [[nodiscard]] std::string orders(int sku) const {
    return fmt::format("{}orders:{}", prefix_, sku);
  }
  [[nodiscard]] std::string initial() const { return prefix_ + "initial"; }

 private:
  std::string prefix_;
};

// A connection without any fence.
class plain {
 public:
  static result<std::unique_ptr<plain>> open(const std::string& url) {
    auto server = driver::server_options(url, patience, {});
    if (!server) {
      return server.error();
    }
    auto loop = driver::loop::open(boot_clock());
    if (!loop) {
      return loop.error();
    }
    return std::make_unique<plain>(std::move(*loop), *server);
  }
  plain(std::unique_ptr<driver::loop> loop, const driver::node_options& server)
      : loop_{std::move(loop)}, node_{loop_->add(server)} {}

  using line = std::initializer_list<std::string_view>;
  // All in one write; `read` sees the answer to the last.
  result<void> say(std::initializer_list<line> lines,
                   const std::function<void(driver::reply_view)>& read = {}) {
    constexpr std::string_view doing = "the demo's own command";
    driver::session in{*loop_};
    const auto until = loop_->now() + patience;
    if (auto ok = driver::connect(in, node_, until); !ok) {
      return ok.error();
    }
    driver::ticket last;
    for (const auto& words : lines) {
      last = node_.send(in, driver::command(words));
    }
    if (in.wait_for_answer(last, until) != driver::fate::replied) {
      return driver::unanswered(doing);
    }
    if (last->answer().is_error()) {
      return driver::refused(in, node_, last->answer(), doing);
    }
    if (read) {
      read(last->answer());
    }
    return {};
  }

 private:
  std::unique_ptr<driver::loop> loop_;
  driver::node& node_;
};

// The same commands in both rounds: the fence is around them, not in them.
void write_sale(redis_commands& c, const demo_keys& keys, const demo_sale& s) {
  c.set(keys.stock(s.sku), s.stock_left);
  c.hash_set(keys.orders(s.sku), s.order, s.quantity);
}

class plain_tenure final : public demo_tenure {
 public:
  plain_tenure(lease l, plain& db, const demo_keys& keys)
      : lease_{std::move(l)}, db_{db}, keys_{keys} {}
  const lastdoor::grant& grant() const override { return lease_.grant(); }
  result<void> check() const override { return lease_.check(); }
  result<void> sell(const demo_sale& s) override {
    return db_.say(
        {{"MULTI"},
         {"SET", keys_.stock(s.sku), std::to_string(s.stock_left)},
         {"HSET", keys_.orders(s.sku), s.order, std::to_string(s.quantity)},
         {"EXEC"}});
  }
  result<void> release() override { return lease_.release(); }

 private:
  lease lease_;
  plain& db_;
  const demo_keys& keys_;
};

class fenced_tenure final : public demo_tenure {
 public:
  fenced_tenure(session<redis_store> s, const demo_keys& keys)
      : session_{std::move(s)}, keys_{keys} {}
  const lastdoor::grant& grant() const override { return session_.grant(); }
  result<void> check() const override { return session_.check(); }
  result<void> sell(const demo_sale& s) override {
    return session_.transaction(
        [&](redis_commands& c) { write_sale(c, keys_, s); });
  }
  result<void> release() override { return session_.release(); }

 private:
  session<redis_store> session_;
  const demo_keys& keys_;
};

class redis_inventory final : public demo_inventory {
 public:
  redis_inventory(redis_store store, std::unique_ptr<plain> db, demo_keys keys)
      : store_{std::move(store)}, db_{std::move(db)}, keys_{std::move(keys)} {}

  result<void> create(int skus, std::int64_t stock) override;
  result<void> drop() override;
  result<std::int64_t> stock(int sku) override;
  result<std::vector<demo_balance>> audit() override;

  result<tenure_ptr> lock_only(lock_service& locks, int sku,
                               const acquire_options& o) override {
    auto l = locks.acquire(demo_resource(sku), o);
    if (!l) {
      return l.error();
    }
    return tenure_ptr{
        std::make_unique<plain_tenure>(std::move(*l), *db_, keys_)};
  }
  result<tenure_ptr> fenced(lock_service& locks, int sku,
                            const acquire_options& o) override {
    gateway<redis_store> door{locks, store_};
    auto s = door.acquire(demo_resource(sku), o);
    if (!s) {
      return s.error();
    }
    return tenure_ptr{std::make_unique<fenced_tenure>(std::move(*s), keys_)};
  }
  result<void> sell_blindly(const lastdoor::grant& old,
                            const demo_sale& s) override {
    const lastdoor::grant unaware{old.resource(), old.owner(), old.token(),
                                  old.source(), time_point::max()};
    return store_.transaction(
        unaware, [&](redis_commands& c) { write_sale(c, keys_, s); });
  }

 private:
  redis_store store_;
  std::unique_ptr<plain> db_;
  demo_keys keys_;
};

result<void> redis_inventory::create(int skus, std::int64_t stock) {
  const auto amount = std::to_string(stock);
  for (int sku = 1; sku <= skus; ++sku) {
    bool made = false;
    auto ok =
        db_->say({{"HSETNX", keys_.initial(), std::to_string(sku), amount}},
                 [&](driver::reply_view a) { made = a.integer() == 1; });
    if (ok && made) {
      ok = db_->say({{"SET", keys_.stock(sku), amount}});
    }
    if (!ok) {
      return ok;
    }
    if (!made) {
      return fail(errc::precondition_failed,
                  fmt::format("the key {} is there: another demo is running, "
                              "or one was killed; delete the demo's keys if "
                              "it was",
                              keys_.initial()));
    }
  }
  return {};
}

result<void> redis_inventory::drop() {
  auto all = audit();
  if (!all) {
    return all.error();
  }
  for (const auto& b : *all) {
    if (auto ok = db_->say({{"DEL", keys_.stock(b.sku), keys_.orders(b.sku)}});
        !ok) {
      return ok;
    }
  }
  return db_->say({{"DEL", keys_.initial()}});
}

result<std::int64_t> redis_inventory::stock(int sku) {
  std::int64_t n = 0;
  auto ok = db_->say({{"GET", keys_.stock(sku)}}, [&](driver::reply_view a) {
    n = a.is_nil() ? -1 : whole(a.text());
  });
  if (!ok) {
    return ok.error();
  }
  if (n < 0) {
    return fail(errc::missing, "the demo's stock has no such SKU");
  }
  return n;
}

result<std::vector<demo_balance>> redis_inventory::audit() {
  std::vector<demo_balance> all;
  auto ok = db_->say({{"HGETALL", keys_.initial()}}, [&](driver::reply_view a) {
    for (std::size_t i = 0; i + 1 < a.size(); i += 2) {
      all.push_back(
          {static_cast<int>(whole(a[i].text())), whole(a[i + 1].text()), 0, 0});
    }
  });
  for (auto& b : all) {
    if (ok) {
      ok =
          db_->say({{"HVALS", keys_.orders(b.sku)}}, [&](driver::reply_view a) {
            for (std::size_t i = 0; i < a.size(); ++i) {
              b.sold += whole(a[i].text());
            }
          });
    }
    if (ok) {
      auto left = stock(b.sku);
      if (!left) {
        return left.error();
      }
      b.stock = *left;
    }
  }
  if (!ok) {
    return ok.error();
  }
  return all;
}

}  // namespace

result<std::unique_ptr<demo_inventory>> open_redis_inventory(
    const backend_url& u) {
  redis_store_options o;
  o.adopt_existing = true;  // the stock is there before its first sale
  o.call_timeout = patience;
  if (!u.name_space.empty()) {
    o.name_space = u.name_space;
  }
  const demo_keys keys{o.name_space};
  auto store = open_redis_store(u.path, o);
  if (!store) {
    return store.error();
  }
  // A store without a ledger is better told before the first round.
  if (auto looked = store->highest_mark(); !looked) {
    return looked.error();
  }
  auto db = plain::open(u.path);
  if (!db) {
    return db.error();
  }
  return std::unique_ptr<demo_inventory>{std::make_unique<redis_inventory>(
      std::move(*store), std::move(*db), keys)};
}

}  // namespace lastdoor::cli
