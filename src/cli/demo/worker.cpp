#include "cli/demo/worker.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <random>
#include <utility>

#include "cli/backends.hpp"
#include "cli/demo/events.hpp"
#include "cli/demo/inventory.hpp"

namespace lastdoor::cli {

namespace {

using std::chrono::milliseconds;

// One sale in so many stops in its middle, if the coordinator has time for it.
constexpr std::uint64_t one_in = 8;

// What the coordinator says, byte by byte. A closed input means: end.
class orders_in {
 public:
  [[nodiscard]] std::string first_line() {
    std::string line;
    for (char c = 0; read_byte(c) && c != '\n';) {
      line += c;
    }
    return line;
  }
  void wait_for_go() {
    while (!ended_ && wait() != demo_go) {
    }
  }
  [[nodiscard]] bool ended() {
    pollfd in{STDIN_FILENO, POLLIN, 0};
    while (!ended_ && ::poll(&in, 1, 0) > 0) {
      wait();
    }
    return ended_;
  }

 private:
  static bool read_byte(char& c) {
    ssize_t n = 0;
    while ((n = ::read(STDIN_FILENO, &c, 1)) < 0 && errno == EINTR) {
    }
    return n == 1;
  }
  char wait() {
    char c = demo_end;
    ended_ = !read_byte(c) || c == demo_end || ended_;
    return c;
  }
  bool ended_{false};
};

class seller {
 public:
  seller(const demo_orders_to_worker& o, orders_in& in, lock_service locks,
         demo_inventory& inventory)
      : orders_{o},
        in_{in},
        locks_{std::move(locks)},
        inventory_{inventory},
        chance_{o.seed * 1000003 + static_cast<std::uint64_t>(o.index)},
        bell_{boot_clock()->make_alarm()} {}

  void run() {
    while (!in_.ended()) {
      sell_once();
    }
  }

 private:
  void sell_once();
  void sell_one(demo_tenure& tenure, int sku);
  result<void> write(demo_tenure& tenure, const demo_sale& s, bool blind);
  void tell(demo_event e);
  void tell_failure(const error& e, int sku);
  std::uint64_t pick(std::uint64_t below) { return chance_() % below; }
  // A little work, as long as chance has it.
  void think() {
    bell_->wait_until(boot_clock()->now() + milliseconds{1 + pick(3)});
  }

  const demo_orders_to_worker& orders_;
  orders_in& in_;
  lock_service locks_;
  demo_inventory& inventory_;
  std::mt19937_64 chance_;
  std::unique_ptr<alarm> bell_;
  std::int64_t sold_{0};
  bool blind_next_{true};
};

void seller::tell(demo_event e) {
  e.at_ns = boot_clock()->now().time_since_epoch().count();
  const std::string line = to_line(e);
  if (!output::write(line)) {
    ::_exit(1);  // nobody is listening any more
  }
}

void seller::tell_failure(const error& e, int sku) {
  demo_event out{demo_event_kind::failed};
  out.sku = sku;
  out.text = e.message();
  tell(std::move(out));
}

void seller::sell_once() {
  const int sku =
      1 + static_cast<int>(pick(static_cast<std::uint64_t>(orders_.skus)));
  acquire_options o;
  o.ttl = milliseconds{orders_.ttl_ms};
  o.wait_at_most = o.ttl;
  o.backoff = {milliseconds{2}, milliseconds{20}};
  o.holder = fmt::format("demo worker {}", orders_.index);
  auto tenure = orders_.fenced ? inventory_.fenced(locks_, sku, o)
                               : inventory_.lock_only(locks_, sku, o);
  if (tenure) {
    sell_one(**tenure, sku);
    (*tenure)->release().ignore();  // a lost lease cannot be given back
  } else if (!tenure.error().retryable()) {
    tell_failure(tenure.error(), sku);
  }
}

void seller::sell_one(demo_tenure& tenure, int sku) {
  const auto stock = inventory_.stock(sku);
  if (!stock) {
    return tell_failure(stock.error(), sku);
  }
  const auto token = tenure.grant().token();
  demo_event e{demo_event_kind::granted};
  e.sku = sku;
  e.token = token.value();
  e.stock = *stock;
  // Both rounds look at the clock before they write. What no program can do
  // is look and write in one step.
  if (!tenure.check()) {
    e.kind = demo_event_kind::lost_time;
    return tell(e);
  }
  tell(e);
  think();
  bool blind = false;
  if (pick(one_in) == 0) {
    e.kind = demo_event_kind::here;
    tell(e);
    in_.wait_for_go();
    blind = std::exchange(blind_next_, !blind_next_);
  }
  const auto quantity = static_cast<std::int64_t>(1 + pick(5));
  const demo_sale s{sku,           fmt::format("{}-{}", orders_.index, ++sold_),
                    quantity,      *stock - quantity,
                    orders_.index, token};
  const auto done = write(tenure, s, blind);
  e.quantity = quantity;
  e.stock = s.stock_left;
  e.kind = done ? demo_event_kind::sold : demo_event_kind::refused;
  if (!done) {
    const error& why = done.error();
    if (why.code() != errc::lease_lost && why.code() != errc::stale_token) {
      return tell_failure(why, sku);
    }
    e.by_store = why.code() == errc::stale_token;
    e.mark = why.seen();
    e.text = name_of(why.code());
  }
  tell(e);
}

result<void> seller::write(demo_tenure& tenure, const demo_sale& s,
                           bool blind) {
  return blind && orders_.fenced ? inventory_.sell_blindly(tenure.grant(), s)
                                 : tenure.sell(s);
}

}  // namespace

int run_demo_worker() {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  orders_in in;  // a coordinator that died before that closed our input
  const auto orders = parse_orders(in.first_line());
  const output out{false};
  if (!orders) {
    return out.failed(fail(errc::invalid_argument,
                           "this command is for the use of demo only"));
  }
  auto locks = open_locks(orders->locks);
  if (!locks) {
    return out.failed(locks.error());
  }
  auto inventory = open_demo_inventory(orders->store);
  if (!inventory) {
    return out.failed(inventory.error());
  }
  seller{*orders, in, std::move(*locks), **inventory}.run();
  return 0;
}

}  // namespace lastdoor::cli
