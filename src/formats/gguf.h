// GGUF, versions 2 and 3: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

#pragma once

#include <filesystem>
#include <span>

#include "formats/checkpoint.h"

namespace outrider {

// Maps the file and reads its header; tensor bytes are not touched. Of a model in several files,
// NAME-00001-of-0000N.gguf and so on, the path of the first opens all. Throws Error on anything
// malformed: every count, length, offset and size is checked against the file before it is used;
// what is no GGUF file at all is named (foreign_file.h).
Checkpoint read_gguf(const std::filesystem::path& path);

// The same for bytes in memory, which must outlive the result; `origin` names them in messages.
Checkpoint read_gguf(std::span<const std::byte> bytes, std::string origin);

}  // namespace outrider
