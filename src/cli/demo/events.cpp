#include "cli/demo/events.hpp"

namespace lastdoor::cli {

std::string to_line(const demo_event& e) {
  return dump({{"kind", static_cast<int>(e.kind)},
               {"at", e.at_ns},
               {"sku", e.sku},
               {"token", e.token},
               {"quantity", e.quantity},
               {"stock", e.stock},
               {"by_store", e.by_store},
               {"mark", e.mark},
               {"text", e.text}}) +
         '\n';
}

std::optional<demo_event> parse_event(std::string_view line) {
  const json j = json::parse(line, nullptr, false);
  if (!j.is_object()) {
    return std::nullopt;
  }
  demo_event e{static_cast<demo_event_kind>(j.value("kind", 0))};
  e.at_ns = j.value("at", e.at_ns);
  e.sku = j.value("sku", e.sku);
  e.token = j.value("token", e.token);
  e.quantity = j.value("quantity", e.quantity);
  e.stock = j.value("stock", e.stock);
  e.by_store = j.value("by_store", e.by_store);
  e.mark = j.value("mark", e.mark);
  e.text = j.value("text", e.text);
  return e;
}

std::string to_line(const demo_orders_to_worker& o) {
  return dump({{"locks", o.locks},
               {"store", o.store},
               {"fenced", o.fenced},
               {"index", o.index},
               {"skus", o.skus},
               {"seed", o.seed},
               {"ttl_ms", o.ttl_ms}}) +
         '\n';
}

std::optional<demo_orders_to_worker> parse_orders(std::string_view line) {
  const json j = json::parse(line, nullptr, false);
  if (!j.is_object()) {
    return std::nullopt;
  }
  demo_orders_to_worker o;
  o.locks = j.value("locks", o.locks);
  o.store = j.value("store", o.store);
  o.fenced = j.value("fenced", o.fenced);
  o.index = j.value("index", o.index);
  o.skus = j.value("skus", o.skus);
  o.seed = j.value("seed", o.seed);
  o.ttl_ms = j.value("ttl_ms", o.ttl_ms);
  return o;
}

}  // namespace lastdoor::cli
