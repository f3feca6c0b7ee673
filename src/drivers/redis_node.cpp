#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <system_error>

#include "background_thread.hpp"
#include "redis.hpp"

namespace lastdoor::redis_driver {

namespace {

// A connection that was quiet this long is looked at before it is used: the
// server may have closed it, and what is sent into a closed connection is
// neither refused nor done.
constexpr duration quiet = std::chrono::milliseconds{1};

template <class Words>
std::string formed(const Words& words) {
  std::size_t size = 16;
  for (const std::string_view word : words) {
    size += word.size() + 16;
  }
  std::string bytes;
  bytes.reserve(size);
  bytes += '*';
  bytes += std::to_string(words.size());
  bytes += "\r\n";
  for (const std::string_view word : words) {
    append_word(bytes, word);
  }
  return bytes;
}

std::int64_t milliseconds(duration d) noexcept {
  return std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
}

}  // namespace

void append_word(std::string& to, std::string_view word) {
  to += '$';
  to += std::to_string(word.size());
  to += "\r\n";
  to += word;
  to += "\r\n";
}

command::command(std::initializer_list<std::string_view> words)
    : bytes_{formed(words)} {}

// A look-up may take longer than anybody waits, so it has a thread of its own
// for as long as it takes. It shares nothing with the node but this.
struct node::lookup {
  std::atomic<bool> done{false};
  result<std::vector<address>> found{std::vector<address>{}};
};

node::node(loop& owner, node_options options)
    : loop_{owner},
      options_{std::move(options)},
      name_{options_.where.shown()},
      trouble_{errc::unavailable, fmt::format("{}: not connected", name_)} {}

node::~node() = default;

bool node::want(session& /*in*/) {
  const auto now = loop_.now();
  if (phase_ == phase::ready && now - last_heard_ > quiet) {
    last_heard_ = now;
    const auto before = unanswered_.size();
    read_answers();
    // The leader sleeps on a socket that we have emptied.
    loop_.changed_ = loop_.changed_ || unanswered_.size() != before;
    expire(loop_.now());
  } else if (phase_ != phase::ready && phase_ != phase::down &&
             now >= give_up_at_) {
    // Begun by somebody who did not stay for the end of it.
    lose(too_late());
    retry_at_ = now;
  }
  if (phase_ == phase::down && loop_.now() >= retry_at_) {
    begin_connect();
  }
  return phase_ != phase::down;
}

void node::begin_connect() {
  give_up_at_ = loop_.now() + options_.connect_timeout;
  next_address_ = 0;
  addresses_.clear();
  if (!options_.where.path.empty()) {
    addresses_.push_back(unix_address(options_.where.path));
    return try_addresses();
  }
  if (auto numeric = look_up(options_.where, true); numeric) {
    addresses_ = std::move(*numeric);
    return try_addresses();
  }
  phase_ = phase::looking_up;
  if (lookup_ != nullptr && !lookup_->done) {
    return;  // the one that took too long last time
  }
  lookup_ = std::make_shared<lookup>();
  try {
    background_thread([job = lookup_, bell = loop_.bell_,
                       where = options_.where] {
      job->found = look_up(where, false);
      job->done = true;
      bell->ring();
    }).detach();
  } catch (const std::system_error& e) {
    lookup_.reset();
    lose(fail(errc::unavailable, e.what()));
  }
}

void node::end_lookup() {
  if (!lookup_->done) {
    return;
  }
  const auto job = std::move(lookup_);
  if (!job->found) {
    return lose(job->found.error());
  }
  addresses_ = *job->found;
  try_addresses();
}

void node::try_addresses() {
  error why{errc::unavailable, "the name stands for no address"};
  while (next_address_ < addresses_.size()) {
    ++generation_;
    loop_.changed_ = true;
    // One that does not answer must not use up the time of the others.
    const auto now = loop_.now();
    const auto left = static_cast<long>(addresses_.size() - next_address_);
    next_try_at_ = now + (give_up_at_ - now) / left;
    auto ok = stream_.start(addresses_[next_address_++]);
    if (ok) {
      phase_ = phase::connecting;
      return;
    }
    why = ok.error();
  }
  lose(why);
}

void node::greet() {
  phase_ = phase::greeting;
  greeting_.clear();
  const auto ask = [&](const command& what) {
    auto one = std::make_shared<call>();
    one->bytes_ = what.bytes_;
    greeting_.push_back(one);
    push(std::move(one));
  };
  const auto& to = options_.where;
  if (to.log_in && to.user.empty()) {
    ask(command{"AUTH", to.password});
  } else if (to.log_in) {
    ask(command{"AUTH", to.user, to.password});
  }
  if (!options_.on_push) {
    if (to.db != 0) {
      ask(command{"SELECT", std::to_string(to.db)});
    }
    ask(command{"INFO", "server"});
    ask(command{"INFO", "replication"});
  }
  last_heard_ = loop_.now();
  judge_greeting();
}

void node::judge_greeting() {
  const auto settled = [](const ticket& t) { return t->settled(); };
  if (!std::all_of(greeting_.begin(), greeting_.end(), settled)) {
    return;
  }
  const auto refused = [](const ticket& t) { return t->answer().is_error(); };
  const auto bad = std::find_if(greeting_.begin(), greeting_.end(), refused);
  if (bad != greeting_.end()) {
    if (bad == greeting_.begin() && options_.where.log_in) {
      // Not the server's text: it may quote what it was sent.
      const auto word = error_word((*bad)->answer().text());
      const auto code = code_of(word);
      return lose(fail(code, code == errc::misconfigured
                                 ? "the server refused the login"
                                 : "the server does not take logins now")
                      .backend(word));
    }
    return lose(server_error((*bad)->answer(), "connecting"));
  }
  if (!options_.on_push) {
    const auto n = greeting_.size();
    if (auto ok = learn_identity(greeting_[n - 2]->answer(),
                                 greeting_[n - 1]->answer());
        !ok) {
      return lose(ok.error());
    }
  }
  greeting_.clear();
  phase_ = phase::ready;
}

result<void> node::learn_identity(reply_view server, reply_view replication) {
  const auto run = info_field(server.text(), "run_id");
  const auto history = info_field(replication.text(), "master_replid");
  const auto role = info_field(replication.text(), "role");
  if (!role.empty() && role != "master") {
    return fail(errc::unavailable, "the server is a replica")
        .backend("READONLY");
  }
  if (run.empty()) {
    return fail(errc::misconfigured,
                "the server's INFO does not tell its run id, without which a "
                "server that forgot cannot be told from one that did not");
  }
  identity_ = fmt::format("{}/{}", run, history);
  return {};
}

void node::lose(const error& why) {
  const bool worked = phase_ == phase::ready;
  phase_ = phase::down;
  ++generation_;
  loop_.changed_ = true;
  stream_.close();
  greeting_.clear();
  for (const auto& c : unsent_) {
    c->become(fate::not_sent);
  }
  for (const auto& c : unanswered_) {
    c->become(fate::unknown);
  }
  unsent_.clear();
  unanswered_.clear();
  pending_ = 0;
  trouble_ = fail(why.code(), fmt::format("{}: {}", name_, why.text()))
                 .backend(why.backend());
  auto pause = options_.first_pause * (1LL << std::min(failures_, 20U));
  if (failures_ == 0 && worked) {
    pause = duration{0};
  }
  retry_at_ = loop_.now() + std::min<duration>(pause, options_.longest_pause);
  ++failures_;
}

void node::drop(session& /*in*/, const error& why) {
  if (phase_ != phase::down) {
    lose(why);
  }
}

ticket node::send(session& /*in*/, command what) {
  auto one = std::make_shared<call>();
  one->bytes_ = std::move(what.bytes_);
  return send(std::move(one));
}

ticket node::send(session& /*in*/, script_run what) {
  auto one = std::make_shared<call>();
  one->run_ = std::move(what);
  return send(std::move(one));
}

ticket node::send(std::shared_ptr<call> one) {
  if (phase_ != phase::ready || pending_ >= options_.most_unanswered) {
    one->state_ = fate::not_sent;
    return one;
  }
  push(one);
  return one;
}

void node::push(std::shared_ptr<call> what) {
  unsent_.push_back(std::move(what));
  ++pending_;
}

fate node::withdraw(session& /*in*/, const ticket& what) {
  const auto at = std::find(unsent_.begin(), unsent_.end(), what);
  // What others have joined stays.
  if (at != unsent_.end() && (*at)->written_ == 0 && (*at)->runs_ == 1) {
    (*at)->state_ = fate::not_sent;
    unsent_.erase(at);
    --pending_;
  }
  return what->settled() ? what->state() : fate::unknown;
}

void node::flush() {
  if (phase_ != phase::greeting && phase_ != phase::ready) {
    return;
  }
  full_ = false;
  gather();
  while (!unsent_.empty() || stream_.congested()) {
    std::array<iovec, 64> parts;  // NOLINT: filled below
    std::size_t count = 0;
    std::size_t total = 0;
    for (const auto& c : unsent_) {
      if (count == parts.size()) {
        break;
      }
      parts[count++] = {c->bytes_.data() + c->written_,
                        c->bytes_.size() - c->written_};
      total += c->bytes_.size() - c->written_;
    }
    const auto went = stream_.write({parts.data(), count});
    if (!went) {
      return lose(went.error());
    }
    ++writes_;
    const auto moment = loop_.now();
    auto left = *went;
    while (!unsent_.empty() && left > 0) {
      auto& c = *unsent_.front();
      const auto step = std::min(left, c.bytes_.size() - c.written_);
      c.written_ += step;
      c.sent_at_ = moment;
      left -= step;
      if (c.written_ < c.bytes_.size()) {
        break;
      }
      if (options_.on_push && phase_ == phase::ready) {
        // The answers of a listening connection come in no order.
        c.state_ = fate::unknown;
        --pending_;
      } else {
        unanswered_.push_back(unsent_.front());
      }
      unsent_.pop_front();
    }
    if (*went < total || stream_.congested()) {
      full_ = true;
      loop_.changed_ = true;  // the leader must wait for room
      return;
    }
  }
}

void node::read_answers() {
  const auto more = stream_.read();
  const auto moment = loop_.now();
  for (;;) {
    auto answer = stream_.next_reply();
    if (!answer) {
      return lose(answer.error());
    }
    if (*answer == nullptr) {
      break;
    }
    last_heard_ = moment;
    settle_front(reply{*answer});
    if (phase_ == phase::down) {
      return;
    }
  }
  if (!more) {
    lose(more.error());
  }
}

void node::settle_front(reply answer) {
  if (unanswered_.empty()) {
    if (options_.on_push) {
      failures_ = 0;
      return options_.on_push(answer.view());
    }
    return lose(answer.view().is_error()
                    ? server_error(answer.view(), "waiting")
                    : fail(errc::misconfigured,
                           "the server sent an answer to nothing"));
  }
  const auto c = std::move(unanswered_.front());
  unanswered_.pop_front();
  if (!take(c, std::move(answer))) {
    return lose(fail(errc::misconfigured,
                     "the server answered a script with "
                     "something else than its list"));
  }
  if (phase_ == phase::ready) {
    failures_ = 0;
  } else {
    judge_greeting();
  }
}

short node::interest() const noexcept {
  switch (phase_) {
    case phase::connecting:
      return POLLOUT;
    case phase::greeting:
    case phase::ready:
      return full_ && stream_.waits_for_room() ? POLLIN | POLLOUT : POLLIN;
    case phase::down:
    case phase::looking_up:
      break;
  }
  return 0;
}

time_point node::timer() const noexcept {
  if (phase_ == phase::down) {
    return time_point::max();
  }
  if (phase_ == phase::connecting) {
    return next_try_at_;
  }
  if (phase_ != phase::ready) {
    return give_up_at_;
  }
  const auto* waits = oldest();
  return waits != nullptr ? waits->sent_at_ + options_.silence_limit
                          : time_point::max();
}

// The command that the server has not answered, or not even taken whole.
const call* node::oldest() const noexcept {
  if (!unanswered_.empty()) {
    return unanswered_.front().get();
  }
  const bool begun = !unsent_.empty() && unsent_.front()->written_ > 0;
  return begun ? unsent_.front().get() : nullptr;
}

void node::handle(short events) {
  if (phase_ == phase::connecting) {
    if (auto ok = stream_.finish(options_.where, options_.tls.get()); !ok) {
      if (next_address_ == addresses_.size()) {
        return lose(ok.error());
      }
      return try_addresses();
    }
    return greet();
  }
  if ((events & ~POLLOUT) != 0) {
    read_answers();
  }
}

void node::expire(time_point now) {
  if (phase_ == phase::looking_up) {
    end_lookup();
  }
  if (now < timer()) {
    return;
  }
  if (phase_ == phase::connecting && next_address_ < addresses_.size()) {
    return try_addresses();
  }
  lose(too_late());
}

error node::too_late() const {
  return fail(errc::unavailable,
              phase_ == phase::ready
                  ? fmt::format("no answer for {} ms",
                                milliseconds(options_.silence_limit))
                  : fmt::format("no connection within {} ms",
                                milliseconds(options_.connect_timeout)));
}

}  // namespace lastdoor::redis_driver
