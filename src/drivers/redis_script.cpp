#include "redis_script.hpp"

namespace lastdoor::redis_driver {

void script_call::send(session& in, node& to) {
  node_ = &to;
  ticket_ = run_.part != nullptr ? to.send(in, run_)
                                 : to.send(in, command::from_bytes(batch_bytes(
                                                   run_.form, *run_.head, {})));
}

// Sends again what the server did not know, or would not do for the sake of
// another run. Only by whom the answer still matters to: of whoever has gone,
// something may have been undone behind it.
bool script_call::step(session& in) {
  if (!ticket_->settled()) {
    return false;
  }
  if (ticket_->state() != fate::replied || !ticket_->answer().is_error()) {
    return true;
  }
  const auto word = error_word(ticket_->answer().text());
  if (word == "NOSCRIPT" && run_.form == script_form::by_hash) {
    by_text();
  } else if (word == "NOPERM" && ticket_->refused_together()) {
    alone();
  } else {
    return true;
  }
  send(in, *node_);
  return ticket_->settled();
}

fate script_call::finish(session& in, time_point until) {
  if (in.wait([&] { return step(in); }, until)) {
    return ticket_->state();
  }
  return node_->withdraw(in, ticket_);
}

}  // namespace lastdoor::redis_driver
