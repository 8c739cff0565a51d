// Encodes weights as blocks of a quantized type with a small error; dequantize.h reads them. For
// draft models, whose proposals the target checks: docs/arithmetic.md promises bits for given
// blocks, not which blocks encode given weights.

#pragma once

#include <cstddef>
#include <span>

#include "formats/tensor_type.h"

namespace outrider {

// The types that encode() writes, the smallest first: those without minimums and with groups of 32,
// and Q4_128, blocks of 128 with a scale of four bits for each 16. Its scale times a weight fits
// eight bits, so tiles sum whole blocks, and its error is the smaller one: of Qwen2.5-Coder 0.5B
// 0.0858 of the weights, Q4_0's 0.0923.
std::span<const TensorType> encodable_types();

// `type`, or if `columns` are no whole blocks of it the next one of which they are; `type` if there
// is none.
TensorType encodable_type(TensorType type, std::size_t columns);

// values: whole blocks; blocks: as many bytes as they take. A scale is the one, of a few, that
// leaves the smallest sum of squared errors; a block with a value that is not finite, or with one
// too large for the type's half-precision scale, becomes NaNs. Thread-safe.
void encode(TensorType type, std::span<const float> values, std::span<std::byte> blocks);

}  // namespace outrider
