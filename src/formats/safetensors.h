// safetensors, in which Hugging Face's libraries keep tensors: eight bytes with the header's
// length, a header in JSON, the tensors' bytes. https://github.com/huggingface/safetensors

#pragma once

#include <filesystem>
#include <span>
#include <string>

#include "formats/checkpoint.h"

namespace outrider {

// Opens a .safetensors file; the index of a checkpoint in several files
// (model.safetensors.index.json), whose files lie in its folder; or a folder that holds
// model.safetensors, else that index, else a single .safetensors file; `path` of the result is that
// of the file or index. Tensor bytes are mapped and not touched. Read are weights in F32, F16 and
// BF16 and tables in I64, I32, U8 and BOOL. Shapes are in the order of GGUF, the reverse of the
// file's; a scalar's is empty, and a tensor may have no elements. `metadata` holds the strings of
// "__metadata__", of several files the first's that has any. Throws Error for anything malformed:
// the header must be UTF-8 and hold nothing but tensors and metadata, each once, every size and
// offset is checked, and the tensors must fill the file without holes. What is no safetensors file
// is named (foreign_file.h).
//
// A tensor may begin at any byte: files are not aligned as GGUF's are.
Checkpoint read_safetensors(const std::filesystem::path& path);

// The same for a file's bytes in memory, which must outlive the result; `origin` names them in
// messages.
Checkpoint read_safetensors(std::span<const std::byte> bytes, std::string origin);

}  // namespace outrider
