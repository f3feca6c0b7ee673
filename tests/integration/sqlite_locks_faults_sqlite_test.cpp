// Leases in an SQLite file: power cuts, broken disks, spoilt files, forks.
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <functional>
#include <optional>
#include <random>

#include "drivers/database_path.hpp"
#include "drivers/sqlite.hpp"
#include "support/recording_vfs.hpp"
#include "support/sqlite_lock_parts.hpp"

namespace lastdoor::testing {
namespace {

using namespace std::chrono_literals;

// Runs `body` in a process of its own; true when it returned true there.
bool in_child(const std::function<bool()>& body) {
  child_process<int> child{
      [&](const auto& /*report*/) { return body() ? 0 : 1; }};
  return child.wait() == 0;
}

class SqliteLockFaults : public ::testing::Test {
 protected:
  temp_folder folder;
  const std::string path = folder / "locks.db";
};

// Grants, then cuts the power and goes on with what the disk has.
void grant_through_power_cuts(const temp_folder& folder, std::string file,
                              std::uint64_t at_most) {
  std::mt19937_64 random{test_seed()};
  std::int64_t highest = 0;
  for (int cut = 0; cut < 6; ++cut) {
    SCOPED_TRACE("power cut " + std::to_string(cut));
    {
      auto a = open_locks(file, {}, "boot " + std::to_string(cut));
      const auto grants = 1 + random() % at_most;
      for (std::uint64_t i = 0; i < grants; ++i) {
        auto g = a.acquire("r" + std::to_string(i), 60s);
        ASSERT_EQ(outcome_of(g), "ok");
        ASSERT_GT(g->token().value(), highest);
        highest = g->token().value();
      }
      // Right after a grant, and while the file is open: closing it would
      // sync.
      const auto left = folder / ("cut" + std::to_string(cut) + ".db");
      recording_vfs::power_cut(file, left);
      file = left;
    }
    EXPECT_EQ(raw_sqlite{file}.text("PRAGMA integrity_check"), "ok|");
  }
}

TEST_F(SqliteLockFaults, G8_PowerCutsRepeatNoToken) {
  recording_vfs::install();
  grant_through_power_cuts(folder, path, 1300);
}

TEST_F(SqliteLockFaults, G8_PowerCutsRepeatNoTokenWithoutALog) {
  recording_vfs::install();
  raw_sqlite{path}.run(
      "PRAGMA synchronous = EXTRA; PRAGMA journal_mode = DELETE;"
      "CREATE TABLE t (x)");
  grant_through_power_cuts(folder, path, 2);
}

TEST_F(SqliteLockFaults, GrantsDoNotWaitForTheDisk) {
  auto& disk = recording_vfs::install();
  auto a = open_locks(path);
  ASSERT_EQ(outcome_of(a.acquire("first", 60s)), "ok");
  disk.syncs = 0;
  for (int i = 0; i < 200; ++i) {
    auto g = a.acquire("r", 60s);
    ASSERT_EQ(outcome_of(g), "ok");
    ASSERT_EQ(outcome_of(a.renew(*g, 60s)), "ok");
    ASSERT_EQ(outcome_of(a.release(*g)), "ok");
  }
  EXPECT_EQ(disk.syncs, 0);
  ASSERT_EQ(outcome_of(a.backend().raise_floor(
                mark{fencing_token::from(5000).value()})),
            "ok");
  EXPECT_EQ(disk.syncs, 1);
}

TEST_F(SqliteLockFaults, EachCommitIsSyncedWithoutALog) {
  auto& disk = recording_vfs::install();
  raw_sqlite{path}.run("PRAGMA journal_mode = DELETE; CREATE TABLE t (x)");
  auto a = open_locks(path);
  for (int i = 0; i < 3; ++i) {
    disk.syncs = 0;
    auto g = a.acquire("r", 60s);
    ASSERT_EQ(outcome_of(g), "ok");
    EXPECT_GE(disk.syncs, 2) << "the journal and the file";
    ASSERT_EQ(outcome_of(a.release(*g)), "ok");
  }
}

TEST_F(SqliteLockFaults, ReservationThatCannotBeSyncedGrantsNothing) {
  auto& disk = recording_vfs::install();
  auto a = open_locks(path);
  disk.fail_syncs = true;
  auto refused = a.acquire("r", 60s);
  EXPECT_EQ(outcome_of(refused), "unavailable") << "and it was undone";
  EXPECT_FALSE(a.inspect("r").held);
  disk.fail_syncs = false;
  auto granted = a.acquire("r", 60s);
  ASSERT_EQ(outcome_of(granted), "ok");
  EXPECT_EQ(granted->token().value(), 1);
}

TEST_F(SqliteLockFaults, FailedWritesAreInDoubtOrUndone) {
  auto& disk = recording_vfs::install();
  auto a = open_locks(path);
  auto g = a.acquire("r", 60s);
  ASSERT_EQ(outcome_of(g), "ok");
  disk.fail_writes = true;
  EXPECT_EQ(outcome_of(a.renew(*g, 10min)), "in_doubt");
  EXPECT_EQ(outcome_of(a.release(*g)), "in_doubt");
  EXPECT_EQ(outcome_of(a.acquire("s", 60s)), "unavailable");
  disk.fail_writes = false;
  EXPECT_TRUE(a.inspect("r").held);
  EXPECT_FALSE(a.inspect("s").held);
  EXPECT_EQ(outcome_of(a.renew(*g, 10min)), "ok");
  EXPECT_EQ(outcome_of(a.release(*g)), "ok");
}

// Any process that is not allowed to write, also when the tests run as root.
bool as_nobody(const std::function<bool()>& body) {
  return in_child([&] {
    if (::getuid() == 0 && (::setgid(65534) != 0 || ::setuid(65534) != 0)) {
      return false;
    }
    return body();
  });
}

TEST_F(SqliteLockFaults, FileThatMayNotBeWrittenIsMisconfigured) {
  open_locks(path);
  ::chmod(path.c_str(), 0444);
  ::chmod(folder.path().c_str(), 0755);
  const auto refuses = [&](const std::string& file) {
    return as_nobody([&] {
      const auto opened = open_sqlite_backend(file);
      return !opened && opened.code() == errc::misconfigured;
    });
  };
  EXPECT_TRUE(refuses(path));
  EXPECT_TRUE(refuses(folder / "new.db")) << "the folder may not be written";
  EXPECT_TRUE(refuses(folder / "no/such/folder.db"));
  EXPECT_FALSE(std::filesystem::exists(folder / "new.db"));
}

TEST_F(SqliteLockFaults, FileThatIsNoDatabaseIsMisconfigured) {
  std::ofstream{path} << std::string(5000, 'x');
  EXPECT_EQ(outcome_of(open_sqlite_backend(path)), "misconfigured");
  EXPECT_EQ(outcome_of(open_sqlite_backend(folder.path())), "misconfigured");
  EXPECT_EQ(outcome_of(open_sqlite_backend("")), "invalid_argument");
}

TEST_F(SqliteLockFaults, SpoiltPagesAreDamaged) {
  open_locks(path);
  const auto size = std::filesystem::file_size(path);
  scribble(path, 100, size - 100);  // all but the header
  EXPECT_EQ(outcome_of(open_sqlite_backend(path)), "damaged");
}

TEST_F(SqliteLockFaults, PageSpoiltUnderAnOpenServiceIsDamaged) {
  {
    auto a = open_locks(path);
    for (int i = 0; i < 200; ++i) {
      a.acquire("r" + std::to_string(i), 60s).value();
    }
  }
  const auto leaf = raw_sqlite{path}.text(
      "SELECT rootpage FROM sqlite_schema WHERE name = 'lastdoor_leases'");
  scribble(path, (std::stol(leaf) - 1) * 4096, 4096);
  auto a = open_locks(path);
  EXPECT_EQ(outcome_of(a.acquire("r7", 60s)), "damaged");
}

// Fills up what space there is; the answers are those of a full disk.
bool full_disk_is_survived(const std::string& file,
                           const std::function<void(bool)>& fill) {
  auto a = open_locks(file);
  auto held = a.acquire("held", 10min);
  if (!held) {
    return false;
  }
  fill(true);
  std::int64_t last = held->token().value();
  result<grant> refused = fail(errc::internal, "");
  for (int i = 0; i < 5000; ++i) {
    refused = a.acquire("r" + std::to_string(i), 10min);
    if (!refused) {
      if (refused.code() != errc::unavailable ||
          a.inspect("r" + std::to_string(i)).held) {
        return false;
      }
      break;
    }
    last = refused->token().value();
  }
  if (refused || !a.inspect("held").held) {
    return false;
  }
  fill(false);
  auto again = a.acquire("again", 10min);
  return again && again->token().value() > last && a.release(*held) &&
         raw_sqlite{file}.text("PRAGMA integrity_check") == "ok|";
}

TEST_F(SqliteLockFaults, FullDiskGrantsNothingAndHeals) {
  const auto small = folder / "small";
  std::filesystem::create_directory(small);
  if (::mount("tmpfs", small.c_str(), "tmpfs", 0, "size=1m") != 0) {
    GTEST_LOG_(INFO) << "no right to mount; the file size limit stands in";
    return;
  }
  const auto ballast = small + "/ballast";
  EXPECT_TRUE(full_disk_is_survived(small + "/locks.db", [&](bool full) {
    if (full) {
      std::ofstream{ballast} << std::string(2'000'000, 'x');
    } else {
      std::filesystem::remove(ballast);
    }
  }));
  EXPECT_EQ(::umount(small.c_str()), 0);
}

TEST_F(SqliteLockFaults, FileSizeLimitGrantsNothingAndHeals) {
  EXPECT_TRUE(in_child([&] {
    ::signal(SIGXFSZ, SIG_IGN);
    return full_disk_is_survived(path, [](bool full) {
      rlimit limit{};
      ::getrlimit(RLIMIT_FSIZE, &limit);
      limit.rlim_cur = full ? 200'000 : limit.rlim_max;
      ::setrlimit(RLIMIT_FSIZE, &limit);
    });
  }));
}

TEST_F(SqliteLockFaults, DeletedOrReplacedFileIsNoticed) {
  auto a = open_locks(path);
  auto g = a.acquire("r", 60s);
  ASSERT_EQ(outcome_of(g), "ok");
  std::filesystem::rename(path, folder / "moved.db");
  EXPECT_EQ(outcome_of(a.acquire("s", 60s)), "misconfigured");
  EXPECT_EQ(outcome_of(a.renew(*g, 60s)), "misconfigured");
  std::ofstream{path} << "";
  EXPECT_EQ(outcome_of(a.acquire("s", 60s)), "misconfigured");
  std::filesystem::rename(folder / "moved.db", path);
  EXPECT_EQ(outcome_of(a.acquire("s", 60s)), "ok");
}

TEST_F(SqliteLockFaults, S10_ForkedChildTouchesNothingOfTheParents) {
  auto a = open_locks(path);
  auto g = a.acquire("r", 60s);
  ASSERT_EQ(outcome_of(g), "ok");
  EXPECT_TRUE(in_child([&] {
    auto inherited = std::move(a);  // is destroyed in the child
    return outcome_of(inherited.renew(*g, 60s)) == "misconfigured" &&
           outcome_of(inherited.release(*g)) == "misconfigured" &&
           outcome_of(inherited.acquire("s", 60s)) == "misconfigured";
  }));
  EXPECT_EQ(outcome_of(a.renew(*g, 60s)), "ok");
  EXPECT_EQ(outcome_of(a.release(*g)), "ok");
}

TEST_F(SqliteLockFaults, S10_FileIsNotOpenedTwiceAcrossAFork) {
  std::optional<contender> a{open_locks(path)};
  const auto opens = [&](const std::string& file) {
    return in_child([&] { return open_sqlite_backend(file).has_value(); });
  };
  EXPECT_FALSE(opens(path)) << "SQLite would take no locks there";
  EXPECT_TRUE(opens(folder / "another.db"));
  a.reset();
  EXPECT_TRUE(opens(path)) << "nobody had it open at the fork";
}

TEST_F(SqliteLockFaults, R26_KilledWritersLeaveAnIntactFile) {
  std::mt19937_64 random{test_seed()};
  for (int i = 0; i < 20; ++i) {
    child_process<int> client{[&](const auto& report) {
      auto a = open_locks(path);
      report(0);
      for (int n = 0;; ++n) {
        const auto name = std::to_string(i) + "/" + std::to_string(n);
        auto g = a.acquire(name, 10min);
        a.release(g.value()).value();
      }
      return 0;
    }};
    ASSERT_TRUE(client.next().has_value());
    pause_for(std::chrono::microseconds{random() % 5000});
    client.kill();
    raw_sqlite db{path};
    ASSERT_EQ(db.text("PRAGMA integrity_check"), "ok|");
    EXPECT_EQ(db.text("SELECT count(*) FROM lastdoor_leases AS l, "
                      "lastdoor_counters AS c WHERE l.token > c.value"),
              "0|");
  }
}

TEST(SqliteDriver, S07_NetworkFileSystemsAreKnown) {
  using sqlite_driver::is_network_file_system;
  for (const std::int64_t magic :
       {0x6969LL, 0x517BLL, 0xFE534D42LL, 0xFF534D42LL, 0x01021997LL,
        0x65735546LL, 0x00C36400LL, 0x73757245LL}) {
    EXPECT_TRUE(is_network_file_system(magic)) << std::hex << magic;
    // A 32-bit field that was widened with its sign.
    EXPECT_TRUE(is_network_file_system(
        static_cast<std::int32_t>(static_cast<std::uint32_t>(magic))));
  }
  for (const std::int64_t magic :
       {0xEF53LL, 0x01021994LL, 0x58465342LL, 0x9123683ELL, 0x794C7630LL}) {
    EXPECT_FALSE(is_network_file_system(magic)) << std::hex << magic;
  }
}

}  // namespace
}  // namespace lastdoor::testing
