#include "runtime/profile_store.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <thread>

#include "base/error.h"
#include "base/hash.h"

namespace outrider {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

ProfileKey key_of(int n) {
  return {.files = {{.name = "model", .header_hash = "aa", .bytes = 10, .modified_ns = 20}},
          .processor = "Processor",
          .n_processors = 2,
          .instruction_set = "avx2",
          .n_threads = n,
          .cache_type = "f16",
          .drafters = {"lookup"},
          .settings = {}};
}

// Every part of it says n, over more than a page of the file.
Json document_of(int n) {
  return {{"n", n}, {"list", std::vector<int>(1500, n)}, {"third", n / 3.0}};
}

std::string content(const fs::path& file) {
  std::ifstream stream(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

void write(const fs::path& file, const std::string& bytes) {
  std::ofstream(file, std::ios::binary) << bytes;
}

// Changes the file behind the store's back.
void run_sql(const fs::path& file, const char* statements) {
  sqlite3* connection = nullptr;
  ASSERT_EQ(sqlite3_open(file.c_str(), &connection), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(connection, statements, nullptr, nullptr, nullptr), SQLITE_OK)
      << sqlite3_errmsg(connection);
  sqlite3_close(connection);
}

std::string sha256_of(std::string_view text) {
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.hex();
}

// Ends the process when `work` is done; its status says whether work returned true.
pid_t start_process(const std::function<bool()>& work) {
  const pid_t process = fork();
  if (process != 0) return process;
  bool is_well = false;
  try {
    is_well = work();
  } catch (...) {
  }
  _exit(is_well ? 0 : 1);
}

bool ends_well(pid_t process) {
  int status = 0;
  return waitpid(process, &status, 0) == process && status == 0;
}

struct ProfileStoreTest : ::testing::Test {
  void SetUp() override {
    std::string path = ::testing::TempDir() + "/profiles_XXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    folder = path;
    file = folder / "profiles.db";
    aside = folder / "profiles.db.damaged";
  }
  void TearDown() override {
    fs::permissions(folder, fs::perms::owner_all);
    fs::remove_all(folder);
  }
  Progress progress() {
    Progress progress;
    progress.note = [this](std::string_view line) { notes.emplace_back(line); };
    progress.detail = [this](std::string_view line) { details.emplace_back(line); };
    return progress;
  }
  ProfileStore store() { return {file, progress()}; }
  // A new file with profiles 1 to n, of which n was used last.
  void begin_with(int n) {
    fs::remove(file);
    for (int i = 1; i <= n; ++i) store().keep(key_of(i), document_of(i));
  }
  void forget_lines() {
    notes.clear();
    details.clear();
  }

  fs::path folder, file, aside;
  std::vector<std::string> notes, details;
};

TEST_F(ProfileStoreTest, WhatIsKeptIsFound) {
  ProfileStore first = store();
  first.keep(key_of(1), document_of(1));
  first.keep(key_of(2), document_of(2));
  EXPECT_EQ(first.find(key_of(1)), document_of(1));
  first.keep(key_of(1), {{"another", 0.1}});
  ProfileStore second = store();
  EXPECT_EQ(second.find(key_of(1)), Json({{"another", 0.1}}));
  EXPECT_EQ(second.find(key_of(2)), document_of(2));
  EXPECT_EQ(second.find(key_of(3)), std::nullopt);

  const std::vector<ProfileStore::Entry> entries = first.entries();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].document, document_of(2));  // used last
  EXPECT_EQ(entries[0].key.files[0].name, "model");
  EXPECT_EQ(entries[0].schema, kProfileSchema);
  EXPECT_GT(entries[0].bytes, document_of(2).dump().size());
  const auto age = std::chrono::system_clock::now() - entries[0].used;
  EXPECT_LT(std::chrono::abs(age), std::chrono::hours(1));

  EXPECT_EQ(second.clear(), 2);
  EXPECT_EQ(first.find(key_of(2)), std::nullopt);
  EXPECT_TRUE(first.entries().empty());
  EXPECT_EQ(notes.size() + details.size(), 0u);
}

TEST_F(ProfileStoreTest, ReadingMakesNoFile) {
  EXPECT_EQ(store().find(key_of(1)), std::nullopt);
  EXPECT_TRUE(store().entries().empty());
  EXPECT_EQ(store().clear(), 0);
  EXPECT_TRUE(fs::is_empty(folder));
  file = folder / "not" / "there" / "profiles.db";
  EXPECT_EQ(store().find(key_of(1)), std::nullopt);
  EXPECT_EQ(notes.size() + details.size(), 0u);
  store().keep(key_of(1), document_of(1));  // makes the folder
  EXPECT_EQ(store().find(key_of(1)), document_of(1));
}

TEST_F(ProfileStoreTest, EveryDifferenceOfKeysIsAnotherProfile) {
  begin_with(1);
  using Change = std::function<void(ProfileKey&)>;
  const Change changes[] = {
      [](ProfileKey& key) { key.files[0].header_hash = "ab"; },
      [](ProfileKey& key) { key.files[0].bytes = 11; },
      [](ProfileKey& key) { key.files[0].modified_ns = 21; },
      [](ProfileKey& key) { key.processor = "other"; },
      [](ProfileKey& key) { key.n_processors = 9; },
      [](ProfileKey& key) { key.instruction_set = "avx512"; },
      [](ProfileKey& key) { key.n_threads = 2; },
      [](ProfileKey& key) { key.cache_type = "q8_0"; },
      [](ProfileKey& key) { key.drafters = {"model"}; },
      [](ProfileKey& key) {
        key.settings = {{"--draft-rows", "8"}};
      },
  };
  int n = 1;
  for (const Change& change : changes) {
    ProfileKey key = key_of(1);
    change(key);
    EXPECT_EQ(store().find(key), std::nullopt) << n;
    store().keep(key, document_of(++n));
    EXPECT_EQ(store().find(key), document_of(n));
  }
  EXPECT_EQ(store().find(key_of(1)), document_of(1));
  EXPECT_EQ(store().entries().size(), std::size(changes) + 1);
}

TEST_F(ProfileStoreTest, ADocumentOfAnotherFormIsNotFound) {
  begin_with(1);
  run_sql(file, "UPDATE profiles SET schema = schema + 1");
  EXPECT_EQ(store().find(key_of(1)), std::nullopt);
  store().keep(key_of(1), document_of(2));
  EXPECT_EQ(store().find(key_of(1)), document_of(2));
  ASSERT_EQ(store().entries().size(), 2u);  // the other version still finds its own
  EXPECT_EQ(store().entries()[1].schema, kProfileSchema + 1);
  EXPECT_TRUE(notes.empty());
}

TEST_F(ProfileStoreTest, TheLeastRecentlyUsedMakeRoom) {
  ProfileStore store = this->store();
  for (int i = 1; i <= kProfilesMax; ++i) store.keep(key_of(i), i);
  EXPECT_TRUE(store.find(key_of(1)));
  store.keep(key_of(1000), 0);
  store.keep(key_of(1001), 0);
  std::set<int> left;
  for (const ProfileStore::Entry& entry : store.entries()) left.insert(entry.key.n_threads);
  EXPECT_EQ(left.size(), static_cast<std::size_t>(kProfilesMax));
  for (const int n : {1, 4, kProfilesMax, 1000, 1001}) EXPECT_TRUE(left.contains(n)) << n;
  for (const int n : {2, 3}) EXPECT_FALSE(left.contains(n)) << n;
}

TEST_F(ProfileStoreTest, ADamagedFileIsMovedAsideAndBegunAnew) {
  struct Case {
    const char* name;
    std::function<void()> damage;
  };
  const Case cases[] = {
      {"text", [&] { write(file, "These are no profiles, only text.\n"); }},
      {"zeros", [&] { write(file, std::string(8192, '\0')); }},
      {"its head alone", [&] { fs::resize_file(file, 100); }},
      {"cut off", [&] { fs::resize_file(file, 3 * 4096 + 5); }},
      {"another program's tables",
       [&] {
         fs::remove(file);
         run_sql(file, "CREATE TABLE profiles (id TEXT)");
       }},
      {"another column", [&] { run_sql(file, "ALTER TABLE profiles ADD COLUMN more TEXT"); }},
      {"a trigger",
       [&] {
         run_sql(file, "CREATE TRIGGER t AFTER INSERT ON profiles BEGIN DELETE FROM profiles; END");
       }},
      {"a profile's document",
       [&] { run_sql(file, "UPDATE profiles SET document = replace(document, '1', '2')"); }},
      {"a profile's key", [&] { run_sql(file, "UPDATE profiles SET key = '{}'"); }},
      {"a time that no clock shows", [&] { run_sql(file, "UPDATE profiles SET used = 1 << 40"); }},
      {"a profile that is sound and has no key",
       [&] {
         run_sql(file, fmt::format("UPDATE profiles SET key = '{{}}', document = '1', checksum = "
                                   "'{}'",
                                   sha256_of("{}\n1"))
                           .c_str());
       }},
  };
  const std::pair<const char*, std::function<void()>> uses[] = {
      {"find", [&] { EXPECT_EQ(store().find(key_of(1)), std::nullopt); }},
      {"entries", [&] { EXPECT_TRUE(store().entries().empty()); }},
  };
  for (const Case& c : cases) {
    for (const auto& [use, look] : uses) {
      SCOPED_TRACE(fmt::format("{}, {}", c.name, use));
      forget_lines();
      begin_with(3);
      c.damage();
      const std::string damaged = content(file);
      look();
      EXPECT_TRUE(content(aside) == damaged);
      ASSERT_EQ(notes.size(), 1u);
      EXPECT_NE(notes[0].find("profiles.db: damaged ("), std::string::npos) << notes[0];
      EXPECT_EQ(notes[0].find('\n'), std::string::npos);
      store().keep(key_of(4), document_of(4));
      EXPECT_EQ(store().find(key_of(4)), document_of(4));
      EXPECT_EQ(store().entries().size(), 1u);
      EXPECT_EQ(notes.size() + details.size(), 1u);
    }
  }
  // The older damaged file gave way each time; clear() removes it.
  EXPECT_EQ(store().clear(), 1);
  EXPECT_FALSE(fs::exists(aside));
}

TEST_F(ProfileStoreTest, KeepingReplacesADamagedFileToo) {
  write(file, "These are no profiles, only text.\n");
  store().keep(key_of(1), document_of(1));
  EXPECT_EQ(store().find(key_of(1)), document_of(1));
  EXPECT_EQ(notes.size(), 1u);
  EXPECT_TRUE(fs::exists(aside));
}

// An index and its table that disagree; find() reads neither place.
TEST_F(ProfileStoreTest, KeepingAndListingLookAtAllOfTheFile) {
  const std::string id = id_of(key_of(2));
  for (const bool in_second_place : {false, true}) {
    for (const bool keeps : {false, true}) {
      SCOPED_TRACE(fmt::format("{} {}", in_second_place, keeps));
      begin_with(3);
      forget_lines();
      std::string bytes = content(file);
      std::size_t at = bytes.find(id);
      if (in_second_place) at = bytes.find(id, at + 1);
      ASSERT_NE(at, bytes.npos);
      bytes[at] = bytes[at] == '0' ? '1' : '0';
      write(file, bytes);
      EXPECT_TRUE(store().find(key_of(1)) == document_of(1));
      EXPECT_TRUE(notes.empty());
      if (keeps) store().keep(key_of(4), document_of(4));
      EXPECT_EQ(store().entries().size(), keeps ? 1u : 0u);
      EXPECT_EQ(notes.size(), 1u);
    }
  }
}

// What a process leaves that ends between making the file and writing into it.
TEST_F(ProfileStoreTest, AnEmptyFileIsANewOne) {
  write(file, "");
  EXPECT_EQ(store().find(key_of(1)), std::nullopt);
  EXPECT_TRUE(store().entries().empty());
  EXPECT_EQ(store().clear(), 0);
  store().keep(key_of(1), document_of(1));
  EXPECT_EQ(store().find(key_of(1)), document_of(1));
  EXPECT_EQ(notes.size() + details.size(), 0u);
}

// A file with profiles 1 to 8 of which something is lost: what is found is right all the same, the
// damage is noticed once at most, and then profiles can be kept. Returns whether it was noticed.
bool expect_nothing_wrong(ProfileStoreTest& test, const std::string& bytes) {
  test.forget_lines();
  write(test.file, bytes);
  ProfileStore store = test.store();
  for (int n = 1; n <= 8; ++n) {
    const auto found = store.find(key_of(n));
    EXPECT_TRUE(!found || *found == document_of(n)) << n;
  }
  for (const ProfileStore::Entry& entry : store.entries())
    EXPECT_TRUE(entry.document == document_of(entry.key.n_threads));
  store.keep(key_of(9), document_of(9));
  EXPECT_TRUE(store.find(key_of(9)) == document_of(9));
  EXPECT_TRUE(test.details.empty()) << test.details[0];
  EXPECT_LE(test.notes.size(), 1u);
  return !test.notes.empty();
}

TEST_F(ProfileStoreTest, AFileCutAnywhereGivesNothingWrong) {
  begin_with(8);
  const std::string whole = content(file);
  std::mt19937 random(1);
  for (int i = 0; i < 50; ++i) {
    const std::size_t length = random() % whole.size();
    SCOPED_TRACE(length);
    const bool is_noticed = expect_nothing_wrong(*this, whole.substr(0, length));
    const std::size_t last_page = whole.size() - 4096;  // which may have ended in zeros
    if (length > 0 && length <= last_page) {
      EXPECT_TRUE(is_noticed);
    }
  }
}

TEST_F(ProfileStoreTest, AFileOverwrittenAnywhereGivesNothingWrong) {
  begin_with(8);
  const std::string whole = content(file);
  std::mt19937 random(2);
  int n_noticed = 0;
  for (int i = 0; i < 100; ++i) {
    std::string bytes = whole;
    const std::size_t length = 1 + random() % 300;
    std::size_t at = random() % bytes.size();
    if (i % 2 == 0) at %= 200;  // SQLite's header is small
    for (std::size_t b = at; b < std::min(at + length, bytes.size()); ++b)
      bytes[b] = static_cast<char>(random());
    SCOPED_TRACE(fmt::format("{} bytes at {}", length, at));
    n_noticed += static_cast<int>(expect_nothing_wrong(*this, bytes));
  }
  EXPECT_GT(n_noticed, 50);
}

TEST_F(ProfileStoreTest, ANewerVersionsFileStaysAsItIs) {
  begin_with(2);
  run_sql(file, "ALTER TABLE profiles ADD COLUMN more TEXT; PRAGMA user_version = 1000");
  const std::string before = content(file);
  ProfileStore store = this->store();
  EXPECT_EQ(store.find(key_of(1)), std::nullopt);
  store.keep(key_of(1), document_of(1));
  EXPECT_EQ(store.find(key_of(1)), std::nullopt);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("newer version"), std::string::npos) << notes[0];
  EXPECT_THROW(store.entries(), Error);
  EXPECT_THROW(store.clear(), Error);
  EXPECT_TRUE(content(file) == before);
  EXPECT_FALSE(fs::exists(aside));
}

// Runs `work` as somebody who is not root, to whom permissions matter.
bool as_somebody(const std::function<bool()>& work) {
  return ends_well(start_process([&] {
    if (geteuid() == 0 && seteuid(65534) != 0) return false;
    return work();
  }));
}

TEST_F(ProfileStoreTest, AFileThatCannotBeWrittenIsStillRead) {
  begin_with(2);
  fs::permissions(file, fs::perms(0444));
  fs::permissions(folder, fs::perms(0555));
  const std::string before = content(file);
  EXPECT_TRUE(as_somebody([&] {
    ProfileStore store = this->store();
    const bool is_found = store.find(key_of(1)) == document_of(1);
    const bool is_quiet = details.empty();
    const bool are_listed = store.entries().size() == 2;
    store.keep(key_of(3), document_of(3));
    const bool is_one_line = details.size() == 1 && notes.empty();
    bool is_error = false;
    try {
      store.clear();
    } catch (const Error&) {
      is_error = true;
    }
    return is_found && is_quiet && are_listed && is_one_line && is_error && !store.find(key_of(1));
  }));
  EXPECT_TRUE(content(file) == before);
}

TEST_F(ProfileStoreTest, AFolderThatCannotBeWrittenIsDoneWithout) {
  for (const int mode : {0555, 0000}) {
    fs::permissions(folder, fs::perms(mode));
    EXPECT_TRUE(as_somebody([&] {
      ProfileStore store = this->store();
      for (int i = 0; i < 3; ++i) {
        if (store.find(key_of(1))) return false;
        store.keep(key_of(1), document_of(1));
      }
      return details.size() == 1 && notes.empty();
    })) << mode;
  }
  fs::permissions(folder, fs::perms::owner_all);
  EXPECT_TRUE(fs::is_empty(folder));
}

TEST_F(ProfileStoreTest, ADamagedFileThatCannotBeMovedIsDoneWithout) {
  write(file, "These are no profiles, only text.\n");
  fs::permissions(file, fs::perms(0666));
  fs::permissions(folder, fs::perms(0555));
  EXPECT_TRUE(as_somebody([&] {
    ProfileStore store = this->store();
    const bool is_nothing = !store.find(key_of(1));
    store.keep(key_of(1), document_of(1));
    return is_nothing && details.size() == 1 && notes.empty();
  }));
}

TEST_F(ProfileStoreTest, AFullDiskIsDoneWithout) {
  begin_with(2);
  const rlim_t size = fs::file_size(file);
  EXPECT_TRUE(ends_well(start_process([&] {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {size, size};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) return false;
    ProfileStore store = this->store();
    for (int i = 3; i < 6; ++i) store.keep(key_of(i), document_of(i));
    return details.size() == 1 && notes.empty();
  })));
  EXPECT_EQ(store().find(key_of(1)), document_of(1));
  EXPECT_EQ(store().entries().size(), 2u);
  EXPECT_TRUE(notes.empty());
}

TEST_F(ProfileStoreTest, AFolderInTheFilesPlaceIsDoneWithout) {
  fs::create_directory(file);
  ProfileStore store = this->store();
  store.keep(key_of(1), document_of(1));
  EXPECT_EQ(store.find(key_of(1)), std::nullopt);
  EXPECT_EQ(details.size(), 1u);
  EXPECT_TRUE(notes.empty());
  EXPECT_THROW(store.entries(), Error);
}

// Keeps and finds profiles of its own, and one that all share; true if all was as it should be.
bool use(const fs::path& file, int worker, int n_profiles) {
  std::vector<std::string> lines;
  Progress progress;
  progress.detail = [&](std::string_view line) { lines.emplace_back(line); };
  bool is_well = true;
  for (int i = 0; i < n_profiles; ++i) {
    ProfileStore store(file, progress);
    const int own = 1000 * worker + i;
    store.keep(key_of(own), document_of(own));
    store.keep(key_of(1), document_of(own));
    const auto found = store.find(key_of(own)), shared = store.find(key_of(1));
    is_well =
        is_well && found == document_of(own) && shared && *shared == document_of(shared->at("n"));
  }
  return is_well && lines.empty();
}

constexpr int kWorkers = 4, kProfilesEach = 15;

std::size_t n_expected() {
  return kWorkers * kProfilesEach + 1;
}

TEST_F(ProfileStoreTest, ProcessesAtTheSameTimeLoseNothing) {
  std::vector<pid_t> processes;
  for (int w = 1; w <= kWorkers; ++w)
    processes.push_back(start_process([&, w] { return use(file, w, kProfilesEach); }));
  for (const pid_t process : processes) EXPECT_TRUE(ends_well(process));
  EXPECT_EQ(store().entries().size(), n_expected());
  EXPECT_TRUE(notes.empty());
}

TEST_F(ProfileStoreTest, ThreadsAtTheSameTimeLoseNothing) {
  std::vector<std::thread> threads;
  std::array<bool, kWorkers + 1> are_well = {};
  for (int w = 1; w <= kWorkers; ++w)
    threads.emplace_back([&, w] { are_well[w] = use(file, w, kProfilesEach); });
  for (std::thread& thread : threads) thread.join();
  for (int w = 1; w <= kWorkers; ++w) EXPECT_TRUE(are_well[w]) << w;
  EXPECT_EQ(store().entries().size(), n_expected());
}

// One of them moves the damaged file, none moves the new one.
TEST_F(ProfileStoreTest, ProcessesThatMeetADamagedFileLoseNothing) {
  const std::string damaged = "These are no profiles, only text.\n";
  for (int round = 0; round < 10; ++round) {
    SCOPED_TRACE(round);
    fs::remove(file);
    fs::remove(aside);
    write(file, damaged);
    int start[2];
    ASSERT_EQ(pipe(start), 0);
    std::vector<pid_t> processes;
    for (int w = 1; w <= kWorkers; ++w) {
      processes.push_back(start_process([&, w] {
        close(start[1]);
        char byte;
        if (read(start[0], &byte, 1) != 0) return false;  // until all processes are there
        return use(file, w, 2);
      }));
    }
    close(start[0]);
    close(start[1]);
    for (const pid_t process : processes) EXPECT_TRUE(ends_well(process));
    EXPECT_EQ(store().entries().size(), kWorkers * 2 + 1u);
    EXPECT_TRUE(content(aside) == damaged);
    EXPECT_TRUE(notes.empty());
  }
}

TEST_F(ProfileStoreTest, AProcessThatIsKilledLeavesAWholeFile) {
  std::mt19937 random(3);
  for (int round = 0; round < 15; ++round) {
    const pid_t process = start_process([&] {
      for (int i = 0; i < 100'000; ++i) store().keep(key_of(i % 20), document_of(i));
      return true;
    });
    usleep(2000 + random() % 15000);
    kill(process, SIGKILL);
    EXPECT_FALSE(ends_well(process));
    for (const ProfileStore::Entry& entry : store().entries())
      EXPECT_EQ(entry.document, document_of(entry.document.at("n")));
    EXPECT_TRUE(notes.empty()) << notes[0];
  }
  EXPECT_FALSE(store().entries().empty());
}

}  // namespace
}  // namespace outrider
