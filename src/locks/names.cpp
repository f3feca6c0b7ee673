#include <lastdoor/lease.hpp>
#include <lastdoor/observer.hpp>

namespace lastdoor {

std::string_view name_of(event_kind kind) noexcept {
  switch (kind) {
    case event_kind::granted:
      return "granted";
    case event_kind::acquire_failed:
      return "acquire_failed";
    case event_kind::renewed:
      return "renewed";
    case event_kind::renew_failed:
      return "renew_failed";
    case event_kind::lost:
      return "lost";
    case event_kind::released:
      return "released";
    case event_kind::release_failed:
      return "release_failed";
    case event_kind::refused:
      return "refused";
    case event_kind::regressed:
      return "regressed";
    case event_kind::floor_raised:
      return "floor_raised";
  }
  return "unknown";
}

std::string_view name_of(loss_reason reason) noexcept {
  switch (reason) {
    case loss_reason::refused:
      return "refused";
    case loss_reason::unconfirmed:
      return "unconfirmed";
    case loss_reason::not_renewed:
      return "not_renewed";
    case loss_reason::clock_jump:
      return "clock_jump";
    case loss_reason::overtaken:
      return "overtaken";
    case loss_reason::shutdown:
      return "shutdown";
  }
  return "unknown";
}

}  // namespace lastdoor
