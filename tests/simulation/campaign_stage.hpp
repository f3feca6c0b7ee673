// campaign_stage.hpp: the servers, links and processes of a campaign, and
// what can be done to them.
//
// Thread safety: the main thread only.
#pragma once

#include <array>
#include <lastdoor/testing/lock_history.hpp>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "simulation/campaign_board.hpp"
#include "simulation/redlock_campaign.hpp"
#include "support/tcp_proxy.hpp"
#include "support/temp_redis.hpp"

namespace lastdoor::simulation {

inline constexpr std::size_t masters = 5;
inline constexpr std::chrono::milliseconds max_ttl{400};

/// One master: where its backup is, how its clock is moved.
struct campaign_server {
  std::unique_ptr<shared_file<std::atomic<std::int64_t>>> clock;
  std::unique_ptr<support::temp_redis> redis;
  bool persistent{false};
  bool paused{false};
  std::filesystem::path backup;  // empty: none yet
};

class campaign_stage {
 public:
  /// Starts everything.
  explicit campaign_stage(const campaign_options& options);
  ~campaign_stage();
  campaign_stage(const campaign_stage&) = delete;
  campaign_stage& operator=(const campaign_stage&) = delete;

  [[nodiscard]] campaign_server& server(std::size_t k) { return servers_[k]; }
  [[nodiscard]] campaign_board& board() { return *board_; }
  [[nodiscard]] int processes() const { return options_.processes; }
  /// The relay between a process and a server; null when there is none.
  [[nodiscard]] support::tcp_proxy* link(int process, std::size_t k) {
    return links_[static_cast<std::size_t>(process)][k].get();
  }

  // ---- servers; a paused one is resumed first
  void crash_and_restart(std::size_t k);
  void crash_and_restart_empty(std::size_t k);
  void flush(std::size_t k);
  void back_up(std::size_t k);
  void restore(std::size_t k);
  void pause(std::size_t k);
  void resume(std::size_t k);
  void add_to_counter(std::size_t k, std::uint64_t by);
  void move_clock(std::size_t k, std::chrono::milliseconds to);
  /// How far the server's clock is from ours.
  [[nodiscard]] std::chrono::milliseconds clock_offset(std::size_t k);

  // ---- processes
  void pause_worker(int process) const;
  void resume_worker(int process) const;
  void kill_worker(int process);
  void start_worker(int process);
  /// A worker that ended although nobody made it, in words; or nothing.
  [[nodiscard]] std::optional<std::string> find_dead_worker();

  /// Nothing is under way, and all that was granted is in the history. Undone
  /// by go_on(). False when a worker did not come to rest.
  [[nodiscard]] bool hold();
  void go_on() { board_->hold = 0; }
  /// What an operator does when too few servers remember: with the highest
  /// token there was as floor, and if nobody remembers, all anew.
  void operator_admits();

  /// What was granted so far.
  const std::vector<testing::grant_record>& history();
  /// Keeps the history where somebody can look at it; the place.
  [[nodiscard]] std::string keep(const std::string& what_happened);

 private:
  struct history_file {
    std::string path;
    std::int64_t read{0};
  };
  void set_up(std::int64_t floor);
  [[nodiscard]] std::vector<std::string> urls_of(int process);

  campaign_options options_;
  support::temp_folder folder_;
  shared_file<campaign_board> board_;
  std::array<campaign_server, masters> servers_;
  std::vector<std::array<std::unique_ptr<support::tcp_proxy>, masters>> links_;
  std::vector<pid_t> workers_;
  std::uint64_t starts_{0};
  std::vector<history_file> files_;
  std::vector<testing::grant_record> history_;
};

}  // namespace lastdoor::simulation
