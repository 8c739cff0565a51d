// A file that appears whole or not at all.

#pragma once

#include <cstddef>
#include <filesystem>
#include <span>

namespace outrider {

// It is written beside the place where it will be, in place of a file that is there, and disappears
// unless it is completed. Every function throws Error, naming the file, if it cannot be written.
class NewFile {
 public:
  explicit NewFile(std::filesystem::path file);
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  void write(std::span<const std::byte> bytes);
  // Writes it through to the disk and gives it its name.
  void complete();

 private:
  [[noreturn]] void fail() const;

  const std::filesystem::path file_;
  std::filesystem::path partial_;
  int descriptor_ = -1;
  bool is_complete_ = false;
};

}  // namespace outrider
