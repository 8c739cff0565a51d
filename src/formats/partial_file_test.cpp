#include "formats/partial_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

class Partial : public testing::Test {
 protected:
  void SetUp() override {
    std::string path = fs::temp_directory_path() / "outrider_partial_XXXXXX";
    ASSERT_NE(::mkdtemp(path.data()), nullptr);
    folder_ = path;
    whole_ = folder_ / "m.gguf";
  }
  void TearDown() override { fs::remove_all(folder_); }

  fs::path folder_, whole_;
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

TEST_F(Partial, GrowsAndIsPublished) {
  {
    const auto file = PartialFile::try_lock(whole_);
    ASSERT_NE(file, nullptr);
    file->append(bytes_of("abc"));
    file->append(bytes_of("def"));
    file->truncate(4);
    file->append(bytes_of("!"));
    EXPECT_EQ(file->size(), 5u);
    EXPECT_EQ(PartialFile::try_lock(whole_), nullptr);
  }
  EXPECT_TRUE(fs::exists(whole_.string() + ".partial"));  // it has content
  PartialFile::try_lock(whole_)->publish();
  std::string content;
  std::ifstream(whole_) >> content;
  EXPECT_EQ(content, "abcd!");
  EXPECT_FALSE(fs::exists(whole_.string() + ".partial"));
}

TEST_F(Partial, WithoutContentItIsDeleted) {
  PartialFile::try_lock(whole_)->append({});
  EXPECT_TRUE(fs::is_empty(folder_));
  EXPECT_THROW(PartialFile::try_lock(folder_ / "absent/m.gguf"), Error);
}

// Holders delete and rename the file that others are about to lock; still one at a time holds the
// one that is there.
TEST_F(Partial, NeverTwoHolders) {
  std::atomic<int> n_holders = 0, n_held = 0, n_wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      while (n_held < 1000) {
        const auto file = PartialFile::try_lock(whole_);
        if (!file) continue;
        if (++n_holders != 1) ++n_wrong;
        std::this_thread::yield();
        --n_holders;
        if (++n_held % 8 == 0) file->publish();  // from here on others may start again
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_wrong, 0);
}

}  // namespace
}  // namespace outrider
