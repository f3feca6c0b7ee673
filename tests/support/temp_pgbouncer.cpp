#include "support/temp_pgbouncer.hpp"

#include <libpq-fe.h>

#include <fstream>
#include <stdexcept>

namespace lastdoor::support {

namespace fs = std::filesystem;

namespace {

fs::path find_program() {
  std::error_code ignored;
  for (const char* path : {"/usr/sbin/pgbouncer", "/usr/bin/pgbouncer",
                           "/usr/local/bin/pgbouncer"}) {
    if (fs::exists(path, ignored)) {
      return path;
    }
  }
  return {};
}

}  // namespace

std::string pgbouncer_missing() {
  return find_program().empty() ? "PgBouncer is not installed" : "";
}

temp_pgbouncer::temp_pgbouncer(temp_postgres& server, pgbouncer_options options)
    : folder_{"lastdoor-pgb"}, port_{free_port()} {
  const fs::path config = folder_.path() / "pgbouncer.ini";
  std::ofstream{config} << "[databases]\n* = host="
                        << server.socket_folder().string()
                        << " port=" << server.port() << " user=postgres\n"
                        << "[pgbouncer]\nlisten_addr =\nunix_socket_dir = "
                        << folder_.path().string()
                        << "\nlisten_port = " << port_
                        << "\nauth_type = any\npool_mode = "
                        << options.pool_mode
                        << "\ndefault_pool_size = " << options.pool_size
                        << "\nignore_startup_parameters = "
                           "extra_float_digits,options\n";
  give_to_server(config);
  const fs::path log = folder_.path() / "log";
  process_ = std::make_unique<server_process>(
      argument_list{find_program(), config}, log);
  const auto target = url("postgres");
  if (!eventually([&] { return PQping(target.c_str()) == PQPING_OK; })) {
    throw std::runtime_error{"PgBouncer does not start:\n" + text_of(log)};
  }
}

std::string temp_pgbouncer::url(const std::string& database) const {
  return "postgresql:///" + database +
         "?user=postgres&host=" + folder_.path().string() +
         "&port=" + std::to_string(port_);
}

}  // namespace lastdoor::support
