// What somebody gave as a model that is no GGUF file: other formats, pages and pointers in the
// place of a download, folders. It is recognized so that it can be refused by name.

#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

namespace outrider {

// What follows the name in the message: "is a safetensors file, expected GGUF; convert ...".
// `bytes` are the file's and do not begin with "GGUF"; at most the first 2 MiB are looked at. The
// config.json beside the file at `path`, if there is one, says how weights are quantized; an empty
// path has none. Any bytes are good, none throw.
std::string refusal_of_file(std::span<const std::byte> bytes, const std::filesystem::path& path);

// The same for a folder, of which at most 1,000 entries are looked at.
std::string refusal_of_folder(const std::filesystem::path& path);

}  // namespace outrider
