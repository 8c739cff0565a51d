// Writes safetensors files (formats/safetensors.h).

#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "formats/tensor_type.h"

namespace outrider {

// A tensor whose bytes are given piece by piece.
struct TensorToWrite {
  std::string name;
  TensorType type = TensorType::f32;  // F32, F16, BF16, I32 or I64
  std::vector<std::int64_t> shape;    // in the order of the file: rows first
  using Append = std::function<void(std::span<const std::byte>)>;
  // Calls its argument until all bytes of the tensor were given, which is a CHECK.
  std::function<void(const Append&)> give;
};

// A tensor of values in memory, which must outlive the call that writes it.
template <typename T>
TensorToWrite tensor_to_write(std::string name, TensorType type, std::vector<std::int64_t> shape,
                              std::span<const T> values) {
  return {std::move(name), type, std::move(shape),
          [values](const TensorToWrite::Append& append) { append(std::as_bytes(values)); }};
}

// A file there is replaced when the new one is complete (base/new_file.h). Throws Error if it
// cannot be written or the disk is full: then nothing of it is left.
void write_safetensors(const std::filesystem::path& path, std::span<const TensorToWrite> tensors,
                       const std::map<std::string, std::string>& metadata);

}  // namespace outrider
