// A work queue in a Postgres table: SKIP LOCKED hands each job to one worker,
// and its token keeps out a worker that was too slow.
//
//   example_postgres_work_queue postgresql://USER@HOST/DATABASE
//
// Makes the table jobs there, and lastdoor's own.
#include <fmt/format.h>

#include <iostream>
#include <lastdoor/locks/postgres.hpp>
#include <lastdoor/locks/postgres_transaction.hpp>
#include <lastdoor/migrate.hpp>
#include <map>
#include <mutex>
#include <pqxx/connection>
#include <pqxx/result>
#include <pqxx/transaction>
#include <string>
#include <thread>
#include <vector>

namespace pg = lastdoor::postgres;

namespace {

constexpr int jobs_made = 60;
constexpr int workers = 4;

// Free, or taken so long ago that its worker must be presumed dead.
const pg::job_queue queue{
    .table = "jobs",
    .ready =
        "done_by IS NULL AND (taken_at IS NULL OR "
        "taken_at < clock_timestamp() - interval '10 minutes')",
    .order_by = "id"};

void prepare(const std::string& url) {
  pg::migrate_up(url).value();
  // The counter of tokens is bound to this server when locks are first opened.
  lastdoor::open_postgres_backend(url).value();
  pqxx::connection db{url};
  pqxx::work tx{db};
  tx.exec("DROP TABLE IF EXISTS jobs");
  tx.exec(
      "CREATE TABLE jobs (id integer PRIMARY KEY, token bigint, "
      "taken_at timestamptz, done_by text)");
  tx.exec(
      fmt::format("INSERT INTO jobs SELECT generate_series(1, {})", jobs_made));
  tx.commit();
}

// Takes one job and notes its token in the row. From the commit on the token
// is final, and the row stays ours without a lock that is held open.
std::optional<pg::claimed_job> take(pqxx::connection& db) {
  pqxx::work tx{db};
  auto job = pg::claim_job(tx, queue).value();
  if (job) {
    tx.exec(
        fmt::format("UPDATE jobs SET token = {}, "
                    "taken_at = clock_timestamp() WHERE id = {}",
                    job->token.value(), job->key));
    tx.commit();
  }
  return job;
}

// The last door: only the newest token of a job finishes it.
bool finish(pqxx::connection& db, const pg::claimed_job& job,
            const std::string& who) {
  pqxx::work tx{db};
  const auto done = tx.exec(
      fmt::format("UPDATE jobs SET done_by = {} WHERE id = {} AND token = {}",
                  tx.quote(who), job.key, job.token.value()));
  tx.commit();
  return done.affected_rows() == 1;
}

// How often each job was worked on.
std::map<std::string, int> work_all(const std::string& url) {
  std::map<std::string, int> worked;
  std::mutex mutex;
  std::vector<std::thread> threads;
  for (int i = 1; i <= workers; ++i) {
    threads.emplace_back([&, name = fmt::format("worker {}", i)] {
      pqxx::connection db{url};
      while (const auto job = take(db)) {
        {
          const std::lock_guard lock{mutex};
          ++worked[job->key];
        }
        finish(db, *job, name);
      }
    });
  }
  for (auto& t : threads) {
    t.join();
  }
  return worked;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::cerr << "example_postgres_work_queue postgresql://...\n";
    return 2;
  }
  const std::string url = argv[1];
  prepare(url);

  // One worker takes a job and stalls. After a while it is given up, and the
  // others get the job with a higher token.
  pqxx::connection slow{url};
  const auto stalled = take(slow).value();
  {
    pqxx::work tx{slow};
    tx.exec(fmt::format("UPDATE jobs SET taken_at = '-infinity' WHERE id = {}",
                        stalled.key));
    tx.commit();
  }

  const auto worked = work_all(url);
  bool once = worked.size() == jobs_made;
  for (const auto& [job, times] : worked) {
    once = once && times == 1;
  }
  const bool late = finish(slow, stalled, "the stalled one");

  fmt::print("{} jobs, each handed to one of {} workers: {}\n", worked.size(),
             workers, once ? "yes" : "NO");
  fmt::print("job {} finished late with token {}: {}\n", stalled.key,
             stalled.token.value(), late ? "ACCEPTED" : "refused");
  return once && !late ? 0 : 1;
}
