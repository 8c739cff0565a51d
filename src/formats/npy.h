// Matrices of floats in NumPy's format (.npy, version 1.0): float32, rows one after another.
// https://numpy.org/doc/stable/reference/generated/numpy.lib.format.html

#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <vector>

#include "base/mapped_file.h"

namespace outrider {

class NpyWriter {
 public:
  // Throws Error, naming the file, if it cannot be written; so does every other call.
  NpyWriter(const std::filesystem::path& path, std::size_t rows, std::size_t columns);
  ~NpyWriter();
  NpyWriter(const NpyWriter&) = delete;
  NpyWriter& operator=(const NpyWriter&) = delete;

  // The next row: [columns].
  void append(std::span<const float> row);
  // After the last row. A file that was not finished is removed by the destructor.
  void finish();

 private:
  struct File;
  std::unique_ptr<File> file_;
};

class NpyMatrix {
 public:
  // Throws Error, naming the file, if it is no matrix of float32 in rows, or not whole.
  explicit NpyMatrix(const std::filesystem::path& path);

  std::size_t rows() const { return rows_; }
  std::size_t columns() const { return columns_; }
  // A copy: [columns].
  std::vector<float> row(std::size_t index) const;

  // Of the bytes of a file, for tests; they must outlive it.
  NpyMatrix(std::span<const std::byte> bytes, const std::string& origin);

 private:
  MappedFile file_;
  std::span<const std::byte> values_;
  std::size_t rows_ = 0, columns_ = 0;
};

}  // namespace outrider
