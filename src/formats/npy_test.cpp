// NumPy's format: what is written is read again, what NumPy writes is read, all else is refused.

#include "formats/npy.h"

#include <gtest/gtest.h>

#include <fstream>

#include "base/error.h"

namespace outrider {
namespace {

std::filesystem::path temporary(const char* name) {
  return std::filesystem::path(::testing::TempDir()) / name;
}

TEST(Npy, ReadsWhatItWrote) {
  const std::filesystem::path path = temporary("npy_test.npy");
  NpyWriter writer(path, 2, 3);
  writer.append(std::vector<float>{1, 2, 3});
  writer.append(std::vector<float>{4, 5, -6.5f});
  writer.finish();
  const NpyMatrix matrix(path);
  EXPECT_EQ(matrix.rows(), 2u);
  EXPECT_EQ(matrix.columns(), 3u);
  EXPECT_EQ(matrix.row(1), (std::vector<float>{4, 5, -6.5f}));
  EXPECT_EQ(std::filesystem::file_size(path) % 64, 24u);  // values begin on a line of the cache
  std::filesystem::remove(path);
}

TEST(Npy, RemovesWhatWasNotFinished) {
  const std::filesystem::path path = temporary("npy_unfinished.npy");
  { NpyWriter(path, 2, 3).append(std::vector<float>{1, 2, 3}); }
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Npy, SaysWhyItCannotWrite) {
  EXPECT_THROW(NpyWriter("/nowhere/at/all.npy", 1, 1), Error);
  NpyWriter full("/dev/full", 1, 1 << 20);
  try {
    full.append(std::vector<float>(1 << 20));
    full.finish();
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "/dev/full: cannot be written: No space left on device");
  }
}

std::string file(std::string description, std::size_t n_values, char version = 1) {
  std::string bytes = "\x93NUMPY";
  bytes += version;
  bytes += '\0';
  bytes += static_cast<char>(description.size());
  bytes += '\0';
  if (version > 1) bytes += std::string(2, '\0');
  return bytes + description + std::string(n_values * 4, '\0');
}

TEST(Npy, RefusesEverythingElse) {
  const std::string good = "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }";
  const auto problem = [](const std::string& bytes) -> std::string {
    try {
      const NpyMatrix matrix(std::as_bytes(std::span(bytes)), "x.npy");
      return "";
    } catch (const Error& error) {
      return error.what();
    }
  };
  EXPECT_EQ(problem(file(good, 6)), "");
  EXPECT_EQ(problem(file(good, 6, 2)), "");
  struct Case {
    std::string bytes;
    const char* found;
  };
  const Case cases[] = {
      {"", "does not begin like such a file"},
      {"\x93NUMPX and more", "does not begin like such a file"},
      {file(good, 6, 4), "version 4 of the format"},
      {file(good, 5), "is [2, 3] with 20 bytes of values"},
      {file(good, 7), "is [2, 3] with 28 bytes of values"},
      {file(good, 6).substr(0, 40), "header"},
      {file("{'descr': '<f8', 'fortran_order': False, 'shape': (2, 3), }", 12), "'<f8'"},
      {file("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3), }", 6), "columns one after"},
      {file("{'descr': '<f4', 'fortran_order': False, 'shape': (6,), }", 6), "no matrix"},
      {file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 4), }", 24), "no matrix"},
      {file("{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808, 2), }", 0),
       "with 0 bytes of values"},
      {file("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 0), }", 0), "is [2, 0] with 0"},
      {file("{'descr': '<f4', 'fortran_order': False, 'shape': (0, 3), }", 0), "is [0, 3] with 0"},
      {file("{}", 6), "holds "},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.found);
    const std::string found = problem(c.bytes);
    EXPECT_TRUE(found.starts_with("x.npy: ")) << found;
    EXPECT_NE(found.find(c.found), found.npos) << found;
  }
}

}  // namespace
}  // namespace outrider
