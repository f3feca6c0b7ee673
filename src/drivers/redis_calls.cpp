#include "redis_calls.hpp"

#include <fmt/format.h>

namespace lastdoor::redis_driver {

result<node_options> server_options(std::string_view url, duration call_timeout,
                                    const redis_tls_options& tls) {
  auto where = parse_url(url);
  if (!where) {
    return where.error();
  }
  node_options server;
  server.where = std::move(*where);
  server.connect_timeout = call_timeout;
  server.silence_limit = call_timeout;
  if (server.where.tls) {
    auto context =
        make_tls_context({tls.authorities, tls.certificate, tls.key});
    if (!context) {
      return context.error();
    }
    server.tls = std::move(*context);
  }
  return server;
}

result<void> check_name_space(std::string_view name) {
  bool good = !name.empty() && name.size() <= 100;
  for (const char c : name) {
    good = good && c > ' ' && c < 127 && c != '{' && c != '}';
  }
  if (!good) {
    return fail(errc::invalid_argument,
                "a name space has 1 to 100 printable ASCII characters, no "
                "blanks and no braces");
  }
  return {};
}

result<void> check_timeout(duration limit) {
  if (limit < std::chrono::milliseconds{1} || limit > std::chrono::hours{1}) {
    return fail(errc::invalid_argument, "a time-out is 1 ms to 1 h");
  }
  return {};
}

result<void> connect(session& in, node& to, time_point until) {
  using condition = node::condition;
  to.want(in);
  in.wait([&] { return to.now() != condition::connecting; }, until);
  if (to.now() == condition::ready) {
    return {};
  }
  if (to.now() == condition::down) {
    return error{to.trouble()};
  }
  return fail(errc::unavailable,
              fmt::format("{}: no connection in time", to.name()));
}

error refused(session& in, node& at, reply_view answer,
              std::string_view doing) {
  auto why = server_error(answer, doing);
  if (must_reconnect(why.backend())) {
    at.drop(in, why);
  }
  return why;
}

error overdue(std::string_view doing) {
  return fail(errc::unavailable,
              fmt::format("{}: could not be sent in time", doing));
}

error unanswered(std::string_view doing) {
  return fail(errc::in_doubt,
              fmt::format("{}: sent, but the answer is lost", doing));
}

result<reply_view> insistence::run(script_call& call) {
  for (;;) {
    if (auto ok = connect(in_, to_, until_); !ok) {
      return sent_before_ ? unanswered(doing_) : ok.error();
    }
    if (prepare_) {
      prepare_();
    }
    call.send(in_, to_);
    const auto how = call.finish(in_, until_);
    if (how == fate::replied) {
      if (call.answer().is_error()) {
        auto why = refused(in_, to_, call.answer(), doing_);
        return sent_before_ ? unanswered(doing_).backend(why.backend()) : why;
      }
      return call.answer();
    }
    sent_before_ = sent_before_ || how == fate::unknown;
    if ((sent_before_ && once_) || in_.where().now() >= until_ ||
        to_.now() == node::condition::ready) {
      // Late, or more commands are on their way than the server answers.
      return sent_before_ ? unanswered(doing_) : overdue(doing_);
    }
  }
}

}  // namespace lastdoor::redis_driver
