// A file's bytes, mapped read-only. Reading bytes that were cut off the file since it was opened,
// or that its disk cannot read, raises SIGBUS: a program that maps files catches it and asks
// mapped_file_at().

#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace outrider {

class MappedFile {
 public:
  MappedFile() = default;
  // Throws Error if the file cannot be opened or mapped, or is no regular file.
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  std::span<const std::byte> bytes() const { return bytes_; }
  bool holds(std::span<const std::byte> part) const;  // whether it is a part of bytes()
  // Has Linux read `part`, a part of bytes(), while the caller goes on. What is not in memory yet
  // when it is read is waited for.
  void prefetch(std::span<const std::byte> part) const;
  // Tells Linux that the pages of `part`, a part of bytes(), are no longer needed. They can still
  // be read, from the file again.
  void release(std::span<const std::byte> part) const;

 private:
  std::span<const std::byte> bytes_;
};

// The path of the file that is mapped at `address`; null if there is none. A signal handler may
// call it: it takes no lock and allocates nothing.
const char* mapped_file_at(const void* address);

}  // namespace outrider
