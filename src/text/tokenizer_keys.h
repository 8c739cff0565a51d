// The metadata keys of tokenizers, behind "tokenizer.ggml.". Source: llama.cpp's loader
// (src/llama-vocab.cpp).

#pragma once

#include <vector>

#include "formats/metadata_key.h"

namespace outrider {

std::vector<MetadataKey> byte_bpe_keys();
std::vector<MetadataKey> sentencepiece_keys();

}  // namespace outrider
