#include "base/mapped_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <utility>

namespace outrider {
namespace {

class TemporaryFile {
 public:
  explicit TemporaryFile(std::size_t size) {
    std::string path = std::filesystem::temp_directory_path() / "outrider_mapped_XXXXXX";
    const int file = ::mkstemp(path.data());
    EXPECT_EQ(::ftruncate(file, static_cast<off_t>(size)), 0);
    ::close(file);
    path_ = path;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

TEST(MappedFile, IsFoundByItsAddressesAsLongAsItIsMapped) {
  const TemporaryFile first(10'000), second(10'000);
  const int elsewhere = 0;
  EXPECT_EQ(mapped_file_at(&elsewhere), nullptr);
  const std::byte* begin;
  for (int round = 0; round < 2; ++round) {
    SCOPED_TRACE(round);
    MappedFile opened(first.path());
    const MappedFile other(second.path());
    const MappedFile moved = std::move(opened);
    begin = moved.bytes().data();
    EXPECT_STREQ(mapped_file_at(begin), first.path().c_str());
    EXPECT_STREQ(mapped_file_at(begin + 9'999), first.path().c_str());
    EXPECT_EQ(mapped_file_at(begin + 10'000), nullptr);
    EXPECT_STREQ(mapped_file_at(other.bytes().data()), second.path().c_str());
  }
  EXPECT_EQ(mapped_file_at(begin), nullptr);
}

TEST(MappedFile, AnEmptyFileIsMappedNowhere) {
  const TemporaryFile empty(0);
  EXPECT_TRUE(MappedFile(empty.path()).bytes().empty());
  EXPECT_EQ(mapped_file_at(nullptr), nullptr);
}

}  // namespace
}  // namespace outrider
