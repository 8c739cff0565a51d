// Heads as llama.cpp writes them in GGUF: their keys as a config.json has them, and names of
// tensors.

#pragma once

#include <span>
#include <string>
#include <string_view>

#include "formats/checkpoint.h"
#include "model/head_config.h"
#include "model/spec.h"

namespace outrider {

// general.architecture.
inline constexpr std::string_view kEagle3Architecture = "eagle3", kBlockArchitecture = "dflash";

bool is_gguf_head(const Metadata& metadata);  // by that

// A key, which follows the architecture and a dot unless it begins with "tokenizer.", by what
// config.json calls it.
struct GgufKey {
  std::string_view name;
  const char* config_name;
};

// The sizes, rope and norms that all have, and the keys of one kind; of two that mean the same the
// last one counts.
HeadConfig config_of_gguf(const Metadata& metadata, std::string_view architecture,
                          std::span<const GgufKey> own);

// "blk.0.attn_q.weight"; empty for roles of which models have no tensor.
std::string gguf_tensor_name(Role role, int layer);

}  // namespace outrider
