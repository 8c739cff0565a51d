// Blocks of stored weights as floats, the bits that the Python package gguf gives
// (gguf.quants.dequantize).

#pragma once

#include <cstddef>
#include <span>

#include "formats/tensor_type.h"

namespace outrider {

// blocks: whole blocks of `type`; values: as many elements as they hold, in order. A NaN may differ
// in its payload. Thread-safe.
void dequantize(TensorType type, std::span<const std::byte> blocks, std::span<float> values);

}  // namespace outrider
