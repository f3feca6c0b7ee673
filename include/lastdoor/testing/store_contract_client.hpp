// store_contract_client.hpp: what the parts of the store contract share.
//
// Thread safety: values, and free functions that any thread may call.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <lastdoor/stores/store.hpp>
#include <lastdoor/testing/lock_contract_client.hpp>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

namespace lastdoor::testing {

/// A row of the table `items` as anybody can read it.
struct item {
  std::string id;
  std::int64_t qty{0};
  std::string note{};
  std::int64_t fence{0};

  friend bool operator==(const item&, const item&) = default;
  friend std::ostream& operator<<(std::ostream& out, const item& i) {
    return out << i.id << ": qty " << i.qty << ", note '" << i.note
               << "', fence " << i.fence;
  }
};

/// The words of a grant that no lock service has granted.
struct terms {
  std::int64_t token{1};
  std::string resource{"stock"};
  char owner{'a'};  // forty of these
  std::string source{"test/one"};
  time_point valid_until{time_point::max()};
};

/// Throws `failure` when the terms are none.
[[nodiscard]] inline grant granted(const terms& t) {
  return grant{resource_name::parse(t.resource).value(),
               owner_id::parse(std::string(40, t.owner)).value(),
               fencing_token::from(t.token).value(),
               source_name::parse(t.source).value(), t.valid_until};
}

[[nodiscard]] inline resource_name resource(std::string_view name) {
  return resource_name::parse(name).value();
}

/// Sets the quantity of the row `id`, which must be there.
[[nodiscard]] inline statement put_qty(std::string id, std::int64_t qty) {
  return update("items").key("id", std::move(id)).set("qty", qty);
}

/// The same for a row that may be absent.
[[nodiscard]] inline statement bring_qty(std::string id, std::int64_t qty) {
  return upsert("items").key("id", std::move(id)).set("qty", qty);
}

/// False for a store of keys and values: it has no `every_row()` and cannot
/// miss a table or a column.
template <class Service>
[[nodiscard]] constexpr bool has_tables() {
  if constexpr (requires { Service::tables; }) {
    return Service::tables;
  }
  return true;
}

/// The rows and the mark at one moment, to see that nothing changed.
template <class Service>
[[nodiscard]] std::string snapshot(Service& service, store& s,
                                   std::string_view id,
                                   std::string_view resource_text = "stock") {
  const auto row = service.read(id);
  const auto mark = s.read_mark(resource(resource_text));
  std::string text = row ? ::testing::PrintToString(*row) : "no row";
  return text + "; mark " + std::to_string(mark.value().value());
}

/// A clock that stands still until it is set.
class set_clock final : public clock {
 public:
  [[nodiscard]] time_point now() const noexcept override { return now_; }
  [[nodiscard]] std::unique_ptr<alarm> make_alarm() override {
    return boot_clock()->make_alarm();  // nothing here waits by it
  }
  void set(duration since_boot) noexcept { now_ = time_point{since_boot}; }

 private:
  time_point now_{std::chrono::hours{1}};
};

}  // namespace lastdoor::testing
