// redlock_floor.hpp: a lease on a quorum as an expert would take it by hand:
// plain hiredis on one connection to each server, one poll loop, all asked at
// once, done at the quorum.
#pragma once

#include <poll.h>

#include <memory>
#include <string>
#include <vector>

#include "embedded_redis_scripts.hpp"
#include "redis_bench.hpp"

namespace lastdoor::bench {

/// It reads the tokens and takes the median, and nothing else: no
// second round, no undo, no deadline.
class quorum_by_hand {
 public:
  explicit quorum_by_hand(const std::vector<int>& ports) {
    for (const int port : ports) {
      auto& m = all_.emplace_back();
      m.c = std::make_unique<hand>(port);
      m.c->say({"SCRIPT", "LOAD", detail::redis_scripts::redlock_acquire.text});
      m.c->say({"SCRIPT", "LOAD", detail::redis_scripts::redlock_release.text});
      m.c->say({"SETNX", counter, "1"});
      m.c->say({"SET", marker, "plain"});
      m.c->do_not_block();
    }
  }

  void grant(const std::string& resource) {
    lock_ = "plain:{x}:lock:" + resource;
    owner_ = must(owner_id::generate()).str();
    std::vector<long long> got;
    ask({"EVALSHA", detail::redis_scripts::redlock_acquire.sha1, "4", counter,
         marker, "plain:{x}:note", lock_, "plain", owner_ + " 0 bench:1",
         "60000"},
        [&](const redisReply& r) {
          if (r.elements != 1 || r.element[0]->integer == 0) {
            stop("plain: not granted");
          }
          got.push_back(r.element[0]->integer);
        });
    const auto middle = got.begin() + static_cast<long>(all_.size() / 2);
    std::nth_element(got.begin(), middle, got.end());
    token_ = *middle;
  }
  void release() {
    ask({"EVALSHA", detail::redis_scripts::redlock_release.sha1, "3", counter,
         marker, lock_, "plain", owner_, "plain:{x}:free",
         std::to_string(token_)},
        [](const redisReply& r) {
          if (r.elements != 1 || r.element[0]->integer != 1) {
            stop("plain: not released");
          }
        });
  }
  spent pair(const std::string& resource) {
    return timed([&] { grant(resource); }, [&] { release(); });
  }

  /// One thread that asks for so many callers at once, in one write a server,
  /// and goes on when a quorum has answered all of it. Nobody shares servers
  /// faster: what is left is their own work.
  void pairs_at_once(std::size_t callers) {
    std::vector<std::string> owners;
    for (std::size_t i = 0; i < callers; ++i) {
      owners.push_back(must(owner_id::generate()).str());
    }
    const auto lock = [](std::size_t i) {
      return "plain:{x}:lock:many-" + std::to_string(i);
    };
    ask_for_all(callers, [&](hand& c, std::size_t i) {
      c.append({"EVALSHA", detail::redis_scripts::redlock_acquire.sha1, "4",
                counter, marker, "plain:{x}:note", lock(i), "plain",
                owners[i] + " 0 bench:1", "60000"});
    });
    ask_for_all(callers, [&](hand& c, std::size_t i) {
      c.append({"EVALSHA", detail::redis_scripts::redlock_release.sha1, "3",
                counter, marker, lock(i), "plain", owners[i], "plain:{x}:free",
                "1"});
    });
  }

 private:
  static constexpr const char* counter = "plain:{x}:counter";
  static constexpr const char* marker = "plain:{x}:marker";
  struct member {
    std::unique_ptr<hand> c;
    std::size_t late{0};  // answers to what is over
    bool open{false};
  };

  // Until one has something to say.
  void await_some() {
    fds_.clear();
    for (const auto& m : all_) {
      fds_.push_back({m.c->fd(), POLLIN, 0});
    }
    ::poll(fds_.data(), fds_.size(), -1);
  }

  template <class Append>
  void ask_for_all(std::size_t callers, const Append& append) {
    for (auto& m : all_) {
      for (std::size_t i = 0; i < callers; ++i) {
        append(*m.c, i);
      }
      m.c->flush();
      m.late += callers;
    }
    const auto answered = [&] {
      std::size_t n = 0;
      for (const auto& m : all_) {
        n += m.late == 0 ? 1U : 0U;
      }
      return n;
    };
    while (answered() < all_.size() / 2 + 1) {
      await_some();
      for (std::size_t k = 0; k < all_.size(); ++k) {
        if (fds_[k].revents != 0) {
          all_[k].c->read();
          while (all_[k].c->next()) {
            --all_[k].late;
          }
        }
      }
    }
  }

  template <class Take>
  void ask(words command, const Take& take) {
    for (auto& m : all_) {
      m.c->send(command);
      m.late += m.open ? 1U : 0U;
      m.open = true;
    }
    for (std::size_t answered = 0; answered < all_.size() / 2 + 1;) {
      await_some();
      for (std::size_t k = 0; k < all_.size(); ++k) {
        if (fds_[k].revents != 0) {
          answered += heard(all_[k], take);
        }
      }
    }
  }
  template <class Take>
  static std::size_t heard(member& m, const Take& take) {
    m.c->read();
    while (auto r = m.c->next()) {
      if (m.late > 0) {
        --m.late;
        continue;
      }
      m.open = false;
      take(*r);
      return 1;
    }
    return 0;
  }

  std::vector<member> all_;
  std::vector<pollfd> fds_;
  std::string lock_;
  std::string owner_;
  long long token_{0};
};

}  // namespace lastdoor::bench
