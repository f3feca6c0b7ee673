#include "support/temp_redis.hpp"

#include <hiredis/hiredis.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <sstream>
#include <stdexcept>

namespace lastdoor::support {

namespace fs = std::filesystem;

namespace {

fs::path find_program(const std::string& name) {
  const char* path = std::getenv("PATH");
  std::istringstream folders{path != nullptr ? path
                                             : "/usr/bin:/usr/local/bin"};
  for (std::string folder; std::getline(folders, folder, ':');) {
    const auto file = fs::path{folder} / name;
    if (::access(file.c_str(), X_OK) == 0) {
      return file;
    }
  }
  return {};
}

const fs::path& program() {
  static const fs::path found = [] {
    const auto redis = find_program("redis-server");
    return redis.empty() ? find_program("valkey-server") : redis;
  }();
  return found;
}

std::string text_of_reply(const redisReply* reply) {
  switch (reply->type) {
    case REDIS_REPLY_INTEGER:
      return std::to_string(reply->integer);
    case REDIS_REPLY_NIL:
      return "<nil>";
    case REDIS_REPLY_ARRAY: {
      std::string all;
      for (std::size_t i = 0; i < reply->elements; ++i) {
        all += (i == 0 ? "" : ",") + text_of_reply(reply->element[i]);
      }
      return all;
    }
    default:
      return {reply->str, reply->len};
  }
}

struct raw_words {
  std::vector<const char*> words;
  std::vector<std::size_t> sizes;
  explicit raw_words(const argument_list& from) {
    for (const auto& word : from) {
      words.push_back(word.data());
      sizes.push_back(word.size());
    }
  }
  [[nodiscard]] int count() const { return static_cast<int>(words.size()); }
};

}  // namespace

std::string redis_missing() {
  return program().empty() ? "there is no redis-server in PATH" : "";
}

int redis_major() {
  static const int major = [] {
    // "Redis server v=7.0.15 sha=..."
    std::string line(256, '\0');
    auto* out = ::popen((program().string() + " --version").c_str(), "r");
    const bool said = out != nullptr && std::fgets(line.data(), 256, out);
    if (out != nullptr) {
      ::pclose(out);
    }
    const auto at = said ? line.find("v=") : std::string::npos;
    return at == std::string::npos ? 0 : std::atoi(line.c_str() + at + 2);
  }();
  return major;
}

std::vector<std::string> cluster_settings() {
  std::vector<std::string> all{"cluster-enabled yes"};
  // Before, the port is fixed: the other one and 10000.
  if (redis_major() >= 7) {
    all.push_back("cluster-port " + std::to_string(free_port()));
  }
  return all;
}

redis_session::redis_session(const std::string& socket)
    : connection_{redisConnectUnix(socket.c_str())} {
  if (connection_ == nullptr || connection_->err != 0) {
    const std::string why =
        connection_ == nullptr ? "out of memory" : connection_->errstr;
    redisFree(connection_);
    throw std::runtime_error{socket + ": " + why};
  }
}

redis_session::~redis_session() { redisFree(connection_); }

std::string redis_session::say(const argument_list& words) {
  raw_words raw{words};
  auto* reply = static_cast<redisReply*>(redisCommandArgv(
      connection_, raw.count(), raw.words.data(), raw.sizes.data()));
  if (reply == nullptr) {
    throw std::runtime_error{words.front() + ": " + connection_->errstr};
  }
  const auto text = text_of_reply(reply);
  freeReplyObject(reply);
  return text;
}

void redis_session::send(const argument_list& words) {
  raw_words raw{words};
  redisAppendCommandArgv(connection_, raw.count(), raw.words.data(),
                         raw.sizes.data());
  for (int done = 0; done == 0;) {
    if (redisBufferWrite(connection_, &done) != REDIS_OK) {
      throw std::runtime_error{words.front() + ": " + connection_->errstr};
    }
  }
}

temp_redis::temp_redis(redis_options options)
    : options_{std::move(options)}, folder_{"lastdoor-redis"} {
  start();
}

temp_redis::~temp_redis() = default;

std::string temp_redis::url() const { return "redis+unix://" + socket(); }
std::string temp_redis::tcp_url() const {
  return "redis://127.0.0.1:" + std::to_string(port_);
}
std::string temp_redis::socket() const { return folder_.path() / "socket"; }
std::string temp_redis::log() const {
  return text_of(folder_.path() / "server.log");
}

std::string temp_redis::say(const argument_list& words) const {
  return redis_session{socket()}.say(words);
}

std::int64_t temp_redis::number(const argument_list& words) const {
  return std::stoll(say(words));
}

std::string temp_redis::info(const std::string& field) const {
  std::istringstream all{say({"INFO", "everything"})};
  for (std::string line; std::getline(all, line);) {
    if (line.starts_with(field + ":")) {
      const auto value = line.substr(field.size() + 1);
      return value.substr(0, value.find('\r'));
    }
  }
  return "";
}

std::int64_t temp_redis::calls(const std::string& name) const {
  // cmdstat_get:calls=3,usec=...
  const auto text = info("cmdstat_" + name);
  return text.starts_with("calls=") ? std::stoll(text.substr(6)) : 0;
}

void temp_redis::set(const std::string& parameter,
                     const std::string& value) const {
  const auto answer = say({"CONFIG", "SET", parameter, value});
  if (answer != "OK") {
    throw std::runtime_error{answer};
  }
}

void temp_redis::own_all_slots() const {
  argument_list add{"CLUSTER", "ADDSLOTS"};
  for (int slot = 0; slot < 16384; ++slot) {
    add.push_back(std::to_string(slot));
  }
  const auto answer = say(add);
  if (answer != "OK" || !eventually([&] { return serves_slots(); })) {
    throw std::runtime_error{"the node serves no slots: " + answer};
  }
}

bool temp_redis::serves_slots() const {
  return say({"CLUSTER", "INFO"}).find("cluster_state:ok") != std::string::npos;
}

std::string temp_redis::cluster_port() const {
  const auto told = say({"CONFIG", "GET", "cluster-port"});
  return told.empty() ? std::to_string(port_ + 10000)
                      : told.substr(told.find(',') + 1);
}

void temp_redis::add_setting(const std::string& setting) {
  options_.settings.push_back(setting);
}

argument_list temp_redis::command() const {
  auto all = options_.launcher;
  all.push_back(program());
  const auto set = [&](const std::string& setting) {
    const auto blank = setting.find(' ');
    all.push_back("--" + setting.substr(0, blank));
    std::istringstream values{setting.substr(blank + 1)};
    for (std::string value; values >> value;) {
      all.push_back(value == "\"\"" ? "" : value);
    }
  };
  set("unixsocket " + socket());
  set("port " + std::to_string(port_));
  set("bind 127.0.0.1");
  set("dir " + folder_.path().string());
  set("daemonize no");
  set("save \"\"");
  set(options_.persistent ? "appendonly yes" : "appendonly no");
  // Otherwise a slow disk lets the answer out before the command is written.
  set("appendfsync always");
  // A replica gets its data without a pause for others to join.
  set("repl-diskless-sync-delay 0");
  set("repl-diskless-sync yes");
  for (const auto& setting : options_.settings) {
    set(setting);
  }
  return all;
}

void temp_redis::start(bool wait) {
  for (int attempt = 0; attempt < 5; ++attempt) {
    // The port is kept over restarts, so that URLs stay good.
    if (port_ == 0 || attempt > 0) {
      port_ = free_port();
    }
    process_ = std::make_unique<server_process>(command(),
                                                folder_.path() / "server.log");
    if (!wait || wait_until_ready()) {
      return;
    }
  }
  throw std::runtime_error{"Redis does not start:\n" + log()};
}

bool temp_redis::wait_until_ready() {
  bool ready = false;
  (void)eventually(
      [&] {
        try {
          const auto answer = say({"PING"});
          // Asks for a password: up, and the test knows it.
          ready = answer == "PONG" || answer.starts_with("NOAUTH");
        } catch (const std::runtime_error&) {
          ready = false;
        }
        return ready || process_->ended().has_value();
      },
      std::chrono::minutes{1});
  return ready;
}

void temp_redis::kill_hard() {
  process_->stop(SIGKILL, std::chrono::minutes{1});
}

void temp_redis::restart() {
  kill_hard();
  start();
}

void temp_redis::restart_empty() {
  kill_hard();
  std::error_code ignored;
  fs::remove_all(folder_.path() / "appendonlydir", ignored);
  fs::remove(folder_.path() / "dump.rdb", ignored);
  start();
}

void temp_redis::follow(const temp_redis& primary) const {
  say({"REPLICAOF", "127.0.0.1", std::to_string(primary.port())});
  const auto caught_up = [&] {
    return info("master_link_status") == "up" &&
           info("slave_repl_offset") == primary.info("master_repl_offset");
  };
  if (!eventually(caught_up)) {
    throw std::runtime_error{"the replica does not catch up:\n" + log()};
  }
}

}  // namespace lastdoor::support
