#include "base/hash.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace outrider {
namespace {

// FIPS 180-2, appendix B.
constexpr const char* kEmpty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
constexpr const char* kAbc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
constexpr const char* kMillion = "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0";

TEST(Sha256, KnownDigests) {
  EXPECT_EQ(Sha256().hex(), kEmpty);
  Sha256 abc;
  abc.update(std::as_bytes(std::span(std::string_view("a"))));
  abc.update(std::as_bytes(std::span(std::string_view("bc"))));
  EXPECT_EQ(abc.hex(), kAbc);
}

TEST(Sha256, OfAFile) {
  const auto path =
      std::filesystem::temp_directory_path() / ("outrider_hash_" + std::to_string(::getpid()));
  std::ofstream(path) << std::string(1000000, 'a');
  Progress progress;
  std::uint64_t last = 0;
  progress.advance = [&](std::string_view, std::uint64_t done, std::uint64_t) { last = done; };
  EXPECT_EQ(sha256_of_file(path, progress), kMillion);
  EXPECT_EQ(last, 1000000u);
  std::ofstream(path) << std::string(500000, 'a');
  std::vector<MappedFile> halves;
  for (int i = 0; i < 2; ++i) halves.emplace_back(path);
  last = 0;
  EXPECT_EQ(sha256_of_files(halves, "both", progress), kMillion);
  EXPECT_EQ(last, 1000000u);
  progress.interrupted = [] { return true; };
  EXPECT_THROW(sha256_of_file(path, progress), Error);
  std::filesystem::remove(path);
  EXPECT_THROW(sha256_of_file(path), Error);
}

}  // namespace
}  // namespace outrider
