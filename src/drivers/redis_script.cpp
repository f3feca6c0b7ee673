#include "redis_script.hpp"

namespace lastdoor::redis_driver {

void script_call::send(session& in, node& to, script_form form) {
  node_ = &to;
  form_ = form;
  ticket_ =
      part_ != nullptr
          ? to.send(in, head_, part_, form)
          : to.send(in, command::from_bytes(batch_bytes(form, *head_, {})));
}

bool script_call::step(session& in) {
  if (!ticket_->settled()) {
    return false;
  }
  if (ticket_->state() == fate::replied && form_ == script_form::by_hash &&
      ticket_->answer().is_error() &&
      ticket_->answer().text().starts_with("NOSCRIPT")) {
    send_text(in, *node_);
    return ticket_->settled();
  }
  return true;
}

fate script_call::finish(session& in, time_point until) {
  if (in.wait([&] { return step(in); }, until)) {
    return ticket_->state();
  }
  return node_->withdraw(in, ticket_);
}

}  // namespace lastdoor::redis_driver
