// A few rows of activations in the order in which the kernels of products_256.h and
// products_avx512.cpp read them: block by block, and inside a block the rows' words of four bytes
// side by side, so that one pointer with fixed offsets reaches them all. A row is rearranged once
// and then read once per panel.

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/threads.h"
#include "cpu/kernels/kernels.h"
#include "numerics/blocks.h"

namespace outrider {

// A block of columns of `n` rows, in words of four bytes:
//   [units][n]   q, four columns per word; for float types one column, a float
//   [n]          d, a float; float types have none
//   [extras][n]  what the sums of q are needed for: see extra_kind
enum class ExtraKind {
  none,
  bias_start,   // int32 -bias * sum of q, one per sub-block: where a sum of (w + bias) * q starts
  wide_start,   // the same, and q in 16 bits, two words per unit: columns 0, 2 and columns 1, 3
  bias_halves,  // the same for sums of 16 bits: low for columns 0, 1 of all units, high for 2, 3
  float_sum,    // the sum of q as a float: the factor of Q4_1's and Q5_1's minimum
  sum_pairs,    // two sub-blocks' sums of 16 bits, the first low: factors of K types' minimums
};

constexpr bool is_wide(ExtraKind kind) {
  return kind == ExtraKind::wide_start;
}

struct InterleavedShape {
  std::size_t elements;  // columns per block
  std::size_t units, extras;
  ExtraKind extra_kind;

  constexpr std::size_t words() const { return units + (elements > 1) + extras; }
};

// bias_kind: how the kernel wants the bias of types that have one.
constexpr InterleavedShape interleaved_shape(TensorType type, ExtraKind bias_kind) {
  const BlockShape block = block_shape(type);
  if (block.elements == 0) return {1, 1, 0, ExtraKind::none};
  const std::size_t units = block.elements / 4;
  if (!block.has_min) {
    const std::size_t words = is_wide(bias_kind) ? 2 * units : units;
    return {block.elements, words, block.sub_blocks, bias_kind};
  }
  if (block.sub_blocks == 1) return {block.elements, units, 1, ExtraKind::float_sum};
  return {block.elements, units, block.sub_blocks / 2, ExtraKind::sum_pairs};
}

// A group of rows as its kernel will read them: [columns / elements][words()][rows].
struct InterleavedRows {
  const std::int32_t* words;
  std::size_t columns, rows;
};

// f.operator()<kType>() for a type that is known only now.
template <typename F>
PanelKernel kernel_for(TensorType type, const F& f) {
  switch (type) {
    case TensorType::f32: return f.template operator()<TensorType::f32>();
    case TensorType::f16: return f.template operator()<TensorType::f16>();
    case TensorType::bf16: return f.template operator()<TensorType::bf16>();
    case TensorType::q4_0: return f.template operator()<TensorType::q4_0>();
    case TensorType::q4_1: return f.template operator()<TensorType::q4_1>();
    case TensorType::q5_0: return f.template operator()<TensorType::q5_0>();
    case TensorType::q5_1: return f.template operator()<TensorType::q5_1>();
    case TensorType::q8_0: return f.template operator()<TensorType::q8_0>();
    case TensorType::q2_k: return f.template operator()<TensorType::q2_k>();
    case TensorType::q3_k: return f.template operator()<TensorType::q3_k>();
    case TensorType::q4_k: return f.template operator()<TensorType::q4_k>();
    case TensorType::q5_k: return f.template operator()<TensorType::q5_k>();
    case TensorType::q6_k: return f.template operator()<TensorType::q6_k>();
    case TensorType::iq4_nl: return f.template operator()<TensorType::iq4_nl>();
    case TensorType::iq4_xs: return f.template operator()<TensorType::iq4_xs>();
    case TensorType::q4_128: return f.template operator()<TensorType::q4_128>();
    case TensorType::q8_256: return f.template operator()<TensorType::q8_256>();
    default: break;  // packed as another
  }
  CHECK(!"a type of a packed matrix");
  return nullptr;
}

// ProductKernels::lines for kernels that read interleaved rows.
std::size_t interleaved_lines(const PackedMatrix& weights, std::size_t n_rows, ExtraKind bias_kind);

// ProductKernels::arrange for kernels that read interleaved rows: groups of at most `most_rows`
// rows, all of about the same size, each with the kernel that `choose` gives for it.
void interleave(const PackedMatrix& weights, const ProductInput& input, Range rows,
                ExtraKind bias_kind, std::size_t most_rows,
                PanelKernel (*choose)(TensorType, const InterleavedRows&), ArrangedRows& arranged);

// ProductKernels::product for them: one call of a kernel per panel and group.
void product_of_interleaved(const PackedMatrix& weights, const ArrangedRows& rows, Range panels,
                            MatrixView<float> out);

}  // namespace outrider
