#include "support/pg_ledger.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <stdexcept>

#include "support/server_process.hpp"

namespace lastdoor::support {

psql_answer run_shell(const std::string& command) {
  const temp_folder folder{"shell"};
  const auto script = folder.path() / "script.sh";
  std::ofstream{script} << command << '\n';
  const auto line = "/bin/sh '" + script.string() + "' 2>&1 </dev/null";
  std::FILE* const out = ::popen(line.c_str(), "re");
  if (out == nullptr) {
    throw std::runtime_error{"the shell did not start"};
  }
  psql_answer answer;
  std::array<char, 4096> buffer{};
  while (const auto n = std::fread(buffer.data(), 1, buffer.size(), out)) {
    answer.text.append(buffer.data(), n);
  }
  const int status = ::pclose(out);
  answer.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return answer;
}

psql_answer psql(const std::string& url, const std::string& sql) {
  const temp_folder folder{"psql"};
  const auto script = folder.path() / "script.sql";
  std::ofstream{script} << "\\set ON_ERROR_STOP on\n"
                        << "\\set VERBOSITY verbose\n"
                        << sql << '\n';
  return run_shell("psql -X -q -A -t '" + url + "' -f '" + script.string() +
                   "'");
}

std::string arguments_of(const testing::terms& w) {
  return "'" + w.resource + "', " + std::to_string(w.token) + ", '" +
         std::string(40, w.owner) + "', '" + w.source + "'";
}

ledger_database::ledger_database(temp_postgres& server)
    : temp_database{server} {
  (void)postgres::migrate_up(url()).value();
}

void ledger_database::fence(const std::string& table, guard_mode guard) const {
  (void)postgres::add_fence(url(), {.table = table, .guard = guard}).value();
}

postgres_store ledger_database::open(postgres_store_options o) const {
  return open_postgres_store(url(), std::move(o)).value();
}

psql_answer ledger_database::shell_as(const testing::terms& w,
                                      const std::string& sql) const {
  return shell("BEGIN;\nSELECT lastdoor.present(" + arguments_of(w) + ");\n" +
               sql + "\nCOMMIT;");
}

}  // namespace lastdoor::support
