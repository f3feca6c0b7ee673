// handover: bind a store's marks to another lock service.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/backends.hpp"
#include "cli/commands.hpp"
#include "cli/output.hpp"

namespace lastdoor::cli {

namespace {

struct handover_arguments {
  std::string store, locks, from, to;
};

struct handover_report {
  std::int64_t moved;
  mark floor;
};

// A retired name never comes back, so a mistake in it must stop here: when
// marks are of a third source, and none of the one that is named. With no
// marks at all, and for a repeat, nothing can be lost.
result<void> check_bound(store& s, const source_name& from,
                         const source_name& to) {
  constexpr std::size_t page = 1000;
  std::string after, other;
  for (;;) {
    auto marks = s.list_marks(after, page);
    if (!marks) {
      return marks.error();
    }
    for (const auto& m : *marks) {
      if (m.source == from.str()) {
        return {};
      }
      if (m.source != to.str() && other.empty()) {
        other = m.source;
      }
    }
    if (marks->size() < page) {
      break;
    }
    after = marks->back().resource;
  }
  if (other.empty()) {
    return {};
  }
  return fail(errc::missing,
              fmt::format("no mark is of source '{}', but there are marks of "
                          "'{}'; nothing was handed over",
                          from.str(), other));
}

result<handover_report> hand_over(const handover_arguments& a) {
  auto from = source_name::parse(a.from);
  auto to = source_name::parse(a.to);
  if (!from || !to) {
    return from ? to.error() : from.error();
  }
  auto locks = open_locks(a.locks);
  if (!locks) {
    return locks.error();
  }
  if (locks->source() != *to) {
    return fail(errc::invalid_argument,
                fmt::format("--to names '{}', but the source of --locks is "
                            "'{}'",
                            to->str(), locks->source().str()));
  }
  auto s = open_store(a.store);
  if (!s) {
    return s.error();
  }
  if (auto ok = check_bound(**s, *from, *to); !ok) {
    return ok.error();
  }
  // First the floor, so that no token of the new source is ever below a mark.
  auto floor = (*s)->highest_mark();
  if (!floor) {
    return floor.error();
  }
  if (auto ok = locks->raise_floor(*floor); !ok) {
    return ok.error();
  }
  auto moved = (*s)->hand_over(*from, *to);
  if (!moved) {
    return moved.error();
  }
  // Until just now the old source could still raise a mark; from here on it
  // cannot, so this second look is final.
  auto final_floor = (*s)->highest_mark();
  if (!final_floor) {
    return final_floor.error();
  }
  if (auto ok = locks->raise_floor(*final_floor); !ok) {
    return ok.error();
  }
  return handover_report{*moved, *final_floor};
}

int act(const handover_arguments& a, const output& out) {
  auto done = hand_over(a);
  if (!done) {
    return out.failed(done.error());
  }
  return out.done({{"from", a.from},
                   {"to", a.to},
                   {"marks", done->moved},
                   {"floor", std::to_string(done->floor.value())}},
                  fmt::format("{} marks handed over from {} to {}\n"
                              "every new token of {} is above {}\n"
                              "{} is refused from now on\n",
                              done->moved, a.from, a.to, a.to,
                              done->floor.value(), a.from));
}

}  // namespace

void add_handover(CLI::App& root, invocation& call) {
  auto a = std::make_shared<handover_arguments>();
  CLI::App* c = root.add_subcommand(
      "handover", "Bind a store to another lock service, for good");
  add_store(*c, a->store)->required();
  add_locks(*c, a->locks)
      ->required()
      ->description("The new lock service, as a URL");
  c->add_option("--from", a->from, "The source that is refused from now on")
      ->required();
  c->add_option("--to", a->to, "The source of --locks, typed again")
      ->required();
  add_json(*c, call);
  c->callback([a, &call] {
    call.action = [a, &call] { return act(*a, output{call.json}); };
  });
}

}  // namespace lastdoor::cli
