// The table of kernels. Every function here has a scalar reference in numerics/ and gives the same
// bits on every instruction set. forward.cpp, paged_attention.cpp and fast_choice.cpp call through
// the table and know no instruction set.

#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/matrix_view.h"
#include "base/threads.h"
#include "cpu/isa.h"
#include "cpu/kernels/attention_kernels.h"
#include "cpu/kernels/choice_kernels.h"
#include "cpu/pack.h"
#include "cpu/prefetch_choice.h"
#include "numerics/quantize.h"

namespace outrider {

// Rows of activations as a product takes them. `floats` is always set, the quantized views where a
// matrix asks for them.
struct ProductInput {
  struct Quantized {
    const std::int8_t* q = nullptr;        // [rows][q_stride]
    const float* d = nullptr;              // [rows][d_stride], one per group
    const std::int16_t* sums16 = nullptr;  // [rows][sums_stride]
    std::size_t q_stride = 0, d_stride = 0, sums_stride = 0;
  };
  MatrixView<const float> floats;
  Quantized groups_of_32, groups_of_128, groups_of_256;

  // What matrices of a quantized type ask for.
  const Quantized& quantized(TensorType type) const {
    switch (input_kind(type)) {
      case InputKind::groups_of_32: return groups_of_32;
      case InputKind::groups_of_128: return groups_of_128;
      default: return groups_of_256;
    }
  }
};

// Multiplies one panel by a group of interleaved rows (ArrangedRows): out[r * stride + o] for row r
// of the group and the panel's 16 outputs o.
using PanelKernel = void (*)(const std::byte* panel, std::size_t columns, const std::int32_t* words,
                             float* out, std::size_t stride);

// Rows of activations as products read them.
struct ArrangedRows {
  ProductInput input;
  Range rows;
  // Rows whose words are interleaved, and the kernel for them (cpu/kernels/x86/interleaved_rows.h).
  // Empty where kernels read the input as it is.
  struct Group {
    std::size_t first, rows;  // `first` counted from rows.begin
    const std::int32_t* words;
    PanelKernel kernel;
  };
  std::vector<Group> groups;
  // Working memory of arrange() and product(). Its owner makes it large enough first, by lines(),
  // and reserves as many groups as there are rows.
  struct alignas(64) Line {
    std::int32_t words[16];
  };
  std::span<Line> memory;
};

struct ProductKernels {
  // Lines of ArrangedRows::memory that up to n_rows rows take, for matrices of the type and the
  // width of `weights`.
  std::size_t (*lines)(const PackedMatrix& weights, std::size_t n_rows);
  // Brings rows of the input, at least one, into the order in which products read them, for
  // matrices of the type and the width of `weights`.
  void (*arrange)(const PackedMatrix& weights, const ProductInput& input, Range rows,
                  ArrangedRows& arranged);
  // The outputs of some panels for arranged rows, out[0][0] the first output of the first panel for
  // the first row. Rows of `out` extend to the end of the last panel; outputs that only pad it get
  // any value.
  void (*product)(const PackedMatrix& weights, const ArrangedRows& rows, Range panels,
                  MatrixView<float> out);
  void (*quantize)(std::span<const float> x, std::size_t group, QuantizedRow out);
};

struct VectorKernels {
  // y = (x * r) * w, r = 1 / sqrt(lane sum of x*x / n + eps). y may be x.
  void (*rms_norm)(std::span<const float> x, std::span<const float> w, float eps,
                   std::span<float> y);
  // The same of x - (lane sum of x) / n.
  void (*layer_norm)(std::span<const float> x, std::span<const float> w, float eps,
                     std::span<float> y);
  // y = activation(gate) * up. y may be gate.
  void (*silu_times)(std::span<const float> gate, std::span<const float> up, std::span<float> y);
  void (*gelu_tanh_times)(std::span<const float> gate, std::span<const float> up,
                          std::span<float> y);
  // y *= sigmoid(gate)
  void (*sigmoid_times)(std::span<const float> gate, std::span<float> y);
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
};

struct Kernels {
  Isa isa;
  ProductKernels products;
  VectorKernels vectors;
  AttentionKernels attention;
  const ChoiceKernels* choice;  // null: choose_reference (numerics/choice.h) is used
  // The same products by prefetch pattern, [kPrefetchPatterns]. Empty: they have one.
  std::span<const ProductKernels> by_prefetch = {};

  const ProductKernels& products_by(PrefetchPattern prefetch) const {
    return by_prefetch.empty() ? products : by_prefetch[index(prefetch)];
  }
};

// The tables of this architecture; its folder, such as kernels/x86/, has them.
std::span<const Kernels> kernel_tables();
// The one for one of available_isas().
inline const Kernels& kernels(Isa isa) {
  CHECK(is_available(isa));
  return *std::ranges::find(kernel_tables(), isa, &Kernels::isa);
}

// The reference's parts of its table; other instruction sets have theirs in folders of their own.
extern const ProductKernels kProductsReference;
extern const VectorKernels kVectorsReference;

}  // namespace outrider
