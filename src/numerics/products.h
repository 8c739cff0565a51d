// The product of one row of activations and one row of weights (docs/arithmetic.md, "Products with
// quantized weights"), in plain loops straight from the file's blocks. The kernel tables of cpu/
// hold its twins.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "formats/tensor_type.h"
#include "numerics/blocks.h"
#include "numerics/quantize.h"

namespace outrider {

// What a product with this type takes as input.
enum class InputKind { floats, groups_of_32, groups_of_128, groups_of_256 };
InputKind input_kind(TensorType type);

// acc plus one group's terms, as docs/arithmetic.md says for this quantized type. block: the
// group's weights; q, d: its activations and their scale.
float add_group_reference(TensorType type, const Block& block, const std::int8_t* q, float d,
                          float acc);

// weights: one row, x.size() elements in blocks of `type`. quantized: x by quantize_reference in
// the groups that input_kind(type) names; unused for floats.
float product_reference(TensorType type, std::span<const std::byte> weights,
                        std::span<const float> x, const QuantizedRow& quantized);

}  // namespace outrider
