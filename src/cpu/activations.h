// The activations of a pass, and the working memory of each of its threads.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/huge_buffer.h"
#include "base/matrix_view.h"
#include "cpu/bump_allocator.h"
#include "cpu/kernels/kernels.h"
#include "cpu/weights.h"
#include "model/spec.h"

namespace outrider {

// Rows in int8, quantized by groups of columns (numerics/quantize.h).
class QuantizedRows {
 public:
  QuantizedRows(std::size_t group, std::size_t rows, std::size_t columns, BumpAllocator& memory);

  std::size_t group() const { return group_; }
  // The row from `column` on, which is the first of its group.
  QuantizedRow row(std::size_t row, std::size_t column) const;
  ProductInput::Quantized view() const;

 private:
  std::size_t group_;
  MatrixView<std::int8_t> q_;
  MatrixView<float> d_;              // [rows][groups]
  MatrixView<std::int16_t> sums16_;  // [rows][columns / 16]
};

// Rows in every form that a matrix can ask for.
struct QuantizedForms {
  QuantizedForms(std::size_t rows, std::size_t columns, BumpAllocator& memory);
  ProductInput input(MatrixView<const float> floats) const;

  QuantizedRows groups_of_32, groups_of_128, groups_of_256;
};

// The activations of up to `rows` rows. A row of floats has room for whole panels of outputs.
struct Activations {
  Activations(const ModelSpec& spec, std::size_t rows, BumpAllocator& memory);
  static std::size_t bytes(const ModelSpec& spec, std::size_t rows);

  MatrixView<float> stream;  // the residual stream, [embedding]
  // Input of an operation or of the output matrix, [embedding]; of a head also features, or a token
  // beside the stream.
  MatrixView<float> normed;
  MatrixView<float> q, k;      // [n_heads * key_dim], [n_kv_heads * key_dim]
  MatrixView<float> v;         // [n_kv_heads * value_dim]
  MatrixView<float> gate;      // of attention, [n_heads * value_dim]
  MatrixView<float> attended;  // [n_heads * value_dim]
  MatrixView<float> gated;     // activation(gate) * up, [width]
  MatrixView<float> output;    // of an operation, [embedding]
  QuantizedForms input_forms;  // of `normed` or of `attended`, never of both at a time
  // Of `gated`: apart from input_forms, because a thread writes its part while others still read
  // those.
  QuantizedForms gated_forms;

 private:
  struct Widths;
  Activations(const Widths& widths, std::size_t rows, BumpAllocator& memory);
};

// What one thread needs for itself, for products of up to `rows` rows with any of the weights.
struct ThreadMemory {
  ThreadMemory(const Weights& weights, const ProductKernels& kernels, std::size_t rows);

  // A chunk of rows as products read them: two forms, because gate and up, or q, k and v, can be of
  // two types.
  struct Form {
    TensorType type = TensorType::f32;
    ArrangedRows rows;
  };
  std::array<Form, 2> forms;
  std::size_t n_forms = 0;       // of the products that are being shared out
  std::span<float> gate_and_up;  // some outputs of both for a chunk of rows

 private:
  HugeBuffer buffer_;
};

}  // namespace outrider
