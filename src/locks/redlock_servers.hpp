// redlock_servers.hpp: the N servers of a Redlock cluster, who of them may
// vote, and what was left behind on them.
//
// A server is admitted when its marker names this cluster, its place, and the
// memory that it has now. One that does not is in quarantine: `note_forgot`
// begins its wait, on this client's own clock, and `tend` admits it when the
// wait is over. A note on the server, gone with its memory, proves that the
// wait is still for the same memory.
//
// Thread safety: everything belongs to the loop's lock, which a session holds.
#pragma once

#include <deque>
#include <functional>
#include <lastdoor/locks/redlock.hpp>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "drivers/redis_calls.hpp"
#include "redlock_marker.hpp"
#include "redlock_rule.hpp"

namespace lastdoor::redlock {

// A release that a server still has to hear: an attempt that failed, a lease
// whose release was not answered. Sent again on each new connection.
struct stray {
  std::string resource;
  std::string owner;
  time_point until;
  redis_driver::ticket sent{};
};

struct server {
  redis_driver::node* node{nullptr};
  std::string address;  // "host:port/db"; without login
  unsigned place{0};

  // Its quarantine; `since` is meaningful when `quarantined`.
  bool quarantined{false};
  std::string found;     // the marker, '' for none
  std::string note;      // of this quarantine
  std::string identity;  // of the memory that forgot
  time_point since{};
  bool durable{false};  // forgets nothing and need not wait

  // The marker of `cluster` and this memory, and what every vote and every
  // release carries with it.
  std::string own_marker;
  std::string own_marker_for;  // the identity
  std::shared_ptr<const redis_driver::script_head> vote;
  std::shared_ptr<const redis_driver::script_head> release;

  std::deque<stray> strays;  // oldest first
  std::uint64_t greeted{0};  // the connection that knows our release script
};

// What one server answered to "look".
struct sight {
  bool answered{false};
  error why{errc::unavailable, "no answer"};
  std::string marker;
  std::string counter;
  std::string note;
  std::string identity;
};

class servers;

// One command a server, to all of them, with a limit for each. The caller's
// own step decides when it has heard enough.
class round {
 public:
  enum class state : std::uint8_t { unasked, asked, answered, failed };

  // `sequential`: the next one is asked when the one before has answered.
  round(servers& of, redis_driver::session& in, bool sequential = false);
  round(const round&) = delete;
  round& operator=(const round&) = delete;
  // Takes back what was not sent yet.
  ~round();

  // To be sent once the server's connection is ready. Nothing for a server
  // that is not to be asked.
  using make = std::function<redis_driver::script_call(server&)>;
  void ask(unsigned place, make what);
  void ask_all(make what);

  // Sends, looks at answers and clocks. Part of the caller's step.
  void advance();
  // Runs `enough`, after each advance, until it is true, all are settled, or
  // `until` has come.
  void run(const std::function<bool()>& enough, time_point until);
  // The next moment at which a server is given up.
  [[nodiscard]] time_point next_limit() const noexcept;

  [[nodiscard]] state of(unsigned place) const noexcept {
    return parts_[place].now;
  }
  [[nodiscard]] bool settled(unsigned place) const noexcept;
  [[nodiscard]] bool all_settled() const noexcept;
  // Requires: of(place) == answered; never an error of the server.
  [[nodiscard]] redis_driver::reply_view answer(unsigned place) const;
  // Why it failed, or was not asked.
  [[nodiscard]] const error& why(unsigned place) const;
  // Leaves a command on its way, unwatched. Null when it was not asked.
  redis_driver::ticket let_go(unsigned place);
  // Whether it may have been carried out.
  [[nodiscard]] bool may_have(unsigned place) const noexcept {
    return parts_[place].sent;
  }

 private:
  struct part {
    std::shared_ptr<const make> what;  // null: not to be asked
    std::optional<redis_driver::script_call> call;
    state now{state::unasked};
    bool sent{false};
    time_point limit{};
    std::optional<error> why;
  };
  bool advance_one(unsigned place, part& p, time_point now);
  void finish(part& p, error why, bool sent);

  servers& servers_;
  redis_driver::session& in_;
  bool sequential_;
  std::vector<part> parts_;
};

class servers {
 public:
  // Checks options and URLs; sends nothing.
  [[nodiscard]] static result<std::unique_ptr<servers>> open(
      std::span<const std::string> urls, const redlock_options& options);

  [[nodiscard]] unsigned n() const noexcept {
    return static_cast<unsigned>(all_.size());
  }
  [[nodiscard]] unsigned q() const noexcept { return quorum(n()); }
  [[nodiscard]] server& at(unsigned place) noexcept { return all_[place]; }
  [[nodiscard]] redis_driver::loop& loop() noexcept { return *loop_; }
  [[nodiscard]] time_point now() const noexcept { return loop_->now(); }
  [[nodiscard]] const redlock_options& options() const noexcept {
    return options_;
  }
  [[nodiscard]] const keys& names() const noexcept { return names_; }
  // Nothing until `learn` has succeeded.
  [[nodiscard]] const std::optional<cluster>& known() const noexcept {
    return known_;
  }
  void set_known(cluster c);

  // The marker that the server has when it is admitted.
  [[nodiscard]] const std::string& marker_of(server& s) const;
  // One run of the script for many; `own` is the same for all servers.
  [[nodiscard]] redis_driver::script_call vote_call(
      server& s, std::shared_ptr<const redis_driver::script_part> own) const;
  [[nodiscard]] redis_driver::script_call release_call(
      server& s, std::shared_ptr<const redis_driver::script_part> own) const;
  [[nodiscard]] std::shared_ptr<const redis_driver::script_part> release_part(
      const std::string& resource, const std::string& owner,
      std::int64_t value) const;

  // Asks every server what it remembers. With `all`, waits for each as long
  // as `until`; else leaves when `enough` are known to be in order.
  [[nodiscard]] std::vector<sight> look(redis_driver::session& in,
                                        time_point until, bool all);

  // Learns who belongs together, on first contact. `misconfigured`,
  // `no_quorum`.
  [[nodiscard]] result<void> learn(redis_driver::session& in, time_point until);

  // A server said 'forgot' and what it has instead of its marker. An error
  // when that belongs to somebody else: `misconfigured`.
  [[nodiscard]] result<void> note_forgot(server& s, std::string_view found,
                                         std::string_view note);
  void note_admitted(server& s) noexcept { s.quarantined = false; }
  // How long a server must still wait.
  [[nodiscard]] duration wait_left(const server& s) const;
  // Admits the servers whose wait is over.
  void tend(redis_driver::session& in, time_point until);
  [[nodiscard]] result<void> admit(redis_driver::session& in, server& s,
                                   std::int64_t value, time_point until);
  // The highest counter of N-Q+1 admitted servers. `no_quorum`.
  [[nodiscard]] result<std::int64_t> highest_counter(redis_driver::session& in,
                                                     time_point until);

  // names_digest of the servers as this client names them.
  [[nodiscard]] const std::string& digest() const noexcept { return digest_; }
  // Whether this client may admit a server in quarantine. One that remembers
  // its place: yes. A blank one may be a stranger, behind a wrong name or the
  // name of a server that was left out: only a client with the very list that
  // the cluster was set up with knows better.
  [[nodiscard]] bool may_admit(const server& s) const;

  // The marker in words of trouble, or nothing when it fits. `no_quorum` when
  // it only waits for the end of a change to this list.
  [[nodiscard]] std::optional<error> foreign(const server& s,
                                             std::string_view found) const;

  void add_stray(server& s, stray one);
  void send_strays(redis_driver::session& in, server& s);
  // Called with each connection, before anything else is sent on it.
  void greet(redis_driver::session& in, server& s);

 private:
  servers(std::unique_ptr<redis_driver::loop> where, redlock_options options);
  // What every command carries is made once for each memory.
  void know_memory(server& s) const;

  std::unique_ptr<redis_driver::loop> loop_;
  redlock_options options_;
  keys names_;
  std::vector<server> all_;
  std::optional<cluster> known_;
  std::string fresh_note_;
  std::string digest_;
  std::uint64_t notes_{0};
  bool tending_{false};
  time_point tend_again_at_{};

 public:
  // Another one with each call: a server that forgets its note and is given
  // the same again would seem to have waited already.
  [[nodiscard]] std::string fresh_note() {
    return fresh_note_ + '.' + std::to_string(++notes_);
  }
};

}  // namespace lastdoor::redlock
