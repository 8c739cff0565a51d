// Draft heads from PyTorch's files (.bin, .pt, .pth) to safetensors, which are read.
//
// Such a file is a pickle: a program in the language of Python's own reader. PyTorch runs the part
// of it that makes tensors and refuses the rest (weights_only), in this program's own Python
// environment (python_environment.h).

#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/progress.h"

namespace outrider {

struct ConvertOptions {
  bool offline = false;  // refuse to make the environment
  Progress progress;
};

struct ConvertedHead {
  std::filesystem::path path;  // of the safetensors file
  std::size_t n_tensors = 0;
  std::uint64_t bytes = 0;            // of the file
  std::vector<std::string> left_out;  // names of entries that are no tensors
  bool config_was_copied = false;     // config.json, which lay beside the input
};

// Where the converted file goes if nothing else is said: beside it, called NAME.safetensors.
std::filesystem::path converted_path(const std::filesystem::path& from);

// Writes the tensors of `from` to `to`, replacing a file there when all is well, with the names of
// `from`; F64 becomes F32, I8 and I16 become I32. A config.json beside `from` is copied beside
// `to`. Makes the environment if it is missing: it downloads and keeps gigabytes. Throws Error,
// naming the file: it is missing, is none of PyTorch's, or holds other things than tensors; `to` is
// no place for it, or another config.json lies there; no python3, venv or pip, no network, no
// space, an interrupt.
ConvertedHead convert_head(const std::filesystem::path& from, const std::filesystem::path& to,
                           const ConvertOptions& options = {});

}  // namespace outrider
