// redlock_change.hpp: one change of the members of a cluster (see
// locks/redlock.hpp, and models/README.md for the argument).
//
// Each step writes what tells the next who comes along how far the change is,
// and can be done twice:
//   join    blank servers get a line that reserves them
//   close   old servers get one that names the old and the new cluster
//   confirm N/2 + 1 of the old ones are closed at one moment
//   wait    one max TTL
//   open    the new ones get their counter and their marker
//
// Thread safety: one thread; it holds the locks of both loops.
#pragma once

#include <algorithm>
#include <cstdint>
#include <lastdoor/locks/redlock.hpp>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "redlock_setup.hpp"

namespace lastdoor::redlock {

class change {
 public:
  change(servers& from, servers& to, const redlock_change_options& how)
      : from_{from, {}}, to_{to, {}}, how_{how}, seats_(from.n()) {}

  result<redlock_change_report> run() {
    result<void> ok;
    // In this order: a blank server gets its note before the old ones are
    // seen to be open, so it was never opened by this change.
    if (ok = see_new(); !ok) {
      return ok.error();
    }
    look(from_);
    for (auto step :
         {&change::settle, &change::check_new, &change::take_seats,
          &change::join, &change::close, &change::confirm, &change::open}) {
      if (ok = (this->*step)(); !ok) {
        return ok.error();
      }
    }
    return report();
  }

 private:
  struct side {
    servers& all;
    std::vector<sight> seen;
    // For one step: never two of them at once, as each holds a lock.
    [[nodiscard]] redis_driver::session enter() const {
      return redis_driver::session{all.loop()};
    }
  };
  enum class state : std::uint8_t {
    absent,
    voting,  // its marker and its memory are in order
    lost,    // it may have forgotten
    done     // closed by this change
  };
  // One server of the old cluster.
  struct seat {
    side* by{nullptr};
    unsigned place{0};  // there
    state now{state::absent};
    std::string text;  // what stands there: its marker, or what it became
  };

  static time_point limit(const side& s) {
    return s.all.now() + s.all.options().call_timeout;
  }
  void look(side& s) {
    auto in = s.enter();
    s.seen = s.all.look(in, limit(s), true);
  }
  void tell(const std::string& what) const {
    if (how_.progress) {
      how_.progress(what);
    }
  }
  [[nodiscard]] const std::string& name(const side& s, unsigned k) const {
    return s.all.at(k).node->name();
  }
  // What this change makes of a server.
  [[nodiscard]] bool pending(const std::string& text) const {
    const auto c = closed::parse(text);
    return c && c->to.id == target_.id;
  }
  [[nodiscard]] bool opened(const std::string& text) const {
    const auto m = marker::parse(text);
    return m && m->of == target_;
  }
  [[nodiscard]] bool anywhere(bool (change::*is)(const std::string&)
                                  const) const {
    const auto in = [&](const side& s) {
      return std::any_of(s.seen.begin(), s.seen.end(),
                         [&](const sight& x) { return (this->*is)(x.marker); });
    };
    return in(from_) || in(to_);
  }
  static error another_change(const std::string& server) {
    return fail(errc::misconfigured,
                fmt::format("{}: a change to other servers was begun and must "
                            "be finished first",
                            server));
  }

  result<void> see_new();
  result<void> settle();
  result<void> check_new();
  result<void> take_seats();
  result<void> join();
  result<void> close();
  result<void> confirm();
  result<void> open();
  result<void> open_one(unsigned k, std::int64_t value, bool may_readmit);
  void find_live();
  std::map<std::string, unsigned> old_clusters();
  void know_old(const std::string& id);
  [[nodiscard]] bool stays(const seat& s) const;
  [[nodiscard]] bool is_blank_seat(const sight& s) const;
  result<std::string> replace(side& s, unsigned k, const closed& by,
                              const std::string& found, const char* mode,
                              const std::string& note);
  [[nodiscard]] redlock_change_report report() const;

  side from_;
  side to_;
  const redlock_change_options& how_;
  std::optional<cluster> old_;
  bool old_names_{false};  // `from` is the list as it was set up
  cluster target_;
  bool live_{false};     // the new cluster has enough members to be one
  bool opening_{false};  // some new server was opened: all before that is done
  std::string nonce_;
  std::vector<seat> seats_;
  std::int64_t floor_{0};
};

// Whether a server said a number.
[[nodiscard]] inline bool counts(const std::string& counter) {
  return !counter.empty() && counter != "?";
}

}  // namespace lastdoor::redlock
