#include <lastdoor/lock_service.hpp>

#include "acquisition.hpp"
#include "lease_state.hpp"
#include "service_core.hpp"

namespace lastdoor {

class lock_service::core final : public detail::service_core {
 public:
  using service_core::service_core;
};

namespace {

// Lives as long as there are handles; leases and threads hold the core only.
template <class Core>
class service_handle {
 public:
  explicit service_handle(std::shared_ptr<Core> core)
      : core_{std::move(core)} {}
  ~service_handle() {
    if (core_->in_child()) {
      detail::keep_for_ever(std::move(core_));
      return;
    }
    core_->shutdown();
    core_->join();
  }
  service_handle(const service_handle&) = delete;
  service_handle& operator=(const service_handle&) = delete;

  [[nodiscard]] Core* get() const noexcept { return core_.get(); }

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace

lock_service::lock_service(std::unique_ptr<lock_backend> backend,
                           lock_service_options options) {
  if (!options.time)
    options.time = boot_clock();
  auto handle = std::make_shared<service_handle<core>>(
      std::make_shared<core>(std::move(backend), std::move(options)));
  core_ = std::shared_ptr<core>{handle, handle->get()};
}

result<lease> lock_service::acquire(std::string_view resource,
                                    const acquire_options& options) {
  if (core_->in_child())
    return core::refuse_in_child();
  auto state = core_->acquire(resource, options);
  if (!state)
    return state.error();
  return lease{std::move(*state)};
}

result<void> lock_service::release(const grant& held) {
  if (core_->in_child())
    return core::refuse_in_child();
  return core_->release(held);
}

result<lease_status> lock_service::inspect(std::string_view resource) {
  if (core_->in_child())
    return core::refuse_in_child();
  auto name = resource_name::parse(resource);
  if (!name)
    return name.error();
  return core_->backend().inspect(*name);
}

result<void> lock_service::raise_floor(mark floor) {
  if (core_->in_child())
    return core::refuse_in_child();
  return core_->backend().raise_floor(floor);
}

const source_name& lock_service::source() const noexcept {
  return core_->backend().source();
}

const std::shared_ptr<clock>& lock_service::time() const noexcept {
  return core_->time();
}

const std::shared_ptr<observer>& lock_service::observe() const noexcept {
  return core_->observe();
}

void lock_service::shutdown() noexcept {
  if (!core_->in_child())
    core_->shutdown();
}

}  // namespace lastdoor
