// What somebody gave as a model that is no GGUF file, or as a draft head that is no safetensors
// file: other formats, pages and pointers in the place of a download, folders. It is recognized so
// that it can be refused by name.

#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace outrider {

// What was asked for: a model is a GGUF file, a draft head a safetensors or GGUF file.
enum class Wanted { model, head };

// What follows the name in the message: "is a safetensors file, expected GGUF; convert ...".
// `bytes` are the file's and are not what is wanted; at most the first 2 MiB are looked at. The
// config.json beside the file at `path`, if there is one, says how a model's weights are quantized;
// an empty path has none. Any bytes are good, none throw.
std::string refusal_of_file(std::span<const std::byte> bytes, const std::filesystem::path& path,
                            Wanted wanted = Wanted::model);

// The same for a folder, of which at most 1,000 entries are looked at.
std::string refusal_of_folder(const std::filesystem::path& path, Wanted wanted = Wanted::model);

// Whether the bytes are those of a file that PyTorch's torch.save wrote: a zip archive with
// data.pkl, or pickles. Other Python pickles are not told apart.
bool is_pytorch_file(std::span<const std::byte> bytes);

}  // namespace outrider
