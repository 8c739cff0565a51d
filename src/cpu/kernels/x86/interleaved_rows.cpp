#include "cpu/kernels/x86/interleaved_rows.h"

#include <emmintrin.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"

namespace outrider {
namespace {

// Panels are taken in blocks of this size: each group of rows is multiplied by all panels of a
// block before the next block begins. A block and a chunk of rows (cpu/product_pieces.h) fill about
// two thirds of a small second-level cache, and a group's rows stay in the first-level cache for
// several panels. Share of the int8 peak with 24 rows: Q4_K 0.80, Q6_K 0.81; with one panel for all
// groups at a time 0.78 and 0.77.
constexpr std::size_t kPanelsBytes = 128 << 10;

std::int32_t pair(std::int32_t low, std::int32_t high) {
  return std::bit_cast<std::int32_t>((static_cast<std::uint32_t>(low) & 0xffffu) |
                                     static_cast<std::uint32_t>(high) << 16);
}

// The sum of one sub-block's q; sums16: of its block.
std::int32_t sub_block_sum(const std::int16_t* sums16, std::size_t sub, std::size_t index) {
  return sub == 16 ? sums16[index] : sums16[2 * index] + sums16[2 * index + 1];
}

// q and sums16: of a block.
template <ExtraKind kKind>
std::int32_t extra_word(int bias, const std::int8_t* q, const std::int16_t* sums16, std::size_t sub,
                        std::size_t index) {
  if constexpr (kKind == ExtraKind::bias_start || kKind == ExtraKind::wide_start)
    return -bias * sub_block_sum(sums16, sub, index);
  if constexpr (kKind == ExtraKind::bias_halves) {
    std::int32_t low = 0, high = 0;
    for (std::size_t k = index * sub; k < (index + 1) * sub; k += 4) {
      low += q[k] + q[k + 1];
      high += q[k + 2] + q[k + 3];
    }
    return pair(-bias * low, -bias * high);
  }
  if constexpr (kKind == ExtraKind::float_sum) {
    return std::bit_cast<std::int32_t>(static_cast<float>(sub_block_sum(sums16, sub, index)));
  }
  if constexpr (kKind == ExtraKind::sum_pairs) {
    return pair(sub_block_sum(sums16, sub, 2 * index), sub_block_sum(sums16, sub, 2 * index + 1));
  }
}

// out[word * n + r] = word `word` of row r, for r < n; rows are `stride` bytes apart. Four rows at
// a time where possible: one store per word would cost as much as a kernel's work on one panel.
void transpose(const std::byte* rows, std::size_t stride, std::size_t n, std::size_t words,
               std::int32_t* out) {
  std::size_t r = 0;
  for (; words % 4 == 0 && r + 4 <= n; r += 4) {
    for (std::size_t w = 0; w < words; w += 4) {
      const auto load = [&](std::size_t i) {
        return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows + (r + i) * stride + 4 * w));
      };
      const auto store = [&](std::size_t i, __m128i word) {
        _mm_storeu_si128(reinterpret_cast<__m128i*>(out + (w + i) * n + r), word);
      };
      const __m128i rows01 = _mm_unpacklo_epi32(load(0), load(1));
      const __m128i rows23 = _mm_unpacklo_epi32(load(2), load(3));
      store(0, _mm_unpacklo_epi64(rows01, rows23));
      store(1, _mm_unpackhi_epi64(rows01, rows23));
      const __m128i high01 = _mm_unpackhi_epi32(load(0), load(1));
      const __m128i high23 = _mm_unpackhi_epi32(load(2), load(3));
      store(2, _mm_unpacklo_epi64(high01, high23));
      store(3, _mm_unpackhi_epi64(high01, high23));
    }
  }
  for (; r < n; ++r) {
    for (std::size_t w = 0; w < words; ++w)
      std::memcpy(out + w * n + r, rows + r * stride + 4 * w, 4);
  }
}

// 32 columns in 16 bits, each four in the order 0, 2, 1, 3.
void widen(const std::int8_t* q, std::int16_t* wide) {
  for (int i = 0; i < 32; i += 16) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(q + i));
    const __m128i even = _mm_srai_epi16(_mm_slli_epi16(bytes, 8), 8);
    const __m128i odd = _mm_srai_epi16(bytes, 8);
    __m128i* out = reinterpret_cast<__m128i*>(wide + i);
    _mm_storeu_si128(out, _mm_unpacklo_epi32(even, odd));
    _mm_storeu_si128(out + 1, _mm_unpackhi_epi32(even, odd));
  }
}

// A block's columns in 16 bits, rows side by side. q: [n][stride].
template <std::size_t kColumns>
[[gnu::always_inline]] inline void interleave_wide(const std::int8_t* q, std::size_t stride,
                                                   std::size_t n, std::int32_t* out) {
  std::int16_t wide[16][kColumns];
  CHECK(n <= std::size(wide));
  for (std::size_t r = 0; r < n; ++r) {
    for (std::size_t k = 0; k < kColumns; k += 32) widen(q + r * stride + k, wide[r] + k);
  }
  transpose(reinterpret_cast<const std::byte*>(wide), sizeof wide[0], n, kColumns / 2, out);
}

template <ExtraKind kKind>
void interleave_blocks(TensorType type, const InterleavedShape& shape, std::size_t columns,
                       const ProductInput::Quantized& x, Range rows, std::int32_t* out) {
  const BlockShape block = block_shape(type);
  const std::size_t n = rows.end - rows.begin;
  const std::size_t sub = block.elements / block.sub_blocks;
  for (std::size_t b = 0; b < columns / block.elements; ++b) {
    const std::int8_t* q = x.q + rows.begin * x.q_stride + b * block.elements;
    const std::int16_t* sums16 = x.sums16 + rows.begin * x.sums_stride + b * block.elements / 16;
    if constexpr (is_wide(kKind)) {
      if (block.elements == 32)
        interleave_wide<32>(q, x.q_stride, n, out);
      else
        interleave_wide<256>(q, x.q_stride, n, out);
    } else {
      transpose(reinterpret_cast<const std::byte*>(q), x.q_stride, n, shape.units, out);
    }
    out += shape.units * n;
    for (std::size_t r = 0; r < n; ++r) {
      std::memcpy(out + r, x.d + (rows.begin + r) * x.d_stride + b, 4);
      for (std::size_t e = 0; e < shape.extras; ++e) {
        out[(1 + e) * n + r] =
            extra_word<kKind>(block.bias, q + r * x.q_stride, sums16 + r * x.sums_stride, sub, e);
      }
    }
    out += (1 + shape.extras) * n;
  }
}

std::size_t words_per_row(const PackedMatrix& weights, const InterleavedShape& shape) {
  return weights.columns / shape.elements * shape.words();
}

// Writes rows.end - rows.begin rows to out: [blocks][words][rows].
void interleave_group(TensorType type, const InterleavedShape& shape, std::size_t columns,
                      const ProductInput& input, Range rows, std::int32_t* out) {
  const ProductInput::Quantized& x = input.quantized(type);
  const auto of_blocks = [&]<ExtraKind kKind>() {
    interleave_blocks<kKind>(type, shape, columns, x, rows, out);
  };
  switch (shape.extra_kind) {
    case ExtraKind::none:
      return transpose(reinterpret_cast<const std::byte*>(input.floats[rows.begin].data()),
                       input.floats.stride() * sizeof(float), rows.end - rows.begin, columns, out);
    case ExtraKind::bias_start: return of_blocks.operator()<ExtraKind::bias_start>();
    case ExtraKind::wide_start: return of_blocks.operator()<ExtraKind::wide_start>();
    case ExtraKind::bias_halves: return of_blocks.operator()<ExtraKind::bias_halves>();
    case ExtraKind::float_sum: return of_blocks.operator()<ExtraKind::float_sum>();
    case ExtraKind::sum_pairs: return of_blocks.operator()<ExtraKind::sum_pairs>();
  }
}

}  // namespace

std::size_t interleaved_lines(const PackedMatrix& weights, std::size_t n_rows,
                              ExtraKind bias_kind) {
  const InterleavedShape shape = interleaved_shape(weights.type, bias_kind);
  return (n_rows * words_per_row(weights, shape) + 15) / 16;
}

void interleave(const PackedMatrix& weights, const ProductInput& input, Range rows,
                ExtraKind bias_kind, std::size_t most_rows,
                PanelKernel (*choose)(TensorType, const InterleavedRows&), ArrangedRows& arranged) {
  const InterleavedShape shape = interleaved_shape(weights.type, bias_kind);
  const std::size_t n_rows = rows.end - rows.begin;
  CHECK(arranged.memory.size() >= interleaved_lines(weights, n_rows, bias_kind));
  arranged.input = input;
  arranged.rows = rows;
  arranged.groups.clear();
  const std::size_t n_groups = (n_rows + most_rows - 1) / most_rows;
  std::int32_t* words = arranged.memory.data()->words;
  for (std::size_t g = 0; g < n_groups; ++g) {
    const Range part = share(n_rows, g, n_groups);
    const std::size_t size = part.end - part.begin;
    interleave_group(weights.type, shape, weights.columns, input,
                     {rows.begin + part.begin, rows.begin + part.end}, words);
    const PanelKernel kernel = choose(weights.type, {words, weights.columns, size});
    arranged.groups.push_back({part.begin, size, words, kernel});
    words += size * words_per_row(weights, shape);
  }
}

void product_of_interleaved(const PackedMatrix& weights, const ArrangedRows& rows, Range panels,
                            MatrixView<float> out) {
  const std::size_t panels_a_block = std::max<std::size_t>(1, kPanelsBytes / weights.panel_bytes);
  for (std::size_t begin = panels.begin; begin < panels.end; begin += panels_a_block) {
    const std::size_t end = std::min(panels.end, begin + panels_a_block);
    for (const ArrangedRows::Group& group : rows.groups) {
      float* to = out[group.first].data();
      for (std::size_t p = begin; p < end; ++p) {
        group.kernel(weights.panel(p), weights.columns, group.words,
                     to + (p - panels.begin) * kPanel, out.stride());
      }
    }
  }
}

}  // namespace outrider
