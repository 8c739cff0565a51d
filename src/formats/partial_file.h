// A model file that a pull is still building. It is in the same folder as the finished file will be
// and is locked by the process that works on it. Its size alone says how far the pull got.

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string_view>

namespace outrider {

inline constexpr std::string_view kPartialSuffix = ".partial";

class PartialFile {
 public:
  // Opens or creates `whole`.partial and locks it; null if another process works on it. Throws
  // Error if it cannot be written.
  static std::unique_ptr<PartialFile> try_lock(const std::filesystem::path& whole);
  // Unlocks. A file without content is deleted.
  ~PartialFile();
  PartialFile(const PartialFile&) = delete;
  PartialFile& operator=(const PartialFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  // Where parts are fetched to. Only the holder of the lock uses it.
  std::filesystem::path download_folder() const;

  std::uint64_t size() const;
  void truncate(std::uint64_t size);
  void append(std::span<const std::byte> bytes);  // Error if the disk is full
  // The content is complete: writes it through to the disk and gives the file its final name.
  void publish();

 private:
  PartialFile(std::filesystem::path whole, std::filesystem::path path, int fd);
  bool is_in_place() const;

  std::filesystem::path whole_, path_;
  int fd_;
};

}  // namespace outrider
