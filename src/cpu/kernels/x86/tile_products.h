// Products of quantized weights on tiles. Templates over the tile type of tiles.h: products_amx.cpp
// has them on the processor's tiles, product_variants_test.cpp on those in plain code.
//
//   a   activations, int8: up to 16 rows of 64 columns (of 32 for groups of 32), read in place
//   b   weights, a row the unit of [16 outputs][4 columns] that a panel is made of, unpacked
//   sum 16 int32 for each row of a: one lane per output, as everywhere
//
// Work goes in steps of columns: a step of a panel is unpacked into the first-level cache and then
// used for all rows. Tiles multiply in parallel with the vector units, so the order of instructions
// is: start the products of a step and some rows; meanwhile add the products started before, and
// unpack the next step. Each of the three is a function that is never inlined, so that its
// instructions can be counted (tests/instructions).

#pragma once

#include <algorithm>
#include <bit>

#include "base/error.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/x86/panel_avx512.h"
#include "cpu/kernels/x86/tiles.h"
#include "numerics/blocks.h"

namespace outrider::tiled {

// Sum tiles; then two each of activations and weights.
inline constexpr int kSums = 4, kA = 4, kB = 6;

struct alignas(64) SumTile {
  std::int32_t rows[kTileRows][kPanel];
};
struct alignas(64) SumRow {
  float outputs[kPanel];
};

// The rows of one call as `tiles` tiles of `height` rows each. The last two
// may share rows, which then are computed twice, to the same bits.
struct TiledRows {
  ProductInput::Quantized x;  // from the first row on
  std::size_t count, tiles, height;
  const std::int32_t* extras;  // [count][extras_stride]: see the formats
  std::size_t extras_stride;

  std::size_t first_row(std::size_t tile) const { return std::min(tile * height, count - height); }
};

// What tiles multiply at once: some columns of a panel with some tiles of rows.
struct Work {
  std::size_t step, groups;  // of columns; a panel's last step may have fewer groups than others
  std::size_t first_tile, n_tiles;
};

[[OUTRIDER_AVX512, gnu::always_inline]] inline void store_line(void* to, __m512i x) {
  _mm512_store_si512(to, x);
}

[[OUTRIDER_AVX512, gnu::always_inline]] inline void prefetch(const std::byte* at,
                                                             std::size_t bytes) {
  avx512::request<avx512::kNear>(at, bytes);
}

// K types. A step is a block of 256 columns, and scales are multiplied into the weights while they
// are unpacked, so that one sum serves the whole block. scale * w takes more than eight bits, so it
// is cut into two digits, scale * w = high * 2^kDigitBits + low, each with a sum of its own.
//
// Q4_K, Q5_K: the digits are the weight times those of the scale in base 8, at most 31 * 7 = 217,
// which one multiplication of 16-bit lanes gives for two weights.
// Q6_K: the two bytes of the 16-bit product.
//
// extras: the sums of q by sub-blocks, 16 bits each, two per word.
template <TensorType kType>
struct BlocksOf256 {
  static constexpr std::size_t kGroup = 256, kStepColumns = kGroup;
  static constexpr int kMostTiles = 2;  // that share what is loaded of b
  static constexpr int kSumsATile = 2, kAColumns = 64;
  static constexpr bool kHasMin = block_shape(kType).has_min;
  static constexpr std::size_t kExtrasAGroup = kHasMin ? 4 : 0;
  static constexpr std::size_t kSubBlocks = block_shape(kType).sub_blocks;
  static constexpr std::size_t kSubBytes = kGroup / kSubBlocks * block_shape(kType).bits * 2;
  static constexpr std::size_t kScaleBytes = body_bytes(kType) - kSubBlocks * kSubBytes;
  static constexpr int kHigh = 0, kLow = 1, kDigitBits = kHasMin ? 3 : 8;

  struct alignas(64) Step {
    std::uint8_t digits[2][4 * kTileRows][kTileBytes];  // [digit][unit]
    float d[kPanel], m[kPanel];
    std::int32_t mins[4][kPanel];  // as extras: two sub-blocks per lane
  };

  [[OUTRIDER_AVX512, gnu::noinline]] static void unpack(const std::byte* panel, std::size_t step,
                                                        std::size_t, Step& out) {
    const BlockPlace place = block_place(kType, step);
    prefetch(panel + place.body - kLine, kScaleBytes + kLine);
    _mm512_store_ps(out.d, avx512::halves(panel + place.d));
    if constexpr (kHasMin) {
      _mm512_store_ps(out.m, avx512::halves(panel + place.m));
      unpack_with_mins(panel + place.body, out);
    } else {
      unpack_q6_k(panel + place.body, out);
    }
  }

  template <int kTiles, typename Tiles>
  [[gnu::noinline]] static void multiply(Tiles& tiles, const TiledRows& rows, const Work& work,
                                         const Step& weights) {
    const std::int8_t* q = rows.x.q + work.step * kStepColumns;
    const std::size_t stride = rows.x.q_stride;
    const std::int8_t* first = q + rows.first_row(work.first_tile) * stride;
    const std::int8_t* second = q + rows.first_row(work.first_tile + kTiles - 1) * stride;
    tiles.template zero<0>();
    tiles.template zero<1>();
    if constexpr (kTiles == 2) {
      tiles.template zero<2>();
      tiles.template zero<3>();
    }
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      tiles.template load<kA>(first + i * kAColumns, stride);
      tiles.template load<kB>(weights.digits[kHigh][i * kTileRows], kTileBytes);
      multiply_high<0, kA>(tiles);
      tiles.template load<kB + 1>(weights.digits[kLow][i * kTileRows], kTileBytes);
      tiles.template multiply_by_unsigned<1, kA, kB + 1>();
      if constexpr (kTiles == 2) {
        tiles.template load<kA + 1>(second + i * kAColumns, stride);
        multiply_high<2, kA + 1>(tiles);
        tiles.template multiply_by_unsigned<3, kA + 1, kB + 1>();
      }
    }
  }

  // acc: from the first tile's first row on.
  [[OUTRIDER_AVX512, gnu::noinline]] static void add(const TiledRows& rows, const Work& work,
                                                     const Step& weights, const SumTile* sums,
                                                     SumRow* acc) {
    const __m512 d = _mm512_load_ps(weights.d), dmin = _mm512_load_ps(weights.m);
    __m512i mins[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) mins[i] = _mm512_load_si512(weights.mins[i]);
    for (std::size_t t = 0; t < work.n_tiles; ++t) {
      const std::size_t first = rows.first_row(work.first_tile + t);
      const SumTile &high = sums[2 * t + kHigh], &low = sums[2 * t + kLow];
      for (std::size_t r = 0; r < rows.height; ++r, ++acc) {
        const __m512 x_d = _mm512_set1_ps(rows.x.d[(first + r) * rows.x.d_stride + work.step]);
        const __m512i total =
            _mm512_add_epi32(_mm512_slli_epi32(_mm512_load_si512(high.rows[r]), kDigitBits),
                             _mm512_load_si512(low.rows[r]));
        __m512 term = _mm512_mul_ps(d, _mm512_cvtepi32_ps(total));
        if constexpr (kHasMin) {
          const std::int32_t* pairs =
              rows.extras + (first + r) * rows.extras_stride + work.step * kExtrasAGroup;
          __m512i minimum = _mm512_setzero_si512();
#pragma GCC unroll 4
          for (int i = 0; i < 4; ++i) {
            minimum = _mm512_dpwssd_epi32(minimum, mins[i], _mm512_set1_epi32(pairs[i]));
          }
          term = _mm512_fnmadd_ps(dmin, _mm512_cvtepi32_ps(minimum), term);
        }
        const __m512 sum = _mm512_load_ps(acc->outputs);
        _mm512_store_ps(acc->outputs, _mm512_fmadd_ps(term, x_d, sum));
      }
    }
  }

  // of one row
  [[OUTRIDER_AVX512]] static void fill_extras(const std::int16_t* sums16, std::size_t columns,
                                              std::int32_t* out) {
    for (std::size_t b = 0; b < columns / 256; ++b) {
      const __m256i sixteens =
          _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums16 + 16 * b));
      const __m256i sums = _mm256_madd_epi16(sixteens, _mm256_set1_epi16(1));
      _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 4 * b), _mm256_cvtepi32_epi16(sums));
    }
  }

 private:
  template <int kSum, int kLeft, typename Tiles>
  [[gnu::always_inline]] static inline void multiply_high(Tiles& tiles) {
    if constexpr (kHasMin)
      tiles.template multiply_by_unsigned<kSum, kLeft, kB>();
    else
      tiles.template multiply_by_signed<kSum, kLeft, kB>();
  }

  [[OUTRIDER_AVX512, gnu::always_inline]] static inline void unpack_with_mins(const std::byte* body,
                                                                              Step& out) {
    const avx512::SixBitScales small = avx512::six_bit_scales(body);
    const __m512i even_bytes = _mm512_set1_epi16(255), seven = _mm512_set1_epi8(7);
    __m512i digits[2][2];
#pragma GCC unroll 2
    for (int i = 0; i < 2; ++i) {
      store_line(out.mins[2 * i], _mm512_and_si512(small.mins[i], even_bytes));
      store_line(out.mins[2 * i + 1], _mm512_srli_epi16(small.mins[i], 8));
      digits[kHigh][i] = _mm512_and_si512(_mm512_srli_epi16(small.scales[i], 3), seven);
      digits[kLow][i] = _mm512_and_si512(small.scales[i], seven);
    }
#pragma GCC unroll 8
    for (int s = 0; s < 8; ++s) {
      // Byte kScaleByte of a lane, twice as a number of 16 bits.
      const __m512i twice =
          _mm512_add_epi32(_mm512_set4_epi32(0x800c800c, 0x80088008, 0x80048004, 0x80008000),
                           _mm512_set1_epi32(0x10001 * kScaleByte[s % 4]));
      const __m512i high = _mm512_shuffle_epi8(digits[kHigh][s / 4], twice);
      const __m512i low = _mm512_shuffle_epi8(digits[kLow][s / 4], twice);
      __m512i units[8];
      const std::byte* lines = body + kScaleBytes + s * kSubBytes;
      prefetch(lines, kSubBytes);
      avx512::read_units<block_shape(kType).bits>(lines, units);
#pragma GCC unroll 8
      for (int u = 0; u < 8; ++u) {
        const int unit = s * 8 + u;
        store_line(out.digits[kHigh][unit], _mm512_mullo_epi16(units[u], high));
        store_line(out.digits[kLow][unit], _mm512_mullo_epi16(units[u], low));
      }
    }
  }

  [[OUTRIDER_AVX512, gnu::always_inline]] static inline void unpack_q6_k(const std::byte* body,
                                                                         Step& out) {
    const __m512i low_bytes = _mm512_set1_epi16(255);
#pragma GCC unroll 1
    for (int s = 0; s < 16; ++s) {
      const __m128i stored = _mm_load_si128(reinterpret_cast<const __m128i*>(body) + s);
      const __m512i once = _mm512_cvtepu8_epi32(stored);
      // A lane's bytes: (scale, 0, scale, 0), (0, scale, 0, scale), and 32 * scale in 16 bits.
      const __m512i even = _mm512_or_si512(once, _mm512_slli_epi32(once, 16));
      const __m512i odd = _mm512_slli_epi16(even, 8);
      const __m512i bias = _mm512_srai_epi16(odd, 3);
      const std::byte* lines = body + kScaleBytes + s * kSubBytes;
      prefetch(lines, kSubBytes);
      __m512i units[4];
      avx512::read_units<6>(lines, units);
#pragma GCC unroll 4
      for (int u = 0; u < 4; ++u) {
        const int unit = s * 4 + u;
        const __m512i evens = _mm512_sub_epi16(_mm512_maddubs_epi16(units[u], even), bias);
        const __m512i odds = _mm512_sub_epi16(_mm512_maddubs_epi16(units[u], odd), bias);
        // 0xe4 is mask ? a : b.
        store_line(out.digits[kHigh][unit],
                   _mm512_ternarylogic_epi32(_mm512_srli_epi16(evens, 8), odds, low_bytes, 0xe4));
        store_line(out.digits[kLow][unit],
                   _mm512_ternarylogic_epi32(evens, _mm512_slli_epi16(odds, 8), low_bytes, 0xe4));
      }
    }
  }
};

// Types with groups of 32 columns, each of which has a term of its own: a step is four groups, each
// with a sum. Tiles are half full, and adding the terms limits the speed.
//
// extras: the sums of q by groups, as floats.
template <TensorType kType>
struct GroupsOf32 {
  static constexpr std::size_t kGroup = 32, kGroups = 4, kStepColumns = kGroups * kGroup;
  static constexpr int kMostTiles = 1;
  static constexpr int kSumsATile = kGroups, kAColumns = 32;
  static constexpr bool kHasMin = block_shape(kType).has_min;
  static constexpr std::size_t kExtrasAGroup = kHasMin ? 1 : 0;

  struct alignas(64) Step {
    std::uint8_t weights[kGroups][kTileRows / 2][kTileBytes];  // [group][unit], int8
    float d[kGroups][kPanel], m[kGroups][kPanel];
  };

  [[OUTRIDER_AVX512, gnu::noinline]] static void unpack(const std::byte* panel, std::size_t step,
                                                        std::size_t groups, Step& out) {
    constexpr BlockShape kShape = block_shape(kType);
    const __m512i bias = _mm512_set1_epi8(static_cast<char>(kShape.bias));
    for (std::size_t g = 0; g < groups; ++g) {
      const BlockPlace place = block_place(kType, step * kGroups + g);
      const std::byte* body = panel + place.body;
      prefetch(body, body_bytes(kType) + kLine);
      __m512i units[8];
      if constexpr (kShape.bits < 8) avx512::read_units<kShape.bits>(body, units);
#pragma GCC unroll 8
      for (int u = 0; u < 8; ++u) {
        if constexpr (kShape.bits == 8) units[u] = avx512::line(body + u * kLine);
        if constexpr (kShape.bias != 0) units[u] = _mm512_sub_epi8(units[u], bias);
        store_line(out.weights[g][u], units[u]);
      }
      _mm512_store_ps(out.d[g], avx512::halves(panel + place.d));
      if constexpr (kHasMin) _mm512_store_ps(out.m[g], avx512::halves(panel + place.m));
    }
  }

  template <int, typename Tiles>
  [[gnu::noinline]] static void multiply(Tiles& tiles, const TiledRows& rows, const Work& work,
                                         const Step& weights) {
    const std::size_t stride = rows.x.q_stride;
    const std::int8_t* q =
        rows.x.q + rows.first_row(work.first_tile) * stride + work.step * kStepColumns;
    multiply_group<0>(tiles, q, stride, weights);
    if (work.groups > 1) multiply_group<1>(tiles, q, stride, weights);
    if (work.groups > 2) multiply_group<2>(tiles, q, stride, weights);
    if (work.groups > 3) multiply_group<3>(tiles, q, stride, weights);
  }

  [[OUTRIDER_AVX512, gnu::noinline]] static void add(const TiledRows& rows, const Work& work,
                                                     const Step& weights, const SumTile* sums,
                                                     SumRow* acc) {
    const std::size_t first = rows.first_row(work.first_tile), first_group = work.step * kGroups;
    for (std::size_t r = 0; r < rows.height; ++r) {
      const float* x_d = rows.x.d + (first + r) * rows.x.d_stride + first_group;
      const std::int32_t* q_sums = rows.extras + (first + r) * rows.extras_stride + first_group;
      __m512 sum = _mm512_load_ps(acc[r].outputs);
      for (std::size_t g = 0; g < work.groups; ++g) {
        const __m512i product = _mm512_load_si512(sums[g].rows[r]);
        __m512 term = _mm512_mul_ps(_mm512_load_ps(weights.d[g]), _mm512_cvtepi32_ps(product));
        if constexpr (kHasMin) {
          term = _mm512_fmadd_ps(_mm512_load_ps(weights.m[g]), avx512::broadcast(q_sums + g), term);
        }
        sum = _mm512_fmadd_ps(term, _mm512_set1_ps(x_d[g]), sum);
      }
      _mm512_store_ps(acc[r].outputs, sum);
    }
  }

  [[OUTRIDER_AVX512]] static void fill_extras(const std::int16_t* sums16, std::size_t columns,
                                              std::int32_t* out) {
    for (std::size_t g = 0; g < columns / 32; ++g) {
      out[g] = std::bit_cast<std::int32_t>(static_cast<float>(sums16[2 * g] + sums16[2 * g + 1]));
    }
  }

 private:
  template <int kGroup, typename Tiles>
  [[gnu::always_inline]] static inline void multiply_group(Tiles& tiles, const std::int8_t* q,
                                                           std::size_t stride,
                                                           const Step& weights) {
    constexpr int kThisA = kA + kGroup % 2, kThisB = kB + kGroup % 2;
    tiles.template zero<kGroup>();
    tiles.template load<kThisA>(q + kGroup * 32, stride);
    tiles.template load<kThisB>(weights.weights[kGroup], kTileBytes);
    tiles.template multiply_by_signed<kGroup, kThisA, kThisB>();
  }
};

template <typename Format>
TileConfig tile_config(std::size_t height) {
  TileConfig config;
  const int rows = static_cast<int>(height);
  for (int i = 0; i < kSums; ++i) config.shape(i, rows, kTileBytes);
  for (int i = 0; i < 2; ++i) config.shape(kA + i, rows, Format::kAColumns);
  for (int i = 0; i < 2; ++i) config.shape(kB + i, Format::kAColumns / 4, kTileBytes);
  return config;
}

template <int kCount, typename Tiles>
[[gnu::always_inline]] inline void store_sums(Tiles& tiles, SumTile* sums) {
  constexpr std::size_t kRowBytes = sizeof sums->rows[0];
  tiles.template store<0>(sums[0].rows, kRowBytes);
  tiles.template store<1>(sums[1].rows, kRowBytes);
  if constexpr (kCount == 4) {
    tiles.template store<2>(sums[2].rows, kRowBytes);
    tiles.template store<3>(sums[3].rows, kRowBytes);
  }
}

// One panel: acc[tile][row of the tile] += the outputs.
template <typename Format, typename Tiles>
[[OUTRIDER_AVX512]] void add_panel(Tiles& tiles, const std::byte* panel, std::size_t columns,
                                   const TiledRows& rows, SumRow* acc) {
  constexpr std::size_t kGroups = Format::kStepColumns / Format::kGroup;
  typename Format::Step unpacked[2];
  SumTile sums[kSums];
  const std::size_t n_groups = columns / Format::kGroup;
  const std::size_t n_steps = (n_groups + kGroups - 1) / kGroups;
  const auto groups_of = [&](std::size_t step) {
    return std::min(kGroups, n_groups - step * kGroups);
  };
  Work asked = {0, 0, 0, 0};
  Format::unpack(panel, 0, groups_of(0), unpacked[0]);
  for (std::size_t step = 0; step < n_steps; ++step) {
    const typename Format::Step& weights = unpacked[step % 2];
    for (std::size_t tile = 0; tile < rows.tiles; tile += Format::kMostTiles) {
      const std::size_t n_tiles = std::min<std::size_t>(Format::kMostTiles, rows.tiles - tile);
      const Work work = {step, groups_of(step), tile, n_tiles};
      const bool all = n_tiles == Format::kMostTiles;
      if (all)
        Format::template multiply<Format::kMostTiles>(tiles, rows, work, weights);
      else
        Format::template multiply<1>(tiles, rows, work, weights);
      Format::add(rows, asked, unpacked[asked.step % 2], sums,
                  acc + asked.first_tile * rows.height);
      if (tile == 0 && step + 1 < n_steps) {
        Format::unpack(panel, step + 1, groups_of(step + 1), unpacked[(step + 1) % 2]);
      }
      if (all)
        store_sums<Format::kMostTiles * Format::kSumsATile>(tiles, sums);
      else
        store_sums<Format::kSumsATile>(tiles, sums);
      asked = work;
    }
  }
  Format::add(rows, asked, unpacked[asked.step % 2], sums, acc + asked.first_tile * rows.height);
}

// How rows are cut into tiles, and what of ArrangedRows::memory they take: a line for each row of a
// tile, to add up outputs of a panel, then the rows' extras.
template <typename Format>
struct Tiling {
  Tiling(const PackedMatrix& weights, std::size_t count)
      : count(count),
        tiles((count + kTileRows - 1) / kTileRows),
        height((count + tiles - 1) / tiles),
        extras_stride(weights.columns / Format::kGroup * Format::kExtrasAGroup) {}

  std::size_t lines() const { return tiles * height + (count * extras_stride + 15) / 16; }
  SumRow* sums(std::span<ArrangedRows::Line> memory) const {
    return reinterpret_cast<SumRow*>(memory.data());
  }
  std::int32_t* extras(std::span<ArrangedRows::Line> memory) const {
    return (memory.data() + tiles * height)->words;
  }

  std::size_t count, tiles, height, extras_stride;
};

// f.operator()<Format>() with the format of a quantized type.
template <typename F>
decltype(auto) with_format(TensorType type, const F& f) {
  switch (type) {
    case TensorType::q4_0: return f.template operator()<GroupsOf32<TensorType::q4_0>>();
    case TensorType::q4_1: return f.template operator()<GroupsOf32<TensorType::q4_1>>();
    case TensorType::q5_0: return f.template operator()<GroupsOf32<TensorType::q5_0>>();
    case TensorType::q5_1: return f.template operator()<GroupsOf32<TensorType::q5_1>>();
    case TensorType::q4_k: return f.template operator()<BlocksOf256<TensorType::q4_k>>();
    case TensorType::q5_k: return f.template operator()<BlocksOf256<TensorType::q5_k>>();
    case TensorType::q6_k: return f.template operator()<BlocksOf256<TensorType::q6_k>>();
    default: CHECK(type == TensorType::q8_0);
  }
  return f.template operator()<GroupsOf32<TensorType::q8_0>>();
}

template <typename Tiles, typename Format>
[[OUTRIDER_AVX512]] void product(const PackedMatrix& weights, const ArrangedRows& arranged,
                                 Range panels, MatrixView<float> out) {
  const Range range = arranged.rows;
  const ProductInput::Quantized& x = arranged.input.quantized(weights.type);
  const Tiling<Format> tiling(weights, range.end - range.begin);
  const TiledRows rows = {
      {x.q + range.begin * x.q_stride, x.d + range.begin * x.d_stride,
       x.sums16 + range.begin * x.sums_stride, x.q_stride, x.d_stride, x.sums_stride},
      tiling.count,
      tiling.tiles,
      tiling.height,
      tiling.extras(arranged.memory),
      tiling.extras_stride};
  Tiles tiles(tile_config<Format>(tiling.height));
  SumRow* const acc = tiling.sums(arranged.memory);
  for (std::size_t p = panels.begin; p < panels.end; ++p) {
    std::fill_n(acc, tiling.tiles * tiling.height, SumRow{});
    add_panel<Format>(tiles, weights.panel(p), weights.columns, rows, acc);
    for (std::size_t tile = 0; tile < tiling.tiles; ++tile) {
      for (std::size_t r = 0; r < tiling.height; ++r) {
        float* to = out[rows.first_row(tile) + r].data() + (p - panels.begin) * kPanel;
        _mm512_storeu_ps(to, _mm512_load_ps(acc[tile * tiling.height + r].outputs));
      }
    }
  }
}

// As ProductKernels says of them, for quantized types. Tiles read rows as they are; only what else
// they take of rows is arranged.
inline std::size_t lines(const PackedMatrix& weights, std::size_t n_rows) {
  return with_format(weights.type,
                     [&]<typename Format>() { return Tiling<Format>(weights, n_rows).lines(); });
}
inline void arrange(const PackedMatrix& weights, const ProductInput& input, Range rows,
                    ArrangedRows& arranged) {
  arranged.input = input;
  arranged.rows = rows;
  with_format(weights.type, [&]<typename Format>() {
    const Tiling<Format> tiling(weights, rows.end - rows.begin);
    CHECK(arranged.memory.size() >= tiling.lines());
    if constexpr (Format::kHasMin) {
      const ProductInput::Quantized& x = input.quantized(weights.type);
      std::int32_t* const extras = tiling.extras(arranged.memory);
      for (std::size_t r = 0; r < tiling.count; ++r) {
        Format::fill_extras(x.sums16 + (rows.begin + r) * x.sums_stride, weights.columns,
                            extras + r * tiling.extras_stride);
      }
    }
  });
}
template <typename Tiles>
void product(const PackedMatrix& weights, const ArrangedRows& arranged, Range panels,
             MatrixView<float> out) {
  with_format(weights.type,
              [&]<typename Format>() { product<Tiles, Format>(weights, arranged, panels, out); });
}

}  // namespace outrider::tiled
