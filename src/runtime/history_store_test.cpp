#include "runtime/history_store.h"

#include <gtest/gtest.h>
#include <sqlite3.h>
#include <sys/stat.h>

#include <fstream>

#include "base/error.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;
using Answer = HistoryStore::Answer;

const ModelFile kModel = {.name = "small", .header_hash = "aa", .bytes = 10, .modified_ns = 1};
const ModelFile kOther = {.name = "large", .header_hash = "ab", .bytes = 10, .modified_ns = 1};

struct HistoryStoreTest : ::testing::Test {
  void SetUp() override {
    std::string path = ::testing::TempDir() + "/history_XXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    folder = path;
    file = folder / "cache" / "history.db";
  }
  void TearDown() override { fs::remove_all(folder); }
  HistoryStore store() {
    Progress progress;
    progress.note = [this](std::string_view line) { notes.emplace_back(line); };
    progress.detail = [this](std::string_view line) { notes.emplace_back(line); };
    return {file, progress};
  }
  void run_sql(const char* statements) const {
    sqlite3* connection = nullptr;
    ASSERT_EQ(sqlite3_open(file.c_str(), &connection), SQLITE_OK);
    EXPECT_EQ(sqlite3_exec(connection, statements, nullptr, nullptr, nullptr), SQLITE_OK);
    sqlite3_close(connection);
  }

  fs::path folder, file;
  std::vector<std::string> notes;
};

TEST_F(HistoryStoreTest, GivesAModelsAnswersTheNewestLast) {
  EXPECT_TRUE(store().answers(kModel, 100).empty());
  EXPECT_TRUE(store().entries().empty());
  EXPECT_FALSE(fs::exists(file));  // reading makes no file
  store().keep(kModel, {1, 2, 3});
  store().keep(kOther, {7});
  store().keep(kModel, {4, 5});
  store().keep(kModel, {6});
  EXPECT_EQ(store().answers(kModel, 100), (std::vector<Answer>{{1, 2, 3}, {4, 5}, {6}}));
  EXPECT_EQ(store().answers(kModel, 5), (std::vector<Answer>{{4, 5}, {6}}));
  EXPECT_EQ(store().answers(kOther, 5), std::vector<Answer>{{7}});
  store().keep(kModel, {1, 2, 3});  // again: used last, kept once
  EXPECT_EQ(store().answers(kModel, 100), (std::vector<Answer>{{4, 5}, {6}, {1, 2, 3}}));

  const auto entries = store().entries();
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries[0].model, "small");
  EXPECT_EQ(entries[0].n_answers, 3);
  EXPECT_EQ(entries[0].n_tokens, 6);
  const auto age = std::chrono::system_clock::now() - entries[0].used;
  EXPECT_LT(std::chrono::abs(age), std::chrono::hours(1));
  EXPECT_EQ(store().clear(), 4);
  EXPECT_TRUE(store().answers(kModel, 100).empty());
  EXPECT_TRUE(notes.empty());
}

TEST_F(HistoryStoreTest, OnlyTheOwnerCanRead) {
  const mode_t before = ::umask(0);
  store().keep(kModel, {1, 2, 3});
  ::umask(before);
  const auto mode = [&] {
    struct stat status;
    EXPECT_EQ(::stat(file.c_str(), &status), 0);
    return status.st_mode & 0777;
  };
  EXPECT_EQ(mode(), 0600u);
  fs::permissions(file, fs::perms(0664));  // as a backup may have it
  EXPECT_EQ(store().answers(kModel, 100).size(), 1u);
  EXPECT_EQ(mode(), 0600u);
  // A link to a place where there is no file does not make one that everybody can read.
  fs::rename(file, folder / "elsewhere");
  fs::create_symlink(folder / "nowhere", file);
  store().keep(kModel, {1, 2, 3});
  EXPECT_FALSE(fs::exists(folder / "nowhere"));
  EXPECT_EQ(notes.size(), 1u);
}

TEST_F(HistoryStoreTest, ClearingRemovesADamagedFileToo) {
  store().keep(kModel, {1, 2, 3});
  run_sql("UPDATE answers SET tokens = x'0102'; PRAGMA user_version = 0");
  EXPECT_EQ(store().clear(), 0);
  EXPECT_EQ(notes.size(), 1u);
  for (const auto& entry : fs::directory_iterator(file.parent_path()))
    EXPECT_NE(entry.path().filename(), "history.db.damaged");
}

// A cleared file does not hold what it held.
TEST_F(HistoryStoreTest, ClearingLeavesNothing) {
  const Answer answer(50, 0x41424344);
  store().keep(kModel, answer);
  const auto holds = [&] {
    std::ifstream stream(file, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(stream), {}};
    return bytes.find("DCBADCBA") != bytes.npos;
  };
  EXPECT_TRUE(holds());
  EXPECT_EQ(store().clear(), 1);
  EXPECT_FALSE(holds());
}

TEST_F(HistoryStoreTest, ThoseUsedLongestAgoMakeRoom) {
  constexpr int kTokens = kHistoryTokensMax / 8;
  for (Token i = 0; i < 12; ++i) {
    store().keep(i % 2 ? kModel : kOther, Answer(kTokens, i));
    if (i > 0) store().keep(kOther, Answer(kTokens, 0));  // is used each time
  }
  std::vector<Token> left;
  for (const ModelFile& model : {kModel, kOther})
    for (const Answer& answer : store().answers(model, kHistoryTokensMax))
      left.push_back(answer[0]);
  EXPECT_EQ(left, (std::vector<Token>{5, 7, 9, 11, 6, 8, 10, 0}));
}

TEST_F(HistoryStoreTest, ADamagedFileIsMovedAsideAndBegunAnew) {
  for (const char* damage :
       {"UPDATE answers SET tokens = x'0102'", "UPDATE answers SET tokens = x'01020304'",
        "ALTER TABLE answers ADD COLUMN more TEXT", "PRAGMA application_id = 7"}) {
    SCOPED_TRACE(damage);
    store().keep(kModel, {1, 2, 3});
    notes.clear();
    run_sql(damage);
    EXPECT_TRUE(store().answers(kModel, 100).empty());
    ASSERT_EQ(notes.size(), 1u);
    EXPECT_NE(notes[0].find("history.db: damaged ("), std::string::npos) << notes[0];
    EXPECT_TRUE(fs::exists(folder / "cache" / "history.db.damaged"));
    store().keep(kModel, {4});
    EXPECT_EQ(store().answers(kModel, 100), std::vector<Answer>{{4}});
    EXPECT_EQ(store().clear(), 1);
    EXPECT_FALSE(fs::exists(folder / "cache" / "history.db.damaged"));
  }
}

}  // namespace
}  // namespace outrider
