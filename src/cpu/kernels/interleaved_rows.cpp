#include "cpu/kernels/interleaved_rows.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <vector>

namespace outrider {
namespace {

// Half of a small second-level cache; the other half is for the panel that passes.
constexpr std::size_t kChunkBytes = 512 << 10;

std::int32_t pair(std::int32_t low, std::int32_t high) {
  return std::bit_cast<std::int32_t>((static_cast<std::uint32_t>(low) & 0xffffu) |
                                     static_cast<std::uint32_t>(high) << 16);
}

// The sum of one sub-block's q; sums16: of its block.
std::int32_t sub_block_sum(const std::int16_t* sums16, std::size_t sub, std::size_t index) {
  return sub == 16 ? sums16[index] : sums16[2 * index] + sums16[2 * index + 1];
}

// q and sums16: of a block.
std::int32_t extra_word(ExtraKind kind, int bias, const std::int8_t* q, const std::int16_t* sums16,
                        std::size_t sub, std::size_t index) {
  switch (kind) {
    case ExtraKind::none: break;
    case ExtraKind::bias_start: return -bias * sub_block_sum(sums16, sub, index);
    case ExtraKind::bias_halves: {
      std::int32_t low = 0, high = 0;
      for (std::size_t k = index * sub; k < (index + 1) * sub; k += 4) {
        low += q[k] + q[k + 1];
        high += q[k + 2] + q[k + 3];
      }
      return pair(-bias * low, -bias * high);
    }
    case ExtraKind::float_sum:
      return std::bit_cast<std::int32_t>(static_cast<float>(sub_block_sum(sums16, sub, index)));
    case ExtraKind::sum_pairs:
      return pair(sub_block_sum(sums16, sub, 2 * index), sub_block_sum(sums16, sub, 2 * index + 1));
  }
  return 0;
}

// Writes rows.end - rows.begin rows to out: [blocks][words][rows].
void interleave(TensorType type, const InterleavedShape& shape, std::size_t columns,
                const ProductInput& input, Range rows, std::int32_t* out) {
  const std::size_t n = rows.end - rows.begin;
  if (shape.extra_kind == ExtraKind::none) {
    for (std::size_t r = 0; r < n; ++r) {
      const float* x = input.floats[rows.begin + r].data();
      for (std::size_t k = 0; k < columns; ++k) out[k * n + r] = std::bit_cast<std::int32_t>(x[k]);
    }
    return;
  }
  const BlockShape block = block_shape(type);
  const ProductInput::Quantized& x =
      block.elements == 32 ? input.groups_of_32 : input.groups_of_256;
  const std::size_t sub = block.elements / block.sub_blocks;
  for (std::size_t b = 0; b < columns / block.elements; ++b) {
    std::int32_t* words = out + b * shape.words() * n;
    for (std::size_t r = 0; r < n; ++r) {
      const std::size_t row = rows.begin + r;
      const std::int8_t* q = x.q + row * x.q_stride + b * block.elements;
      for (std::size_t u = 0; u < shape.units; ++u) std::memcpy(words + u * n + r, q + 4 * u, 4);
      std::memcpy(words + shape.units * n + r, x.d + row * x.d_stride + b, 4);
      const std::int16_t* sums16 = x.sums16 + row * x.sums_stride + b * block.elements / 16;
      for (std::size_t e = 0; e < shape.extras; ++e) {
        words[(shape.units + 1 + e) * n + r] =
            extra_word(shape.extra_kind, block.bias, q, sums16, sub, e);
      }
    }
  }
}

// This thread's room for `words` words; valid until its next call.
std::int32_t* interleaved_room(std::size_t words) {
  struct alignas(64) Line {
    std::int32_t words[16];
  };
  thread_local std::vector<Line> room;
  if (room.size() * 16 < words) room.resize((words + 15) / 16);
  return room.data()->words;
}

}  // namespace

void for_each_panel(const PackedMatrix& weights, const ProductInput& input, Range rows,
                    Range panels, MatrixView<float> out, ExtraKind bias_kind, std::size_t most_rows,
                    PanelKernel (*choose)(TensorType, std::size_t rows)) {
  const std::size_t n_rows = rows.end - rows.begin;
  const std::size_t n_groups = (n_rows + most_rows - 1) / most_rows;
  const InterleavedShape shape = interleaved_shape(weights.type, bias_kind);
  const std::size_t row_words = weights.columns / shape.elements * shape.words();
  const std::size_t group_bytes = most_rows * row_words * sizeof(std::int32_t);
  const std::size_t groups_a_chunk = std::max<std::size_t>(1, kChunkBytes / (group_bytes + 1));
  for (std::size_t first = 0; first < n_groups; first += groups_a_chunk) {
    const std::size_t last = std::min(n_groups, first + groups_a_chunk);
    const std::size_t first_row = share(n_rows, first, n_groups).begin;
    const std::size_t chunk_rows = share(n_rows, last - 1, n_groups).end - first_row;
    std::int32_t* words = interleaved_room(chunk_rows * row_words);
    const auto group_words = [&](Range group) {
      return words + (group.begin - first_row) * row_words;
    };
    for (std::size_t g = first; g < last; ++g) {
      const Range group = share(n_rows, g, n_groups);
      interleave(weights.type, shape, weights.columns, input,
                 {rows.begin + group.begin, rows.begin + group.end}, group_words(group));
    }
    for (std::size_t p = panels.begin; p < panels.end; ++p) {
      for (std::size_t g = first; g < last; ++g) {
        const Range group = share(n_rows, g, n_groups);
        const PanelKernel kernel = choose(weights.type, group.end - group.begin);
        kernel(weights.panel(p), weights.columns, group_words(group),
               out[rows.begin + group.begin].data() + p * kPanel, out.stride());
      }
    }
  }
}

}  // namespace outrider
