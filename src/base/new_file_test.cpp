#include "base/new_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <string_view>

#include "base/error.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

std::string bytes_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::ptrdiff_t n_files(const fs::path& folder) {
  return std::distance(fs::directory_iterator(folder), {});
}

TEST(NewFile, AppearsWholeOrNotAtAll) {
  const fs::path folder = fs::temp_directory_path() / ("new-file-" + std::to_string(getpid()));
  fs::create_directory(folder);
  const fs::path path = folder / "file";
  const auto write = [&](std::string_view text, bool completes) {
    NewFile file(path);
    file.write(std::as_bytes(std::span(text)));
    if (completes) file.complete();
  };
  write("given up", false);
  EXPECT_EQ(n_files(folder), 0);
  write("first", true);
  EXPECT_EQ(bytes_of(path), "first");
  write("given up", false);
  EXPECT_EQ(bytes_of(path), "first");
  write("2", true);
  EXPECT_EQ(bytes_of(path), "2");
  EXPECT_EQ(n_files(folder), 1);
  EXPECT_THROW(NewFile{folder}, Error);
  EXPECT_THROW(NewFile{folder / "missing" / "file"}, Error);
  fs::remove_all(folder);
}

}  // namespace
}  // namespace outrider
