#include "speculation/datastore.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>

#include "base/error.h"
#include "sampling/fake_tokenizer.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

FakeTokenizer vocabulary_of(int n) {
  std::vector<std::string> entries;
  for (int i = 0; i < n; ++i) entries.push_back(std::to_string(i));
  return FakeTokenizer(entries);
}

class DatastoreTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("datastore-test-" + std::to_string(getpid()));
    fs::create_directory(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string bytes() const {
    std::ifstream file(this->file(), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void overwrite(const std::string& bytes) const {
    std::ofstream(file(), std::ios::binary) << bytes;
  }
  std::string refusal(const Tokenizer& tokenizer) const {
    try {
      Datastore(file(), vocabulary_fingerprint(tokenizer), tokenizer.size());
    } catch (const Error& error) {
      return error.what();
    }
    return "";
  }
  fs::path file() const { return folder_ / "store"; }

  fs::path folder_;
};

TEST_F(DatastoreTest, FindsWhatOccurs) {
  std::mt19937 random(1);
  // Tokens of two, three and four bytes.
  for (const int vocabulary : {5, 70'000, 17'000'000}) {
    SCOPED_TRACE(vocabulary);
    struct Large : FakeTokenizer {
      using FakeTokenizer::FakeTokenizer;
      int size() const override { return n; }
      std::string_view text(Token token) const override { return token < 5 ? "x" : ""; }
      int n = 0;
    } tokenizer({"0"});
    tokenizer.n = vocabulary > 1'000'000 ? 70'000 : vocabulary;  // the fingerprint takes a while
    DatastoreBuilder builder(tokenizer);
    std::vector<std::vector<Token>> documents(4);
    for (auto& document : documents) {
      for (int i = 0; i < 60; ++i)
        document.push_back(random() % 3 == 0 ? tokenizer.n - 1 : static_cast<Token>(random() % 3));
      builder.add(document);
    }
    builder.write(file(), {});
    const Datastore store(file(), vocabulary_fingerprint(tokenizer), tokenizer.size());
    EXPECT_EQ(store.n_tokens(), 4u * 61);
    std::vector<Token> all;
    for (const auto& document : documents) {
      all.insert(all.end(), document.begin(), document.end());
      all.push_back(Datastore::kEnd);
    }
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(store.token(i), all[i]);
    EXPECT_EQ(store.token(all.size()), Datastore::kEnd);
    for (int round = 0; round < 300; ++round) {
      std::vector<Token> wanted;
      for (std::size_t n = 1 + random() % 4; n > 0; --n)
        wanted.push_back(random() % 4 == 0 ? tokenizer.n - 1 : static_cast<Token>(random() % 4));
      std::vector<std::uint64_t> expected, found;
      for (std::size_t at = 0; at + wanted.size() <= all.size(); ++at)
        if (std::equal(wanted.begin(), wanted.end(), all.begin() + static_cast<std::ptrdiff_t>(at)))
          expected.push_back(at);
      const Datastore::Range range = store.find(wanted);
      for (std::uint64_t rank = range.first; rank < range.end; ++rank)
        found.push_back(store.place(rank));
      std::ranges::sort(found);
      ASSERT_EQ(found, expected);
    }
  }
}

TEST_F(DatastoreTest, RefusesWhatIsNone) {
  const FakeTokenizer tokenizer = vocabulary_of(5), other = vocabulary_of(6);
  DatastoreBuilder builder(tokenizer);
  const Token document[] = {1, 2, 3};
  builder.add(document);
  builder.write(file(), {});
  EXPECT_EQ(refusal(tokenizer), "");
  EXPECT_NE(refusal(other).find("was built for another vocabulary"), std::string::npos);
  const std::string whole = bytes();
  for (std::size_t n = 0; n < whole.size(); ++n) {
    overwrite(whole.substr(0, n));
    EXPECT_NE(refusal(tokenizer), "") << n;
  }
  overwrite(whole + "x");
  EXPECT_NE(refusal(tokenizer).find("is damaged"), std::string::npos);
  overwrite("some text");
  EXPECT_NE(refusal(tokenizer).find("is no datastore"), std::string::npos);
  std::string newer = whole;
  newer[8] = 9;
  overwrite(newer);
  EXPECT_NE(refusal(tokenizer).find("of version 9"), std::string::npos);
  // Each byte of the rest: whatever is found lies inside.
  for (std::size_t at = 12; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(~damaged[at]);
    overwrite(damaged);
    try {
      const Datastore store(file(), vocabulary_fingerprint(tokenizer), tokenizer.size());
      for (Token token = 0; token < 5; ++token) {
        const Datastore::Range range = store.find({&token, 1});
        for (std::uint64_t rank = range.first; rank < range.end; ++rank) {
          EXPECT_LT(store.place(rank), store.n_tokens());
          EXPECT_LT(store.token(store.place(rank) + 1), tokenizer.size());
        }
      }
    } catch (const Error&) {
    }
  }
}

TEST_F(DatastoreTest, AppearsWholeOrNotAtAll) {
  const FakeTokenizer tokenizer = vocabulary_of(5);
  const std::vector<Token> document(2'000'000, 1);
  DatastoreBuilder interrupted(tokenizer);
  interrupted.add(document);
  Progress stopped;
  stopped.interrupted = [] { return true; };
  EXPECT_THROW(interrupted.write(file(), stopped), Error);
  EXPECT_TRUE(fs::is_empty(folder_));
  DatastoreBuilder nowhere(tokenizer);
  nowhere.add(document);
  EXPECT_THROW(nowhere.write(folder_ / "missing" / "store", {}), Error);
  EXPECT_THROW(DatastoreBuilder(tokenizer).write(file(), {}), Error);
  EXPECT_TRUE(fs::is_empty(folder_));
}

}  // namespace
}  // namespace outrider
