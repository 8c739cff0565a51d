#include "base/mapped_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

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

// A file that is not in memory is, some time after it was asked for.
TEST(MappedFile, PrefetchReadsTheWholePart) {
  constexpr std::size_t kSize = std::size_t{32} << 20, kPage = 4096, kFirst = 5 * kPage + 123;
  const TemporaryFile file(0);
  std::ofstream(file.path(), std::ios::binary) << std::string(kSize, 'x');
  const int descriptor = ::open(file.path().c_str(), O_RDONLY);
  ::fsync(descriptor);
  ::posix_fadvise(descriptor, 0, 0, POSIX_FADV_DONTNEED);
  ::close(descriptor);
  const MappedFile mapped(file.path());
  const auto resident = [&] {
    std::vector<unsigned char> pages(kSize / kPage);
    ::mincore(const_cast<std::byte*>(mapped.bytes().data()), kSize, pages.data());
    return std::count_if(pages.begin() + kFirst / kPage, pages.end(),
                         [](unsigned char page) { return page & 1; });
  };
  if (resident() != 0) GTEST_SKIP() << "this file system keeps files in memory";
  mapped.prefetch(mapped.bytes().subspan(kFirst));
  constexpr auto kPages = static_cast<std::ptrdiff_t>(kSize / kPage - kFirst / kPage);
  for (int i = 0; i < 30'000 && resident() < kPages; ++i)  // a disk may be slow
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(resident(), kPages);
}

}  // namespace
}  // namespace outrider
