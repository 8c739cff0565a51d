// SHA-256.

#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/mapped_file.h"
#include "base/progress.h"

namespace outrider {

// Of bytes that arrive in pieces.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  void update(std::span<const std::byte> bytes);
  std::string hex();  // 64 lower-case digits; the object is spent afterwards

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Throws Error if the file cannot be read or progress.interrupted returns true.
std::string sha256_of_file(const std::filesystem::path& path, const Progress& progress = {});

// Of files one after another, a model's parts; `name` is what progress and messages call them.
// Throws Error if progress.interrupted returns true. A gigabyte takes 0.5 s with the SHA
// instructions, more without.
std::string sha256_of_files(std::span<const MappedFile> files, std::string_view name,
                            const Progress& progress);

}  // namespace outrider
