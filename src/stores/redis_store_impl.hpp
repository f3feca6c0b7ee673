// redis_store_impl.hpp: the store on one Redis server (stores/redis.hpp).
//
// Thread safety: everything belongs to the loop's lock, which a session holds.
#pragma once

#include <functional>
#include <lastdoor/stores/redis.hpp>

#include "drivers/forks.hpp"
#include "drivers/redis_calls.hpp"
#include "redis_rows.hpp"

namespace lastdoor {

class redis_store::impl {
 public:
  impl(std::unique_ptr<redis_driver::loop> where,
       const redis_driver::node_options& server, redis_store_options options);

  [[nodiscard]] static result<std::unique_ptr<impl>> open(
      std::string_view url, redis_store_options options);

  // Carries a plan out. `read` sees the answers of the steps.
  using reader = std::function<void(redis_driver::reply_view, receipt&)>;
  result<receipt> run(const grant& g, const redis_plan& plan,
                      const write_options& o, const reader& read);

  result<mark> read_mark(const resource_name& r);
  // Every mark, once or more, in no order.
  result<void> each_mark(const std::function<void(mark_status)>& see);
  result<std::int64_t> hand_over(const source_name& from,
                                 const source_name& to);
  result<bool> create();

  [[nodiscard]] const std::string& name_space() const noexcept {
    return options_.name_space;
  }

 private:
  using words = std::initializer_list<std::string_view>;
  // A script that may run twice, on the ledger. `read` sees its verdict.
  result<void> ask(
      const detail::embedded_text& script, words arguments,
      std::string_view doing,
      const std::function<result<void>(redis_driver::reply_view)>& read);
  [[nodiscard]] result<void> check_process() const;
  // What every script may answer instead of what it was asked.
  [[nodiscard]] std::optional<error> unusable(
      redis_driver::reply_view verdict) const;
  [[nodiscard]] error refusal(redis_driver::reply_view verdict, const grant& g,
                              const redis_plan& plan) const;
  [[nodiscard]] error step_refusal(std::string_view word,
                                   redis_driver::reply_view verdict,
                                   const redis_plan& plan) const;

  std::unique_ptr<redis_driver::loop> loop_;
  redis_driver::node& node_;
  redis_store_options options_;
  std::string ledger_;
  unsigned forks_{forks()};
};

}  // namespace lastdoor
