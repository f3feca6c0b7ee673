#include "support/temp_postgres.hpp"

#include <fcntl.h>
#include <libpq-fe.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <stdexcept>

namespace lastdoor::support {

namespace fs = std::filesystem;

namespace {

// The newest version installed: Debian keeps the programs out of the path.
fs::path find_programs() {
  fs::path best;
  int newest = 0;
  std::error_code ignored;
  for (const auto& entry :
       fs::directory_iterator{"/usr/lib/postgresql", ignored}) {
    const int version = std::atoi(entry.path().filename().c_str());
    const fs::path bin = entry.path() / "bin";
    if (version > newest && fs::exists(bin / "postgres", ignored) &&
        fs::exists(bin / "initdb", ignored)) {
      newest = version;
      best = bin;
    }
  }
  for (const char* bin : {"/usr/bin", "/usr/local/bin"}) {
    if (best.empty() && fs::exists(fs::path{bin} / "initdb", ignored)) {
      best = bin;
    }
  }
  return best;
}

const fs::path& programs() {
  static const fs::path found = find_programs();
  return found;
}

void make_cluster(const fs::path& data, const fs::path& log) {
  run_program({programs() / "initdb", "-D", data, "--no-sync", "--auth=trust",
               "--username=postgres", "--no-locale", "--encoding=UTF8",
               "--wal-segsize=1"},
              log);
}

// initdb takes a second and each test case is a process of its own, so the
// result is kept beside the test programs and copied from there.
void copy_cluster(const fs::path& data, const fs::path& log) {
  const fs::path home = fs::read_symlink("/proc/self/exe").parent_path();
  const fs::path model = home / "postgres_model";
  const int lock = ::open((home / "postgres_model.lock").c_str(),
                          O_CREAT | O_RDWR | O_CLOEXEC, 0644);
  if (lock < 0) {
    make_cluster(data, log);
    return;
  }
  ::flock(lock, LOCK_EX);
  const std::string version = programs().string();
  if (!fs::exists(model / "complete") ||
      text_of(model / "complete") != version) {
    fs::remove_all(model);
    make_cluster(data, log);
    fs::create_directory(model);
    fs::copy(data, model / "data", fs::copy_options::recursive);
    std::ofstream{model / "complete"} << version;
  } else {
    fs::copy(model / "data", data, fs::copy_options::recursive);
    fs::permissions(data, fs::perms::owner_all);
    give_to_server(data);
  }
  ::close(lock);
}

rows rows_of(PGresult* result) {
  rows all;
  for (int i = 0; i < PQntuples(result); ++i) {
    auto& row = all.emplace_back();
    for (int k = 0; k < PQnfields(result); ++k) {
      row.emplace_back(
          PQgetisnull(result, i, k) != 0 ? "<null>" : PQgetvalue(result, i, k));
    }
  }
  return all;
}

rows take(PGconn* conn, PGresult* result) {
  const auto status = PQresultStatus(result);
  if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK) {
    PQclear(result);
    throw std::runtime_error{PQerrorMessage(conn)};
  }
  auto all = rows_of(result);
  PQclear(result);
  return all;
}

std::string random_name() {
  static std::atomic<int> count{0};
  return "t" + std::to_string(::getpid()) + "_" + std::to_string(++count);
}

}  // namespace

std::string postgres_missing() {
  return programs().empty()
             ? "Postgres is not installed below /usr/lib/postgresql"
             : "";
}

sql_session::sql_session(const std::string& url)
    : conn_{PQconnectdb(url.c_str())} {
  PQsetNoticeProcessor(
      conn_, [](void*, const char*) {}, nullptr);
  if (PQstatus(conn_) != CONNECTION_OK) {
    const std::string why = PQerrorMessage(conn_);
    PQfinish(conn_);
    throw std::runtime_error{why};
  }
}

sql_session::~sql_session() { PQfinish(conn_); }

rows sql_session::query(const std::string& sql) {
  return take(conn_, PQexec(conn_, sql.c_str()));
}

std::string sql_session::value(const std::string& sql) {
  const auto all = query(sql);
  if (all.size() != 1 || all[0].size() != 1) {
    throw std::runtime_error{"not exactly one value: " + sql};
  }
  return all[0][0];
}

void sql_session::send(const std::string& sql) {
  if (PQsendQuery(conn_, sql.c_str()) != 1) {
    throw std::runtime_error{PQerrorMessage(conn_)};
  }
}

void sql_session::finish() {
  while (PGresult* result = PQgetResult(conn_)) {
    take(conn_, result);
  }
}

int sql_session::backend_pid() const { return PQbackendPID(conn_); }

std::unique_ptr<memory_folder> memory_folder::make() {
  const fs::path home{"/dev/shm"};
  const std::string prefix = "lastdoor-pg-";
  std::error_code ec;
  for (const auto& entry : fs::directory_iterator{home, ec}) {
    const auto name = entry.path().filename().string();
    if (name.starts_with(prefix)) {
      const int owner = std::atoi(name.c_str() + prefix.size());
      if (::kill(owner, 0) != 0 && errno == ESRCH) {
        fs::remove_all(entry.path(), ec);
      }
    }
  }
  const auto room = fs::space(home, ec);
  if (ec || room.available < (std::uintmax_t{1} << 30)) {
    return nullptr;
  }
  auto name =
      (home / (prefix + std::to_string(::getpid()) + "-XXXXXX")).string();
  if (::mkdtemp(name.data()) == nullptr) {
    return nullptr;
  }
  std::unique_ptr<memory_folder> made{new memory_folder{name}};
  give_to_server(made->path());
  return made;
}

memory_folder::~memory_folder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

temp_postgres::temp_postgres(postgres_options options)
    : options_{std::move(options)},
      folder_{"lastdoor-pg"},
      memory_{options_.fsync ? nullptr : memory_folder::make()} {
  copy_cluster(data(), folder_.path() / "initdb.log");
  start();
}

temp_postgres::~temp_postgres() {
  // At once, but so that it removes its shared memory.
  process_->stop(SIGQUIT, std::chrono::seconds{10});
}

temp_postgres& temp_postgres::shared() {
  static temp_postgres cluster;
  return cluster;
}

std::string temp_postgres::url(const std::string& database) const {
  return "postgresql:///" + database +
         "?user=postgres&host=" + socket_folder().string() +
         "&port=" + std::to_string(port_);
}

std::string temp_postgres::tcp_url(const std::string& database,
                                   int port) const {
  return "postgresql://postgres@127.0.0.1:" +
         std::to_string(port == 0 ? port_ : port) + "/" + database +
         "?sslmode=disable";
}

fs::path temp_postgres::socket_folder() const { return folder_.path(); }
fs::path temp_postgres::data() const {
  return (memory_ ? memory_->path() : folder_.path()) / "data";
}
std::string temp_postgres::log() const {
  return text_of(folder_.path() / "server.log");
}

argument_list temp_postgres::command() const {
  argument_list all{programs() / "postgres", "-D", data()};
  const auto set = [&](const std::string& setting) {
    all.insert(all.end(), {"-c", setting});
  };
  set("unix_socket_directories=" + socket_folder().string());
  set("listen_addresses=127.0.0.1");
  set("port=" + std::to_string(port_));
  set(options_.fsync ? "fsync=on" : "fsync=off");
  set("max_connections=100");
  set("shared_buffers=16MB");
  // In files of the folder: killed servers leave nothing in /dev/shm.
  set("dynamic_shared_memory_type=mmap");
  set("autovacuum=off");
  set("restart_after_crash=on");
  set("log_line_prefix=%m %p %a ");
  for (const auto& setting : options_.settings) {
    set(setting);
  }
  return all;
}

void temp_postgres::start() {
  for (int attempt = 0; attempt < 5; ++attempt) {
    // The port is kept over restarts, so that URLs stay good.
    if (port_ == 0 || attempt > 0) {
      port_ = free_port();
    }
    process_ = std::make_unique<server_process>(command(),
                                                folder_.path() / "server.log");
    if (wait_until_ready()) {
      return;
    }
  }
  throw std::runtime_error{"Postgres does not start:\n" + log()};
}

bool temp_postgres::wait_until_ready() {
  const auto target = url("postgres");
  bool ready = false;
  (void)eventually(
      [&] {
        ready = PQping(target.c_str()) == PQPING_OK;
        return ready || process_->ended().has_value();
      },
      std::chrono::minutes{1});
  return ready;
}

void temp_postgres::stop() { process_->stop(SIGINT, std::chrono::minutes{1}); }

void temp_postgres::restart() {
  stop();
  start();
}

void temp_postgres::kill_hard() { process_->kill_all(); }

void temp_postgres::pause() {
  process_->signal(SIGSTOP);
  for (const pid_t child : process_->children()) {
    ::kill(child, SIGSTOP);
  }
}

void temp_postgres::resume() {
  for (const pid_t child : process_->children()) {
    ::kill(child, SIGCONT);
  }
  process_->signal(SIGCONT);
}

void temp_postgres::restart_on_new_timeline() {
  stop();
  const fs::path signal = data() / "recovery.signal";
  std::ofstream{signal}.put('\n');
  give_to_server(signal);
  const auto before = options_.settings;
  options_.settings.emplace_back("restore_command=false");
  start();
  options_.settings = before;
  // A standby answers before it has been promoted.
  sql_session session{url("postgres")};
  if (!eventually(
          [&] { return session.value("SELECT pg_is_in_recovery()") == "f"; },
          std::chrono::minutes{1})) {
    throw std::runtime_error{"Postgres stays in recovery:\n" + log()};
  }
}

temp_database::temp_database(temp_postgres& server)
    : server_{server}, name_{random_name()} {
  sql_session{server_.url("postgres")}.query("CREATE DATABASE " + name_);
}

temp_database::~temp_database() {
  try {
    sql_session{server_.url("postgres")}.query("DROP DATABASE " + name_ +
                                               " WITH (FORCE)");
  } catch (const std::exception&) {
    // The server is down, and the database goes with the cluster.
  }
}

rows temp_database::query(const std::string& sql) const {
  return sql_session{url()}.query(sql);
}

std::string temp_database::value(const std::string& sql) const {
  return sql_session{url()}.value(sql);
}

}  // namespace lastdoor::support
