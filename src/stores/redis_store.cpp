#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <unordered_map>

#include "embedded_redis_store_scripts.hpp"
#include "fencing/text.hpp"
#include "redis_store_impl.hpp"
#include "redis_text.hpp"

namespace lastdoor {

namespace driver = redis_driver;
namespace scripts = detail::redis_store_scripts;

namespace {

constexpr std::size_t most_bytes = std::size_t{16} << 20;
constexpr std::size_t most_words = 200'000;

// "token owner number used source"
std::optional<mark_status> parse_mark(std::string_view resource,
                                      std::string_view text) {
  std::vector<std::string_view> parts;
  while (parts.size() < 4) {
    const auto blank = text.find(' ');
    if (blank == std::string_view::npos) {
      return std::nullopt;
    }
    parts.push_back(text.substr(0, blank));
    text.remove_prefix(blank + 1);
  }
  const auto token = redis_integer(parts[0]);
  const auto last = redis_integer(parts[2]);
  if (!token || !last) {
    return std::nullopt;
  }
  auto seen = mark::from_store(*token);
  if (!seen) {
    return std::nullopt;
  }
  return mark_status{std::string{resource}, *seen, std::string{text}, *last};
}

value value_of(driver::reply_view answer) {
  if (answer.is_nil()) {
    return nullptr;
  }
  if (answer.is_integer()) {
    return answer.integer();
  }
  if (const auto n = redis_integer(answer.text())) {
    return *n;
  }
  return answer.text();
}

// The words of a plan, as redis_write.lua reads them.
class script_words {
 public:
  script_words(const std::string& ledger, const grant& g, std::int64_t number,
               bool adopt, const redis_plan& plan) {
    key(ledger);
    word(g.resource().str());
    word(g.token().to_string());
    word(g.owner().str());
    word(g.source().str());
    word(std::to_string(number));
    word(adopt ? "1" : "0");
    for (const auto& step : plan.steps) {
      word(step.verb);
      word(std::to_string(key(step.key)));
      word(std::to_string(step.words.size()));
      for (const auto& w : step.words) {
        word(w);
      }
    }
  }

  [[nodiscard]] result<void> check() const {
    if (bytes_ > most_bytes || arguments_.size() > most_words) {
      return fail(errc::invalid_argument,
                  "a write holds at most 16 MiB and 200,000 words: the server "
                  "does nothing else meanwhile");
    }
    return {};
  }
  [[nodiscard]] driver::script_call call() const {
    const std::vector<std::string_view> arguments(arguments_.begin(),
                                                  arguments_.end());
    return {scripts::redis_write, keys_, arguments};
  }

 private:
  // Its index, from 1. The text must outlive this.
  std::size_t key(const std::string& text) {
    const auto [at, added] = indices_.emplace(text, keys_.size() + 1);
    if (added) {
      keys_.push_back(text);
      bytes_ += text.size();
    }
    return at->second;
  }
  void word(std::string text) {
    bytes_ += text.size();
    arguments_.push_back(std::move(text));
  }

  std::vector<std::string_view> keys_;
  std::unordered_map<std::string_view, std::size_t> indices_;
  std::vector<std::string> arguments_;
  std::size_t bytes_{0};
};

}  // namespace

redis_store::impl::impl(std::unique_ptr<driver::loop> where,
                        const driver::node_options& server,
                        redis_store_options options)
    : loop_{std::move(where)},
      node_{loop_->add(server)},
      options_{std::move(options)},
      ledger_{fmt::format("lastdoor:{{{}}}:ledger", options_.name_space)} {}

result<std::unique_ptr<redis_store::impl>> redis_store::impl::open(
    std::string_view url, redis_store_options options) {
  if (auto ok = driver::check_name_space(options.name_space); !ok) {
    return ok.error();
  }
  if (auto ok = driver::check_timeout(options.call_timeout); !ok) {
    return ok.error();
  }
  auto server = driver::server_options(url, options.call_timeout, options.tls);
  if (!server) {
    return server.error();
  }
  auto loop = driver::loop::open(options.time);
  if (!loop) {
    return loop.error();
  }
  return std::make_unique<impl>(std::move(*loop), *server, std::move(options));
}

// Parent and child would read each other's answers from one socket.
result<void> redis_store::impl::check_process() const {
  if (forks() != forks_) {
    return fail(errc::misconfigured,
                "this store was opened before a fork(); the child needs one "
                "of its own");
  }
  return {};
}

// ---- writes

result<receipt> redis_store::impl::run(const grant& g, const redis_plan& plan,
                                       const write_options& o,
                                       const reader& read) {
  const auto about = [&](error why) {
    return why.about(g.resource().str()).presented(g.token().value());
  };
  if (auto ok = check_process(); !ok) {
    return about(ok.error());
  }
  const auto number = o.sequence.value_or(0);
  if (o.sequence && (number < 1 || !redis_countable(number))) {
    return about(
        fail(errc::invalid_argument, "writes are numbered from 1 to 2^53-1"));
  }
  const script_words all{ledger_, g, number, options_.adopt_existing, plan};
  if (auto ok = all.check(); !ok) {
    return about(ok.error());
  }
  driver::session in{*loop_};
  const auto now = loop_->now();
  if (!g.valid_at(now)) {
    return about(fail(errc::lease_lost,
                      "the lease's validity is over; nothing was sent"));
  }
  driver::insistence trying{
      in, node_, "writing",
      std::min(now + options_.call_timeout, g.valid_until())};
  if (!o.sequence && !plan.steps.empty()) {
    trying.only_once();
  }
  auto call = all.call();
  const auto answer = trying.run(call);
  if (!answer) {
    return about(answer.error());
  }
  const auto word = (*answer)[0].text();
  receipt r;
  if (word == "repeated") {
    r.already_applied = true;
    return r;
  }
  if (word != "done") {
    return about(refusal(*answer, g, plan));
  }
  r.rows = plan.rows;
  if (read) {
    read((*answer)[1], r);
  }
  return r;
}

// ---- the ledger

result<void> redis_store::impl::ask(
    const detail::embedded_text& script, words arguments,
    std::string_view doing,
    const std::function<result<void>(driver::reply_view)>& read) {
  if (auto ok = check_process(); !ok) {
    return ok;
  }
  driver::session in{*loop_};
  driver::script_call call{script, {ledger_}, arguments};
  const auto answer =
      driver::insistence{in, node_, doing, loop_->now() + options_.call_timeout}
          .run(call);
  if (!answer) {
    return answer.error();
  }
  if (auto bad = unusable(*answer)) {
    return *bad;
  }
  return read(*answer);
}

result<mark> redis_store::impl::read_mark(const resource_name& r) {
  mark seen;
  auto ok = ask(scripts::redis_mark, {r.str()}, "reading a mark",
                [&](driver::reply_view answer) -> result<void> {
                  if (answer[1].is_nil()) {
                    return {};
                  }
                  const auto m = parse_mark(r.str(), answer[1].text());
                  if (!m) {
                    return fail(errc::damaged,
                                "the mark is not one that "
                                "lastdoor wrote");
                  }
                  seen = m->token;
                  return {};
                });
  if (!ok) {
    return error{ok.error()}.about(r.str());
  }
  return seen;
}

result<void> redis_store::impl::each_mark(
    const std::function<void(mark_status)>& see) {
  std::string cursor{"0"};
  do {
    auto ok = ask(scripts::redis_marks, {cursor}, "reading the ledger",
                  [&](driver::reply_view answer) -> result<void> {
                    const auto found = answer[2];
                    for (std::size_t i = 0; i + 1 < found.size(); i += 2) {
                      const auto name = found[i].text();
                      if (name.starts_with('\0')) {
                        continue;
                      }
                      auto m = parse_mark(name, found[i + 1].text());
                      if (!m) {
                        return fail(errc::damaged,
                                    "the mark is not one that lastdoor wrote")
                            .about(name);
                      }
                      see(std::move(*m));
                    }
                    cursor = answer[1].text();
                    return {};
                  });
    if (!ok) {
      return ok;
    }
  } while (cursor != "0");
  return {};
}

result<std::int64_t> redis_store::impl::hand_over(const source_name& from,
                                                  const source_name& to) {
  if (from == to) {
    return fail(errc::invalid_argument,
                "a source is not handed over to itself");
  }
  std::int64_t moved = 0;
  auto ok = ask(
      scripts::redis_hand_over, {from.str(), to.str()}, "handing over",
      [&](driver::reply_view answer) -> result<void> {
        if (answer[0].text() == "retired") {
          return fail(errc::invalid_argument,
                      fmt::format("the source '{}' was itself handed over, to "
                                  "'{}'",
                                  to.str(), printable(answer[1].text())));
        }
        moved = answer[1].integer();
        return {};
      });
  if (!ok) {
    return ok.error();
  }
  return moved;
}

result<bool> redis_store::impl::create() {
  driver::session in{*loop_};
  driver::script_call call{scripts::redis_create, {ledger_}, {}};
  const auto answer = driver::insistence{in, node_, "making the ledger",
                                         loop_->now() + options_.call_timeout}
                          .run(call);
  if (!answer) {
    return answer.error();
  }
  return answer->integer() == 1;
}

// ---- the public face

redis_store::redis_store(std::unique_ptr<impl> i) noexcept
    : impl_{std::move(i)} {}
redis_store::redis_store(redis_store&&) noexcept = default;
redis_store& redis_store::operator=(redis_store&&) noexcept = default;
redis_store::~redis_store() = default;

result<void> redis_store::claim(const grant& g) {
  auto done = impl_->run(g, {}, {}, {});
  if (!done) {
    return done.error();
  }
  return {};
}

result<receipt> redis_store::write(const grant& g, const statement& s,
                                   const write_options& o) {
  auto plan = plan_rows(s, impl_->name_space(), g.token());
  if (!plan) {
    return error{plan.error()}.about(g.resource().str());
  }
  const auto read = [&](driver::reply_view answers, receipt& r) {
    // Commands answer too; the lists are what `get` found.
    for (std::size_t i = 0; i < answers.size(); ++i) {
      if (answers[i].size() == 0) {
        continue;
      }
      const auto& known = plan->keys_returned[r.returned.size()];
      row found;
      for (std::size_t k = 0; k < known.size(); ++k) {
        found.push_back(known[k] != nullptr ? *known[k]
                                            : value_of(answers[i][k]));
      }
      r.returned.push_back(std::move(found));
    }
  };
  return impl_->run(g, *plan, o, read);
}

result<receipt> redis_store::write(const grant& g, const redis_commands& c,
                                   const write_options& o) {
  auto plan = plan_commands(c);
  if (!plan) {
    return error{plan.error()}.about(g.resource().str());
  }
  return impl_->run(g, *plan, o, [](driver::reply_view answers, receipt& r) {
    for (std::size_t i = 0; i < answers.size(); ++i) {
      r.returned.push_back({value_of(answers[i])});
    }
  });
}

result<mark> redis_store::read_mark(const resource_name& r) {
  return impl_->read_mark(r);
}

result<std::vector<mark_status>> redis_store::list_marks(std::string_view after,
                                                         std::size_t limit) {
  std::map<std::string, mark_status> page;
  auto ok = impl_->each_mark([&](mark_status m) {
    if (m.resource <= after) {
      return;
    }
    auto name = m.resource;
    page.insert_or_assign(std::move(name), std::move(m));
    if (page.size() > limit) {
      page.erase(std::prev(page.end()));
    }
  });
  if (!ok) {
    return ok.error();
  }
  std::vector<mark_status> listed;
  for (auto& [name, m] : page) {
    listed.push_back(std::move(m));
  }
  return listed;
}

result<mark> redis_store::highest_mark() {
  mark highest;
  auto ok = impl_->each_mark(
      [&](const mark_status& m) { highest = std::max(highest, m.token); });
  if (!ok) {
    return ok.error();
  }
  return highest;
}

result<std::int64_t> redis_store::hand_over(const source_name& from,
                                            const source_name& to) {
  return impl_->hand_over(from, to);
}

result<redis_store> open_redis_store(std::string_view url,
                                     redis_store_options options) {
  auto opened = redis_store::impl::open(url, std::move(options));
  if (!opened) {
    return opened.error();
  }
  return redis_store{std::move(*opened)};
}

result<bool> create_redis_ledger(std::string_view url,
                                 const redis_store_options& options) {
  auto opened = redis_store::impl::open(url, options);
  if (!opened) {
    return opened.error();
  }
  return (*opened)->create();
}

}  // namespace lastdoor
