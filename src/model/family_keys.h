// The metadata keys that model families share. Sources: llama.cpp's loader (src/llama-model.cpp and
// src/models/), and the configurations of transformers where llama.cpp reads a key in some families
// only.

#pragma once

#include <span>

#include "formats/metadata_key.h"

namespace outrider {

std::span<const MetadataKey> common_keys();

}  // namespace outrider
