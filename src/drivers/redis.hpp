// redis.hpp: many callers, many servers, one poll loop, no thread of its own.
//
// A `loop` serves the nodes (servers) of one lock service. A caller enters it
// with a `session`, sends commands to as many nodes as it likes and waits
// until a `step` of its own is content or a moment has come. The first caller
// to wait drives the sockets of all nodes for everybody; the others sleep.
// Whoever is content leaves, and passes the driving on. Those who are content
// at the same time are woken one after the other, and what they send next
// travels in one write.
//
// A `step` is the caller's state machine. It runs after each batch of answers,
// on the thread that drives, with the loop locked: it may look at its tickets
// and send more, so a second round (EVAL for an unknown script, the write-back
// of a quorum) costs no change of threads. It must not block, wait or throw.
//
// What can become of a command (`fate`):
//
//   pending    not known yet
//   replied    the answer is there; it may be the server's error
//   not_sent   it provably never reached the server whole
//   unknown    it left and the connection is gone: it may have been done
//
// Answers are matched to commands by order. A command whose caller has gone
// stays in its place in the queue until its answer comes or the connection
// ends, so no answer is ever taken for another's. A connection whose oldest
// command stays unanswered for `silence_limit` is dropped.
//
// Commands are sent only on a connection that is ready, and belong to it: what
// was built for one connection (with its `run_id`) never travels on another.
// They travel in the order in which they were sent; only runs of a batch
// (redis_batch.hpp) may overtake what has another subject.
//
// Thread safety: everything behind one mutex, held by a session except while
// it waits. Nodes live as long as their loop. Not for use after fork().
#pragma once

#include <poll.h>

#include <cstdint>
#include <deque>
#include <functional>
#include <initializer_list>
#include <lastdoor/clock.hpp>
#include <lastdoor/errors.hpp>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "adaptive_mutex.hpp"
#include "event_bell.hpp"
#include "redis_batch.hpp"
#include "redis_reply.hpp"
#include "redis_stream.hpp"
#include "redis_url.hpp"

namespace lastdoor::redis_driver {

class loop;
class node;
class session;

enum class fate : std::uint8_t { pending, replied, not_sent, unknown };

// Appends one word of a command in the form in which it travels.
void append_word(std::string& to, std::string_view word);

// A command in the form in which it travels. Words are bytes; nothing in them
// has a meaning.
class command {
 public:
  command(std::initializer_list<std::string_view> words);
  // Words that were put into form before. Not a constructor: braces around a
  // text would make a command of one word of it.
  static command from_bytes(std::string bytes) {
    command c{};
    c.bytes_ = std::move(bytes);
    return c;
  }

 private:
  friend class node;
  command() = default;
  std::string bytes_;
};

// One command on its way, shared by its caller and the connection. To be
// looked at within a session or a step only.
class call {
 public:
  [[nodiscard]] fate state() const noexcept { return state_; }
  [[nodiscard]] bool settled() const noexcept {
    return state_ != fate::pending;
  }
  // Requires: state() == fate::replied.
  [[nodiscard]] reply_view answer() const noexcept { return view_; }

  // It is an error, and may be that of another run which travelled with this
  // one: what a user may not touch, for one.
  [[nodiscard]] bool refused_together() const noexcept {
    return refused_together_;
  }

 private:
  friend class node;
  [[nodiscard]] bool joins(const call& first) const noexcept;
  [[nodiscard]] bool concerns(const script_part& part) const noexcept;
  void take_along(std::shared_ptr<call> one) noexcept;
  void become(fate state) noexcept;

  std::string bytes_;  // of a run: empty until it is written
  std::size_t written_{0};
  time_point sent_at_;  // or when the last of it so far was written
  fate state_{fate::pending};
  bool refused_together_{false};
  reply_view view_;
  reply answer_;

  // Of a script for many: the first run takes others along, in a chain.
  script_run run_;
  std::size_t runs_{1};
  std::shared_ptr<call> next_;
  call* last_{this};
  std::shared_ptr<const call> carrier_;  // has the answer of this one
};
using ticket = std::shared_ptr<const call>;

struct node_options {
  endpoint where;
  std::shared_ptr<tls_context> tls;  // set when where.tls is
  // How long the way from nothing to ready may take.
  duration connect_timeout{std::chrono::seconds{1}};
  // How long the oldest command may stay unanswered.
  duration silence_limit{std::chrono::seconds{1}};
  // More unanswered commands than this are not sent.
  std::size_t most_unanswered{4096};
  // Pauses between attempts to connect, doubled from failure to failure. The
  // first attempt after the loss of a working connection comes at once.
  duration first_pause{std::chrono::milliseconds{10}};
  duration longest_pause{std::chrono::seconds{1}};
  // Set for a connection that only listens: what the server sends without
  // being asked. Called with the loop locked.
  std::function<void(reply_view)> on_push;
};

// One server and the connection to it.
class node {
 public:
  enum class condition : std::uint8_t { down, connecting, ready };

  node(const node&) = delete;
  node& operator=(const node&) = delete;
  ~node();

  // Starts to connect, unless there is a connection or a pause is on. Reads
  // what came while nobody looked, the end of the connection for one. True
  // when there is hope: the node is ready or on its way.
  bool want(session& in);

  [[nodiscard]] condition now() const noexcept {
    return phase_ == phase::ready  ? condition::ready
           : phase_ == phase::down ? condition::down
                                   : condition::connecting;
  }
  // Grows with each connection; 0 before the first.
  [[nodiscard]] std::uint64_t generation() const noexcept {
    return generation_;
  }
  // Why it is down. Names the server, never a password.
  [[nodiscard]] const error& trouble() const noexcept { return trouble_; }

  // The server's memory: another text means that it may have forgotten. Made
  // of its run id, new with each start, and its replication id, new with each
  // promotion.
  [[nodiscard]] const std::string& identity() const noexcept {
    return identity_;
  }
  // The answers to "INFO server" and "INFO replication", read again later.
  // `unavailable` when they are a replica's, which takes no writes;
  // `misconfigured` when they do not say who the server is.
  result<void> learn_identity(reply_view server, reply_view replication);

  // Never fails: see the ticket. `not_sent` at once unless ready.
  ticket send(session& in, command what);
  // One run of a script for many.
  ticket send(session& in, script_run what);
  // Takes a command back. `not_sent` if that was possible; else `unknown`, and
  // the ticket may still settle later.
  fate withdraw(session& in, const ticket& what);

  // Gives the connection up, so that the address is looked up again.
  void drop(session& in, const error& why);

  // How many writes took all commands so far to the server.
  [[nodiscard]] std::uint64_t writes() const noexcept { return writes_; }

  // "redis://host:6379/0"
  [[nodiscard]] const std::string& name() const noexcept { return name_; }

 private:
  friend class loop;
  friend class session;
  struct lookup;
  enum class phase : std::uint8_t {
    down,
    looking_up,
    connecting,
    greeting,
    ready
  };

  node(loop& owner, node_options options);
  void begin_connect();
  void try_addresses();
  void greet();
  void judge_greeting();
  void lose(const error& why);
  void push(std::shared_ptr<call> what);
  ticket send(std::shared_ptr<call> one);
  void gather();
  [[nodiscard]] bool take(const std::shared_ptr<call>& c, reply answer);
  [[nodiscard]] const call* oldest() const noexcept;
  void flush();
  void read_answers();
  void settle_front(reply answer);
  void end_lookup();
  [[nodiscard]] error too_late() const;

  // For the loop.
  [[nodiscard]] int fd() const noexcept { return stream_.fd(); }
  [[nodiscard]] short interest() const noexcept;
  [[nodiscard]] time_point timer() const noexcept;
  void handle(short events);
  void expire(time_point now);

  loop& loop_;
  node_options options_;
  std::string name_;
  error trouble_;
  phase phase_{phase::down};
  std::uint64_t generation_{0};
  std::string identity_;

  std::shared_ptr<lookup> lookup_;
  std::vector<address> addresses_;
  std::size_t next_address_{0};
  stream stream_;
  std::vector<ticket> greeting_;

  std::deque<std::shared_ptr<call>> unsent_;
  std::deque<std::shared_ptr<call>> unanswered_;
  std::size_t pending_{0};  // the commands in both, those that joined as well
  bool full_{false};        // what is left of unsent_ waits for room
  std::uint64_t writes_{0};

  time_point give_up_at_{};   // until the connection is ready
  time_point next_try_at_{};  // while connecting: the next address
  time_point retry_at_{};     // while down
  time_point last_heard_{};
  unsigned failures_{0};
};

class loop {
 public:
  // `unavailable` when the process is out of file descriptors.
  [[nodiscard]] static result<std::unique_ptr<loop>> open(
      std::shared_ptr<clock> time);
  loop(const loop&) = delete;
  loop& operator=(const loop&) = delete;
  // Requires: nobody is inside.
  ~loop();

  node& add(node_options options);
  [[nodiscard]] time_point now() const noexcept { return time_->now(); }

 private:
  friend class node;
  friend class session;
  struct waiter;
  class sleeper;
  loop(std::shared_ptr<clock> time, std::shared_ptr<event_bell> bell);
  using holding = std::unique_lock<detail::adaptive_mutex>;
  void write_gathered();
  void leave(holding& lock) noexcept;
  bool lead(holding& lock, waiter& me);
  bool follow(holding& lock, waiter& me);
  void turn(holding& lock, time_point until);
  void serve_followers();

  std::shared_ptr<clock> time_;
  std::shared_ptr<event_bell> bell_;
  detail::adaptive_mutex mutex_;
  std::vector<std::unique_ptr<node>> nodes_;
  std::vector<waiter*> followers_;
  std::vector<waiter*> served_;  // followers whose step is content, asleep yet
  std::size_t coming_{0};        // these, and those of them that wake up now
  std::vector<pollfd> polled_;
  std::vector<std::uint64_t> generations_;
  bool led_{false};
  bool polling_{false};
  bool changed_{false};  // what the leader polls for is out of date
  bool rung_{false};
};

// One caller inside the loop: holds its lock except while it waits. What was
// sent is on its way when the session ends, or when the last of those ends
// that are just being woken.
class session {
 public:
  explicit session(loop& where) : loop_{where}, lock_{where.mutex_} {}
  session(const session&) = delete;
  session& operator=(const session&) = delete;
  ~session();

  // Until `step()` is true: true. Until `until` has come: false. Answers that
  // arrived count even when it is late already.
  template <class Step>
  bool wait(Step&& step, time_point until) {
    using plain = std::remove_reference_t<Step>;
    return wait_for(
        [](void* s) noexcept { return (*static_cast<plain*>(s))(); }, &step,
        until);
  }

  // Until the command is settled or `until` has come.
  fate wait_for_answer(const ticket& what, time_point until) {
    wait([&] { return what->settled(); }, until);
    return what->state();
  }

  // Has the thread that drives look at its own step again soon.
  void nudge() noexcept { loop_.changed_ = true; }

  [[nodiscard]] loop& where() noexcept { return loop_; }

 private:
  using step_function = bool (*)(void*) noexcept;
  bool wait_for(step_function step, void* state, time_point until);

  loop& loop_;
  loop::holding lock_;
};

}  // namespace lastdoor::redis_driver
