#include "cpu/activations.h"

#include <algorithm>
#include <variant>

#include "cpu/product_pieces.h"

namespace outrider {

QuantizedRows::QuantizedRows(std::size_t group, std::size_t rows, std::size_t columns,
                             BumpAllocator& memory)
    : group_(group) {
  const std::size_t n_groups = (columns + group - 1) / group;
  q_ = memory.take<std::int8_t>(rows, n_groups * group);
  d_ = memory.take<float>(rows, n_groups);
  sums16_ = memory.take<std::int16_t>(rows, n_groups * group / 16);
}

QuantizedRow QuantizedRows::row(std::size_t row, std::size_t column) const {
  return {&q_[row][column], &d_[row][column / group_], &sums16_[row][column / 16]};
}

ProductInput::Quantized QuantizedRows::view() const {
  return {q_[0].data(), d_[0].data(), sums16_[0].data(),
          q_.stride(),  d_.stride(),  sums16_.stride()};
}

QuantizedForms::QuantizedForms(std::size_t rows, std::size_t columns, BumpAllocator& memory)
    : groups_of_32(32, rows, columns, memory),
      groups_of_128(128, rows, columns, memory),
      groups_of_256(256, rows, columns, memory) {}

ProductInput QuantizedForms::input(MatrixView<const float> floats) const {
  return {floats, groups_of_32.view(), groups_of_128.view(), groups_of_256.view()};
}

// The widest rows that any layer asks for.
struct Activations::Widths {
  explicit Widths(const ModelSpec& spec) : embedding(spec.embedding), normed(embedding) {
    const auto widen = [](std::size_t& width, int n, int size) {
      width = std::max(width, static_cast<std::size_t>(n) * static_cast<std::size_t>(size));
    };
    if (spec.eagle) widen(normed, static_cast<int>(spec.eagle->taps.size()), spec.eagle->tap_width);
    if (spec.block) {
      widen(normed, static_cast<int>(spec.block->taps.size()), spec.block->tap_width);
      widen(normed, 1, spec.embedding + 2 * spec.block->successor_rank);
    }
    if (spec.eagle && spec.eagle->fused != EagleInput::Fused::features)
      widen(normed, 2, spec.embedding);
    for (const LayerSpec& layer : spec.layers) {
      for (const Operation& operation : layer.operations) {
        if (operation.reads_token) widen(normed, 2, spec.embedding);
        if (const auto* attention = std::get_if<Attention>(&operation.body)) {
          widen(q, attention->n_heads, attention->key_dim);
          widen(k, attention->n_kv_heads, attention->key_dim);
          widen(v, attention->n_kv_heads, attention->value_dim);
          widen(attended, attention->n_heads, attention->value_dim);
          if (attention->has_gate) widen(gate, attention->n_heads, attention->value_dim);
        } else {
          widen(mlp, std::get<Mlp>(operation.body).width, 1);
        }
      }
    }
  }

  std::size_t embedding, normed, q = 0, k = 0, v = 0, gate = 0, attended = 0, mlp = 0;
};

Activations::Activations(const ModelSpec& spec, std::size_t rows, BumpAllocator& memory)
    : Activations(Widths(spec), rows, memory) {}

// The rows of a matrix begin on lines of the cache, which are as wide as panels.
Activations::Activations(const Widths& widths, std::size_t rows, BumpAllocator& memory)
    : stream(memory.take<float>(rows, widths.embedding)),
      normed(memory.take<float>(rows, widths.normed)),
      q(memory.take<float>(rows, widths.q)),
      k(memory.take<float>(rows, widths.k)),
      v(memory.take<float>(rows, widths.v)),
      gate(memory.take<float>(rows, widths.gate)),
      attended(memory.take<float>(rows, widths.attended)),
      gated(memory.take<float>(rows, widths.mlp)),
      output(memory.take<float>(rows, widths.embedding)),
      input_forms(rows, std::max(widths.normed, widths.attended), memory),
      gated_forms(rows, widths.mlp, memory) {}

std::size_t Activations::bytes(const ModelSpec& spec, std::size_t rows) {
  BumpAllocator counter;
  const Activations counted(spec, rows, counter);
  return counter.used_bytes();
}

ThreadMemory::ThreadMemory(const Weights& weights, const ProductKernels& kernels,
                           std::size_t rows) {
  std::size_t n_lines = 0, n_rows = 0;
  const auto make_room_for = [&](const PackedMatrix& matrix) {
    const std::size_t chunk = std::min(rows, rows_per_chunk(matrix));
    n_lines = std::max(n_lines, kernels.lines(matrix, chunk));
    n_rows = std::max(n_rows, chunk);
  };
  for (std::size_t head = 0; head < weights.n_heads(); ++head) make_room_for(weights.head(head));
  for (int layer = 0; layer < weights.n_layers(); ++layer) {
    for (int role = 0; role < kRoles; ++role) {
      const PackedMatrix& matrix = weights.matrix(static_cast<Role>(role), layer);
      if (matrix.columns > 0) make_room_for(matrix);
    }
  }
  const auto lay_out = [&](BumpAllocator memory) {
    for (Form& form : forms) form.rows.memory = memory.take<ArrangedRows::Line>(n_lines);
    gate_and_up = memory.take<float>(2 * piece_outputs_max(n_rows));
    return memory.used_bytes();
  };
  buffer_ = HugeBuffer(lay_out(BumpAllocator()), /*is_filled=*/false);
  lay_out(BumpAllocator(buffer_.as<std::byte>()));
  for (Form& form : forms) form.rows.groups.reserve(n_rows);
}

}  // namespace outrider
