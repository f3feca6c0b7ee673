// redis_store_fixture.hpp: a private Redis server with a store on it.
#pragma once

#include <gtest/gtest.h>

#include <lastdoor/stores/redis.hpp>
#include <lastdoor/testing/store_contract_client.hpp>

#include "support/redis_client.hpp"
#include "support/temp_redis.hpp"

namespace lastdoor::support {

inline const std::string ledger_key = "lastdoor:{default}:ledger";

[[nodiscard]] inline redis_store_options patient_store() {
  redis_store_options o;
  o.call_timeout = std::chrono::seconds{20};  // a busy machine is slow
  return o;
}

class redis_store_test : public ::testing::Test {
 protected:
  void SetUp() override {
    LASTDOOR_NEEDS_REDIS();
    server_ = std::make_unique<temp_redis>();
    ASSERT_TRUE(create_redis_ledger(server().url(), patient_store()).value());
    store_.emplace(open_redis_store(server().url(), patient_store()).value());
  }
  temp_redis& server() { return *server_; }
  redis_store& store() { return *store_; }

  std::string write(const testing::terms& t, const redis_commands& c,
                    const write_options& o = {}) {
    return outcome_of(store().write(testing::granted(t), c, o));
  }
  std::int64_t mark_now(const std::string& name = "stock") {
    return store()
        .read_mark(resource_name::parse(name).value())
        .value()
        .value();
  }
  // Every key with what it holds.
  std::string everything() {
    return server().say({"EVAL",
                         "local all = {} for _, k in "
                         "ipairs(redis.call('KEYS', '*')) do all[#all + 1] = k "
                         ".. redis.sha1hex(redis.call('DUMP', k)) end "
                         "table.sort(all) return all",
                         "0"});
  }

 private:
  std::unique_ptr<temp_redis> server_;
  std::optional<redis_store> store_;
};

}  // namespace lastdoor::support
