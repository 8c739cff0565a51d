// The table of fast twins: every function here has a scalar reference in numerics/ and gives its
// bits, on every instruction set. forward.cpp and attention.cpp call through the table and know no
// instruction set.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/matrix_view.h"
#include "base/threads.h"
#include "cpu/isa.h"
#include "cpu/pack.h"
#include "numerics/half.h"
#include "numerics/quantize.h"
#include "numerics/softmax.h"

namespace outrider {

// Rows of activations as a product takes them. `floats` is always set, the quantized views where a
// matrix asks for them.
struct ProductInput {
  struct Quantized {
    const std::int8_t* q = nullptr;        // [rows][q_stride]
    const float* d = nullptr;              // [rows][d_stride], one a group
    const std::int16_t* sums16 = nullptr;  // [rows][sums_stride]
    std::size_t q_stride = 0, d_stride = 0, sums_stride = 0;
  };
  MatrixView<const float> floats;
  Quantized groups_of_32, groups_of_256;
};

struct ProductKernels {
  // out[r][o] for rows in `rows` and the outputs of panels in `panels`; out's stride reaches the
  // end of the last panel, and padded outputs are written with anything.
  void (*product)(const PackedMatrix& weights, const ProductInput& input, Range rows, Range panels,
                  MatrixView<float> out);
  void (*quantize)(std::span<const float> x, std::size_t group, QuantizedRow out);
};

// The bits of an IEEE binary16.
using Half = std::uint16_t;

struct VectorKernels {
  // y = (x * r) * w, r = 1 / sqrt(lane sum of x*x / n + eps). y may be x.
  void (*rms_norm)(std::span<const float> x, std::span<const float> w, float eps,
                   std::span<float> y);
  // y = activation(gate) * up. y may be gate.
  void (*silu_times)(std::span<const float> gate, std::span<const float> up, std::span<float> y);
  void (*gelu_tanh_times)(std::span<const float> gate, std::span<const float> up,
                          std::span<float> y);
  // y += x
  void (*add)(std::span<const float> x, std::span<float> y);
  // y *= s
  void (*scale)(float s, std::span<float> y);
  // y = float(c * tanh(y / c)), each operation rounded.
  void (*softcap)(float c, std::span<float> y);
  // One head in place; cos and sin are [dims / 2] for its position. Channels past `dims` pass.
  void (*rope_halves)(std::span<const float> cos, std::span<const float> sin,
                      std::span<float> head);
  void (*rope_adjacent)(std::span<const float> cos, std::span<const float> sin,
                        std::span<float> head);

  // Attention over one tile of 64 keys of one kv head. Keys are stored [head_dim][64], values
  // [64][head_dim]; p and scores are [queries][64], rows of any stride.
  // scores[q][j] = fma chain over d, ascending, of queries[q][d] * keys[d][j], for all 64 j; not
  // yet scaled.
  void (*scores_f16)(MatrixView<const float> queries, const Half* keys, MatrixView<float> scores);
  void (*scores_f32)(MatrixView<const float> queries, const float* keys, MatrixView<float> scores);
  // p: 64 scaled scores, absent ones -inf, at least one present. p_j = exp(p_j - m), m the largest;
  // returns m and the lane sum of the new p. A NaN among the scores makes all of them NaN.
  TileSum (*tile_softmax)(std::span<float, kTile> p);
  // out[q][d] = fma(p[q][j], values[j][d], out[q][d]) for j = 0 .. count - 1 ascending. A key whose
  // p is zero does not enter, so that a NaN in the value of an absent key never shows.
  void (*values_f16)(MatrixView<const float> p, const Half* values, std::size_t count,
                     MatrixView<float> out);
  void (*values_f32)(MatrixView<const float> p, const float* values, std::size_t count,
                     MatrixView<float> out);
  // o = fma(o, a, o_t * b), elementwise: the merge of two tiles.
  void (*merge)(float a, float b, std::span<const float> o_t, std::span<float> o);

  // To the cache: clamped to +-65504 (NaN passes), rounded to nearest even for halves.
  void (*clamp_to_half)(std::span<const float> x, Half* out);
  void (*clamp_to_float)(std::span<const float> x, float* out);
};

struct Kernels {
  Isa isa;
  ProductKernels products;
  VectorKernels vectors;
};

// The table for one of available_isas().
const Kernels& kernels(Isa isa);

// Each instruction set's part of the table, in its own files.
extern const ProductKernels kProductsReference, kProductsAvx2, kProductsAvxVnniVex,
    kProductsAvxVnniEvex, kProductsAvx512, kProductsAmx;
extern const VectorKernels kVectorsReference, kVectorsAvx2, kVectorsAvx512;

}  // namespace outrider
