// Encodes weights as blocks of a quantized type with a small error; dequantize.h reads them. For
// draft models, whose text is only compared: docs/arithmetic.md promises bits for given blocks, not
// which blocks stand for given weights.

#pragma once

#include <cstddef>
#include <span>

#include "formats/tensor_type.h"

namespace outrider {

// The types that encode() writes, the smallest first: groups of 32 with a scale and no minimum.
std::span<const TensorType> encodable_types();

// values: whole groups of 32; blocks: as many bytes as they take. A group's scale is the one, of a
// few, that leaves the smallest sum of squared errors; a group with a value that is not finite, or
// with one too large for the type's half-precision scale, becomes NaNs. Thread-safe.
void encode(TensorType type, std::span<const float> values, std::span<std::byte> blocks);

}  // namespace outrider
