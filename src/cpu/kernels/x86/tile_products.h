// Products of quantized weights on tiles. Templates over the tile type of tiles.h: products_amx.cpp
// has them on the processor's tiles, product_variants_test.cpp on those in plain code.
//
//   a   activations, int8: up to 16 rows of 64 columns (of 32 for groups of 32), read in place
//   b   weights, a row the unit of [16 outputs][4 columns] that a panel is made of, unpacked
//   sum 16 int32 for each row of a: one lane per output, as everywhere
//
// Work goes in steps of columns: a step of a panel is unpacked into the first-level cache and then
// used for all rows, a tile of them at a time. Tiles multiply beside the vector units, as far as
// the processor looks ahead: so after each product or two some rows of the sums before are added.
// Unpacking, multiplying and adding are functions that are never inlined, so that their
// instructions can be counted (tests/instructions).

#pragma once

#include <algorithm>
#include <bit>
#include <type_traits>

#include "base/error.h"
#include "cpu/kernels/kernels.h"
#include "cpu/kernels/x86/panel_avx512.h"
#include "cpu/kernels/x86/tiles.h"
#include "numerics/blocks.h"

namespace outrider::tiled {

// Tile registers: kSums sums, from kA on two of activations, from kB on two of weights.
inline constexpr int kSums = 4, kA = 4, kB = 6;

struct alignas(64) SumTile {
  std::int32_t rows[kTileRows][kPanel];
};
// Outputs of a tile of rows.
struct alignas(64) OutputTile {
  float rows[kTileRows][kPanel];
};
struct NoSums {};

// The rows of one call, `count` of them, as tiles of 16; the last two may share rows, which then
// are computed twice, to the same bits. Fewer than 16 rows are a tile of as many.
struct TiledRows {
  explicit TiledRows(std::size_t count)
      : count(count),
        tiles((count + kTileRows - 1) / kTileRows),
        height(std::min<std::size_t>(count, kTileRows)) {}

  std::size_t first(std::size_t tile) const { return std::min(tile * kTileRows, count - height); }

  std::size_t count, tiles, height;
};

// Sums of a tile of rows and a step, to be added to outputs while tiles multiply what comes next.
// All 16 rows and all groups are added: those that are lacking have factors of zero.
template <typename Format>
struct Pending {
  const typename Format::Scales* scales;
  const typename Format::Factors* factors;
  const SumTile* sums;
  const OutputTile* before;  // outputs of the steps before
  float* to;                 // where they go with these
  std::size_t to_stride;     // floats from row to row
};

[[OUTRIDER_AVX512, gnu::always_inline]] inline void store_line(void* to, __m512i x) {
  _mm512_store_si512(to, x);
}

// When weights are prefetched into the second-level cache: while unpacking, a few lines ahead of
// those that it reads; or while multiplying a step, those of the next step, a part with each tile
// of rows. Memory would be idle while tiles multiply, but requests for many lines at once fill the
// buffers for misses: with up to 20 lines per tile Q4_K, Q6_K and Q4_128 gain 4 to 10 %, with 35
// Q4_128 loses 30 %. Groups of 32 gain nothing.
enum class Requests { while_unpacking, while_multiplying };
inline constexpr std::size_t kLinesPerTile = 20;

template <Requests kRequests>
[[OUTRIDER_AVX512, gnu::always_inline]] inline void prefetch(const std::byte* at,
                                                             std::size_t bytes) {
  if constexpr (kRequests == Requests::while_unpacking)
    avx512::request<avx512::kNear>(at, bytes);
  else
    avx512::request_first<avx512::kNear>(at, bytes);
}

// Types with blocks of 256 columns. A step is a block, and scales are multiplied into the weights
// while they are unpacked, so that one sum serves the whole block. scale * w takes more than eight
// bits, so it is cut into two digits, scale * w = high * 2^kDigitBits + low, each with a sum of its
// own.
//
// Q4_K, Q5_K: the digits are the weight times those of the scale in base 8, at most 31 * 7 = 217,
// which one multiplication of 16-bit lanes gives for two weights.
// Q2_K: at most 3 * 15 = 45, a single digit.
// Scales with a sign: the two bytes of the 16-bit product.
template <TensorType kType>
struct BlocksOf256 {
  static constexpr std::size_t kGroup = 256, kStepColumns = kGroup;
  static constexpr std::size_t kStepBytes = bytes_of_blocks(kType, 1);
  static constexpr int kAColumns = 64;
  static constexpr bool kHasMin = block_shape(kType).has_min;
  static constexpr std::size_t kSubBlocks = block_shape(kType).sub_blocks;
  static constexpr int kUnits = static_cast<int>(kGroup / kSubBlocks / 4);  // of a sub-block
  static constexpr int kPairs = static_cast<int>(kSubBlocks / 2);
  static constexpr std::size_t kScaleBytes = scale_bytes(kType);
  static constexpr bool kHasHigh = kType != TensorType::q2_k;
  static constexpr int kLow = 0, kHigh = 1, kDigits = kHasHigh ? 2 : 1;
  static constexpr int kDigitBits = kHasMin ? 3 : 8;

  struct alignas(64) Weights {
    std::uint8_t digits[kDigits][4 * kTileRows][kTileBytes];  // [digit][unit]
  };
  struct alignas(64) Scales {
    float d[kPanel], m[kPanel];
    std::int32_t mins[kPairs][kPanel];  // two sub-blocks per lane, as in Sums
  };

  // Of a tile of rows for a step.
  struct Sums {
    std::int32_t pairs[kTileRows][kPairs];  // the sums of q by sub-blocks, 16 bits each
  };
  struct alignas(64) Factors : std::conditional_t<kHasMin, Sums, NoSums> {
    float d[kTileRows];
  };

  template <Requests kRequests>
  [[OUTRIDER_AVX512, gnu::noinline]] static void unpack(const std::byte* panel, std::size_t step,
                                                        std::size_t, Weights& weights,
                                                        Scales& scales) {
    const BlockPlace place = block_place(kType, step);
    prefetch<kRequests>(panel + place.body - kLine, kScaleBytes + kLine);
    _mm512_store_ps(scales.d, avx512::factors<kType>(panel + place.d));
    if constexpr (kHasMin) {
      _mm512_store_ps(scales.m, avx512::halves(panel + place.m));
      unpack_with_mins<kRequests>(panel + place.body, weights, scales);
    } else {
      unpack_with_signs<kRequests>(panel + place.body, weights);
    }
  }

  // sums = a tile of rows times the weights of a step; q: the first row's first column of it.
  // Meanwhile adds what is pending, if there is anything.
  template <bool kAdds, typename Tiles>
  [[OUTRIDER_AVX512, gnu::noinline]] static void multiply(Tiles& tiles, const std::int8_t* q,
                                                          std::size_t stride, std::size_t,
                                                          const Weights& weights, SumTile* sums,
                                                          const Pending<BlocksOf256>& pending) {
    Adder add(pending);  // not const: GCC 12 would keep it in memory
    if constexpr (kHasHigh) tiles.template zero<kHigh>();
    tiles.template zero<kLow>();
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      tiles.template load<kA>(q + i * kAColumns, stride);
      if constexpr (kHasHigh)
        tiles.template load<kB>(weights.digits[kHigh][i * kTileRows], kTileBytes);
      if constexpr (kHasHigh && kHasMin)
        tiles.template multiply_by_unsigned<kHigh, kA, kB>();
      else if constexpr (kHasHigh)
        tiles.template multiply_by_signed<kHigh, kA, kB>();
      if constexpr (kAdds) add.template rows<2>(4 * i);
      tiles.template load<kB + 1>(weights.digits[kLow][i * kTileRows], kTileBytes);
      tiles.template multiply_by_unsigned<kLow, kA, kB + 1>();
      if constexpr (kAdds) add.template rows<2>(4 * i + 2);
    }
    if constexpr (kHasHigh) tiles.template store<kHigh>(sums[kHigh].rows, kTileBytes);
    tiles.template store<kLow>(sums[kLow].rows, kTileBytes);
  }

  [[OUTRIDER_AVX512, gnu::noinline]] static void add(const Pending<BlocksOf256>& pending) {
    Adder add(pending);
    for (int r = 0; r < kTileRows; r += 4) add.template rows<4>(r);
  }

  // x: from the first of the tile's `n` rows on.
  [[OUTRIDER_AVX512]] static void fill(const ProductInput::Quantized& x, std::size_t n,
                                       std::size_t step, std::size_t, Factors& out) {
    if (n < kTileRows) out = {};
    for (std::size_t r = 0; r < n; ++r) {
      out.d[r] = x.d[r * x.d_stride + step];
      if constexpr (kHasMin) {
        const std::int16_t* sums16 = x.sums16 + r * x.sums_stride + kGroup / 16 * step;
        const __m256i sixteens = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(sums16));
        if constexpr (kPairs == 8) {
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(out.pairs[r]), sixteens);
        } else {
          const __m256i sums = _mm256_madd_epi16(sixteens, _mm256_set1_epi16(1));
          _mm_storeu_si128(reinterpret_cast<__m128i*>(out.pairs[r]), _mm256_cvtepi32_epi16(sums));
        }
      }
    }
  }

 private:
  class Adder {
   public:
    [[OUTRIDER_AVX512, gnu::always_inline]] explicit Adder(const Pending<BlocksOf256>& pending)
        : factors_(*pending.factors),
          sums_(pending.sums),
          before_(*pending.before),
          to_(pending.to),
          to_stride_(pending.to_stride),
          d_(_mm512_load_ps(pending.scales->d)) {
      if constexpr (kHasMin) {
        dmin_ = _mm512_load_ps(pending.scales->m);
#pragma GCC unroll 8
        for (int i = 0; i < kPairs; ++i) mins_[i] = _mm512_load_si512(pending.scales->mins[i]);
      }
    }

    template <int kCount>
    [[OUTRIDER_AVX512, gnu::always_inline]] void rows(int first) const {
#pragma GCC unroll 4
      for (int r = first; r < first + kCount; ++r) {
        __m512i total = _mm512_load_si512(sums_[kLow].rows[r]);
        if constexpr (kHasHigh) {
          const __m512i high = _mm512_load_si512(sums_[kHigh].rows[r]);
          total = _mm512_add_epi32(_mm512_slli_epi32(high, kDigitBits), total);
        }
        __m512 term = _mm512_mul_ps(d_, _mm512_cvtepi32_ps(total));
        if constexpr (kHasMin) {
          const std::int32_t* pairs = factors_.pairs[r];
          __m512i minimum = _mm512_setzero_si512();
#pragma GCC unroll 8
          for (int i = 0; i < kPairs; ++i) {
            minimum = _mm512_dpwssd_epi32(minimum, mins_[i], _mm512_set1_epi32(pairs[i]));
          }
          term = _mm512_fnmadd_ps(dmin_, _mm512_cvtepi32_ps(minimum), term);
        }
        const __m512 x_d = _mm512_set1_ps(factors_.d[r]);
        const __m512 before = _mm512_load_ps(before_.rows[r]);
        _mm512_storeu_ps(to_ + r * to_stride_, _mm512_fmadd_ps(term, x_d, before));
      }
    }

   private:
    const Factors& factors_;
    const SumTile* sums_;
    const OutputTile& before_;
    float* to_;
    std::size_t to_stride_;
    __m512 d_, dmin_;
    __m512i mins_[kPairs];
  };

  template <Requests kRequests>
  [[OUTRIDER_AVX512, gnu::always_inline]] static inline void unpack_with_mins(const std::byte* body,
                                                                              Weights& weights,
                                                                              Scales& out) {
    const __m512i even_bytes = _mm512_set1_epi16(255), seven = _mm512_set1_epi8(7);
    avx512::ScalesAndMins<kType> small;
    if constexpr (kType == TensorType::q2_k)
      small = avx512::q2_k_scales(body);
    else
      small = avx512::six_bit_scales<kType>(body);
    __m512i digits[kDigits][small.kRegisters];
#pragma GCC unroll 4
    for (int i = 0; i < small.kRegisters; ++i) {
      store_line(out.mins[2 * i], _mm512_and_si512(small.mins[i], even_bytes));
      store_line(out.mins[2 * i + 1], _mm512_srli_epi16(small.mins[i], 8));
      digits[kLow][i] = small.scales[i];
      if constexpr (kHasHigh) {
        digits[kHigh][i] = _mm512_and_si512(_mm512_srli_epi16(small.scales[i], 3), seven);
        digits[kLow][i] = _mm512_and_si512(small.scales[i], seven);
      }
    }
#pragma GCC unroll 16
    for (int s = 0; s < static_cast<int>(kSubBlocks); ++s) {
      // Byte kScaleByte of a lane, twice as a number of 16 bits.
      const __m512i twice =
          _mm512_add_epi32(_mm512_set4_epi32(0x800c800c, 0x80088008, 0x80048004, 0x80008000),
                           _mm512_set1_epi32(0x10001 * kScaleByte[s % 4]));
      const __m512i low = _mm512_shuffle_epi8(digits[kLow][s / 4], twice);
      const __m512i high = _mm512_shuffle_epi8(digits[kDigits - 1][s / 4], twice);
      __m512i units[kUnits];
      const std::byte* lines = body + kScaleBytes;
      prefetch<kRequests>(lines + sub_block_own_begin(kType, s), sub_block_own_bytes(kType, s));
      asm volatile("" : : : "memory");  // else GCC asks for all lines of the block first
      avx512::read_units<kType>(lines + sub_block_begin(kType, s), s % 2, units);
#pragma GCC unroll 8
      for (int u = 0; u < kUnits; ++u) {
        const int unit = s * kUnits + u;
        if constexpr (kHasHigh)
          store_line(weights.digits[kHigh][unit], _mm512_mullo_epi16(units[u], high));
        store_line(weights.digits[kLow][unit], _mm512_mullo_epi16(units[u], low));
      }
    }
  }

  template <Requests kRequests>
  [[OUTRIDER_AVX512, gnu::always_inline]] static inline void unpack_with_signs(
      const std::byte* body, Weights& out) {
#pragma GCC unroll 1
    for (int pair = 0; pair < kPairs; ++pair) {
      unpack_sub_block<kRequests, 0>(body, pair, out);
      unpack_sub_block<kRequests, 1>(body, pair, out);
    }
  }

  template <Requests kRequests, int kSecond>
  [[OUTRIDER_AVX512, gnu::always_inline]] static inline void unpack_sub_block(const std::byte* body,
                                                                              int pair,
                                                                              Weights& out) {
    constexpr int kBiasBits = std::countr_zero(static_cast<unsigned>(block_shape(kType).bias));
    const __m512i low_bytes = _mm512_set1_epi16(255);
    const int s = 2 * pair + kSecond;
    const __m128i stored = _mm_load_si128(reinterpret_cast<const __m128i*>(body) + s);
    const __m512i once = _mm512_cvtepu8_epi32(stored);
    // A lane's bytes: (scale, 0, scale, 0), (0, scale, 0, scale), and bias * scale in 16 bits.
    const __m512i even = _mm512_or_si512(once, _mm512_slli_epi32(once, 16));
    const __m512i odd = _mm512_slli_epi16(even, 8);
    const __m512i bias = _mm512_srai_epi16(odd, 8 - kBiasBits);
    const std::byte* lines = body + kScaleBytes;
    prefetch<kRequests>(lines + sub_block_own_begin(kType, s), sub_block_own_bytes(kType, s));
    __m512i units[kUnits];
    avx512::read_units<kType>(lines + sub_block_begin(kType, s), kSecond, units);
#pragma GCC unroll 8
    for (int u = 0; u < kUnits; ++u) {
      const int unit = s * kUnits + u;
      const __m512i evens = _mm512_sub_epi16(_mm512_maddubs_epi16(units[u], even), bias);
      const __m512i odds = _mm512_sub_epi16(_mm512_maddubs_epi16(units[u], odd), bias);
      // 0xe4 is mask ? a : b.
      store_line(out.digits[kHigh][unit],
                 _mm512_ternarylogic_epi32(_mm512_srli_epi16(evens, 8), odds, low_bytes, 0xe4));
      store_line(out.digits[kLow][unit],
                 _mm512_ternarylogic_epi32(evens, _mm512_slli_epi16(odds, 8), low_bytes, 0xe4));
    }
  }
};

// Types with one sum a group: a step is four groups. Of groups of 32 columns tiles are half full,
// and adding the terms limits the speed. Q4_128's scales are multiplied into its weights while they
// are unpacked, to at most 15 * 8 = 120.
template <TensorType kType>
struct Groups {
  static constexpr BlockShape kShape = block_shape(kType);
  static constexpr std::size_t kGroup = kShape.elements, kGroups = 4;
  static constexpr std::size_t kStepColumns = kGroups * kGroup;
  static constexpr std::size_t kStepBytes = bytes_of_blocks(kType, kGroups);
  static constexpr int kAColumns = std::min<int>(kGroup, 64);
  static constexpr bool kHasMin = kShape.has_min;

  struct alignas(64) Weights {
    std::uint8_t groups[kGroups][kGroup / 4][kTileBytes];  // [group][unit], int8
  };
  struct alignas(64) Scales {
    float d[kGroups][kPanel], m[kGroups][kPanel];
  };

  // Of a tile of rows for a step.
  struct Sums {
    float sums[kTileRows][kGroups];  // of q by groups
  };
  struct alignas(64) Factors : std::conditional_t<kHasMin, Sums, NoSums> {
    float d[kTileRows][kGroups];
  };

  template <Requests kRequests>
  [[OUTRIDER_AVX512, gnu::noinline]] static void unpack(const std::byte* panel, std::size_t step,
                                                        std::size_t groups, Weights& weights,
                                                        Scales& scales) {
    for (std::size_t g = 0; g < groups; ++g) {
      const BlockPlace place = block_place(kType, step * kGroups + g);
      if constexpr (kShape.sub_blocks > 1)
        unpack_scaled<kRequests>(panel + place.body, weights.groups[g]);
      else
        unpack_group<kRequests>(panel + place.body, weights.groups[g]);
      _mm512_store_ps(scales.d[g], avx512::halves(panel + place.d));
      if constexpr (kHasMin) _mm512_store_ps(scales.m[g], avx512::halves(panel + place.m));
    }
    for (std::size_t g = groups; g < kGroups; ++g) {
      _mm512_store_ps(scales.d[g], _mm512_setzero_ps());
      _mm512_store_ps(scales.m[g], _mm512_setzero_ps());
    }
  }

  // sums = a tile of rows times the weights of a step; q: the first row's first column of it.
  // Meanwhile adds what is pending, if there is anything.
  template <bool kAdds, typename Tiles>
  [[OUTRIDER_AVX512, gnu::noinline]] static void multiply(Tiles& tiles, const std::int8_t* q,
                                                          std::size_t stride, std::size_t groups,
                                                          const Weights& weights, SumTile* sums,
                                                          const Pending<Groups>& pending) {
    Adder add(pending);
    multiply_group<0>(tiles, q, stride, weights);
    if constexpr (kAdds) add.template rows<4>(0);
    multiply_group<1>(tiles, q + (groups > 1 ? kGroup : 0), stride, weights);
    if constexpr (kAdds) add.template rows<4>(4);
    multiply_group<2>(tiles, q + (groups > 2 ? 2 * kGroup : 0), stride, weights);
    if constexpr (kAdds) add.template rows<4>(8);
    multiply_group<3>(tiles, q + (groups > 3 ? 3 * kGroup : 0), stride, weights);
    if constexpr (kAdds) add.template rows<4>(12);
    tiles.template store<0>(sums[0].rows, kTileBytes);
    tiles.template store<1>(sums[1].rows, kTileBytes);
    tiles.template store<2>(sums[2].rows, kTileBytes);
    tiles.template store<3>(sums[3].rows, kTileBytes);
  }

  [[OUTRIDER_AVX512, gnu::noinline]] static void add(const Pending<Groups>& pending) {
    Adder add(pending);
    for (int r = 0; r < kTileRows; r += 4) add.template rows<4>(r);
  }

  // x: from the first of the tile's `n` rows on.
  static void fill(const ProductInput::Quantized& x, std::size_t n, std::size_t step,
                   std::size_t groups, Factors& out) {
    if (n < kTileRows || groups < kGroups) out = {};
    for (std::size_t r = 0; r < n; ++r) {
      for (std::size_t g = 0; g < groups; ++g) {
        const std::size_t group = step * kGroups + g;
        out.d[r][g] = x.d[r * x.d_stride + group];
        if constexpr (kHasMin) {
          const std::int16_t* sums16 = x.sums16 + r * x.sums_stride + 2 * group;
          out.sums[r][g] = static_cast<float>(sums16[0] + sums16[1]);
        }
      }
    }
  }

 private:
  class Adder {
   public:
    [[OUTRIDER_AVX512, gnu::always_inline]] explicit Adder(const Pending<Groups>& pending)
        : factors_(*pending.factors),
          sums_(pending.sums),
          before_(*pending.before),
          to_(pending.to),
          to_stride_(pending.to_stride) {
#pragma GCC unroll 4
      for (std::size_t g = 0; g < kGroups; ++g) {
        d_[g] = _mm512_load_ps(pending.scales->d[g]);
        if constexpr (kHasMin) m_[g] = _mm512_load_ps(pending.scales->m[g]);
      }
    }

    template <int kCount>
    [[OUTRIDER_AVX512, gnu::always_inline]] void rows(int first) const {
#pragma GCC unroll 4
      for (int r = first; r < first + kCount; ++r) {
        __m512 sum = _mm512_load_ps(before_.rows[r]);
#pragma GCC unroll 4
        for (std::size_t g = 0; g < kGroups; ++g) {
          __m512 term =
              _mm512_mul_ps(d_[g], _mm512_cvtepi32_ps(_mm512_load_si512(sums_[g].rows[r])));
          if constexpr (kHasMin) {
            term = _mm512_fmadd_ps(m_[g], _mm512_set1_ps(factors_.sums[r][g]), term);
          }
          sum = _mm512_fmadd_ps(term, _mm512_set1_ps(factors_.d[r][g]), sum);
        }
        _mm512_storeu_ps(to_ + r * to_stride_, sum);
      }
    }

   private:
    const Factors& factors_;
    const SumTile* sums_;
    const OutputTile& before_;
    float* to_;
    std::size_t to_stride_;
    __m512 d_[kGroups], m_[kGroups];
  };

  template <Requests kRequests>
  [[OUTRIDER_AVX512, gnu::always_inline]] static inline void unpack_group(
      const std::byte* body, std::uint8_t (*out)[kTileBytes]) {
    const __m512i bias = _mm512_set1_epi8(static_cast<char>(kShape.bias));
    prefetch<kRequests>(body, body_bytes(kType) + kLine);
    __m512i units[8];
    if constexpr (kShape.bits < 8) avx512::read_units<kType>(body, 0, units);
#pragma GCC unroll 8
    for (int u = 0; u < 8; ++u) {
      if constexpr (kShape.bits == 8) units[u] = avx512::line(body + u * kLine);
      if constexpr (kShape.bias != 0) units[u] = _mm512_sub_epi8(units[u], bias);
      store_line(out[u], units[u]);
    }
  }

  // Q4_128: scale * (q - 8) in bytes; the 16-bit lanes that a product is made in hold two weights.
  template <Requests kRequests>
  [[OUTRIDER_AVX512, gnu::always_inline]] static inline void unpack_scaled(
      const std::byte* body, std::uint8_t (*out)[kTileBytes]) {
    constexpr std::size_t kSubBytes = kShape.sub_columns() * kShape.bits * 2;
    const __m512i scales = avx512::line(body);
    prefetch<kRequests>(body - kLine, 2 * kLine);
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) {
      const __m512i pair = avx512::four_bit_pair(scales, j);
#pragma GCC unroll 2
      for (int second = 0; second < 2; ++second) {
        const int s = 2 * j + second;
        // Byte 0 or 2 of a lane, twice as a number of 16 bits.
        const __m512i twice =
            _mm512_add_epi32(_mm512_set4_epi32(0x800c800c, 0x80088008, 0x80048004, 0x80008000),
                             _mm512_set1_epi32(0x10001 * 2 * second));
        const __m512i scale = _mm512_shuffle_epi8(pair, twice);
        const __m512i bias = _mm512_mullo_epi16(scale, _mm512_set1_epi16(8 * 0x101));
        const std::byte* lines = body + scale_bytes(kType) + s * kSubBytes;
        prefetch<kRequests>(lines, kSubBytes);
        __m512i units[4];
        avx512::read_units<kType>(lines, second, units);
#pragma GCC unroll 4
        for (int u = 0; u < 4; ++u) {
          const __m512i scaled = _mm512_mullo_epi16(units[u], scale);
          store_line(out[4 * s + u], _mm512_sub_epi8(scaled, bias));
        }
      }
    }
  }

  // q: of the group; of another, where the step lacks the group.
  template <int kIndex, typename Tiles>
  [[gnu::always_inline]] static inline void multiply_group(Tiles& tiles, const std::int8_t* q,
                                                           std::size_t stride,
                                                           const Weights& weights) {
    constexpr int kThisA = kA + kIndex % 2, kThisB = kB + kIndex % 2;
    tiles.template zero<kIndex>();
#pragma GCC unroll 2
    for (int i = 0; i < static_cast<int>(kGroup) / kAColumns; ++i) {
      tiles.template load<kThisA>(q + i * kAColumns, stride);
      tiles.template load<kThisB>(weights.groups[kIndex][i * kTileRows], kTileBytes);
      tiles.template multiply_by_signed<kIndex, kThisA, kThisB>();
    }
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

// A panel's columns in steps of up to kGroups groups.
template <typename Format>
struct Steps {
  static constexpr std::size_t kGroups = Format::kStepColumns / Format::kGroup;

  explicit Steps(std::size_t columns)
      : groups(columns / Format::kGroup), count((groups + kGroups - 1) / kGroups) {}

  std::size_t groups_of(std::size_t step) const {
    return std::min(kGroups, groups - step * kGroups);
  }

  std::size_t groups, count;
};

// One panel. factors: [step][tile]; out: the first row's first output. A tile's outputs grow step
// by step in `outputs` and go to `out` with the last.
template <typename Format, Requests kRequests, typename Tiles>
[[OUTRIDER_AVX512]] void multiply_panel(Tiles& tiles, const std::byte* panel,
                                        const Steps<Format>& steps, const TiledRows& rows,
                                        const ProductInput::Quantized& x,
                                        const typename Format::Factors* factors,
                                        OutputTile* outputs, float* out, std::size_t out_stride) {
  static constexpr OutputTile kZeros = {};
  // One buffer, not two in turn like those of what is still to be added: weights, sums and the
  // rows' columns have to stay in the first-level cache.
  typename Format::Weights weights;
  typename Format::Scales scales[2];
  SumTile sums[2][kSums];
  Pending<Format> pending = {scales, factors, sums[1], &kZeros, outputs->rows[0], kPanel};
  bool any = false;
  int turn = 0;
  Format::template unpack<kRequests>(panel, 0, steps.groups_of(0), weights, scales[0]);
  for (std::size_t step = 0; step < steps.count; ++step) {
    const std::size_t groups = steps.groups_of(step);
    // All 16 rows of a tile are stored, and `out` may have fewer.
    const bool to_out = step + 1 == steps.count && rows.height == kTileRows;
    for (std::size_t tile = 0; tile < rows.tiles; ++tile) {
      const std::size_t first = rows.first(tile);
      const std::int8_t* q = x.q + first * x.q_stride + step * Format::kStepColumns;
      SumTile* own = sums[turn];
      if constexpr (kRequests == Requests::while_multiplying) {
        const Range own = share(Format::kStepBytes / kLine, tile, rows.tiles);
        const std::byte* next = panel + (step + 1) * Format::kStepBytes;
        for (std::size_t i = own.begin; i < own.end; ++i)
          _mm_prefetch(reinterpret_cast<const char*>(next + i * kLine), _MM_HINT_T1);
      }
      if (any)
        Format::template multiply<true>(tiles, q, x.q_stride, groups, weights, own, pending);
      else
        Format::template multiply<false>(tiles, q, x.q_stride, groups, weights, own, pending);
      pending = {.scales = &scales[step % 2],
                 .factors = factors++,
                 .sums = own,
                 .before = step == 0 ? &kZeros : outputs + tile,
                 .to = to_out ? out + first * out_stride : outputs[tile].rows[0],
                 .to_stride = to_out ? out_stride : kPanel};
      any = true;
      turn = 1 - turn;
      if (tile + 1 == rows.tiles && step + 1 < steps.count) {
        Format::template unpack<kRequests>(panel, step + 1, steps.groups_of(step + 1), weights,
                                           scales[(step + 1) % 2]);
      }
    }
  }
  Format::add(pending);
  if (rows.height == kTileRows) return;
  for (std::size_t r = 0; r < rows.height; ++r)
    _mm512_storeu_ps(out + r * out_stride, _mm512_load_ps(outputs->rows[r]));
}

// What rows take of ArrangedRows::memory: a panel's outputs, [tile], and factors, [step][tile].
template <typename Format>
struct Layout {
  Layout(const PackedMatrix& weights, std::size_t n_rows) : rows(n_rows), steps(weights.columns) {}

  std::size_t lines() const {
    using Line = ArrangedRows::Line;
    constexpr std::size_t kOutputs = sizeof(OutputTile) / sizeof(Line);
    constexpr std::size_t kFactors = sizeof(typename Format::Factors) / sizeof(Line);
    return rows.tiles * (kOutputs + steps.count * kFactors);
  }
  OutputTile* outputs(std::span<ArrangedRows::Line> memory) const {
    return reinterpret_cast<OutputTile*>(memory.data());
  }
  typename Format::Factors* factors(std::span<ArrangedRows::Line> memory) const {
    return reinterpret_cast<typename Format::Factors*>(outputs(memory) + rows.tiles);
  }

  TiledRows rows;
  Steps<Format> steps;
};

// The quantized rows from `first` on.
inline ProductInput::Quantized rows_from(const ProductInput::Quantized& x, std::size_t first) {
  return {x.q + first * x.q_stride,
          x.d + first * x.d_stride,
          x.sums16 + first * x.sums_stride,
          x.q_stride,
          x.d_stride,
          x.sums_stride};
}

// f.operator()<Format>() with the format of a quantized type.
template <typename F>
decltype(auto) with_format(TensorType type, const F& f) {
  switch (type) {
    case TensorType::q4_0: return f.template operator()<Groups<TensorType::q4_0>>();
    case TensorType::q4_1: return f.template operator()<Groups<TensorType::q4_1>>();
    case TensorType::q5_0: return f.template operator()<Groups<TensorType::q5_0>>();
    case TensorType::q5_1: return f.template operator()<Groups<TensorType::q5_1>>();
    case TensorType::q2_k: return f.template operator()<BlocksOf256<TensorType::q2_k>>();
    case TensorType::q3_k: return f.template operator()<BlocksOf256<TensorType::q3_k>>();
    case TensorType::q4_k: return f.template operator()<BlocksOf256<TensorType::q4_k>>();
    case TensorType::q5_k: return f.template operator()<BlocksOf256<TensorType::q5_k>>();
    case TensorType::q6_k: return f.template operator()<BlocksOf256<TensorType::q6_k>>();
    case TensorType::iq4_nl: return f.template operator()<Groups<TensorType::iq4_nl>>();
    case TensorType::iq4_xs: return f.template operator()<BlocksOf256<TensorType::iq4_xs>>();
    case TensorType::q8_256: return f.template operator()<BlocksOf256<TensorType::q8_256>>();
    case TensorType::q4_128: return f.template operator()<Groups<TensorType::q4_128>>();
    default: CHECK(type == TensorType::q8_0);
  }
  return f.template operator()<Groups<TensorType::q8_0>>();
}

template <typename Tiles, typename Format>
[[OUTRIDER_AVX512]] void product(const PackedMatrix& weights, const ArrangedRows& arranged,
                                 Range panels, MatrixView<float> out) {
  const Range range = arranged.rows;
  const ProductInput::Quantized x = rows_from(arranged.input.quantized(weights.type), range.begin);
  const Layout<Format> layout(weights, range.end - range.begin);
  Tiles tiles(tile_config<Format>(layout.rows.height));
  const auto multiply = [&]<Requests kRequests>() {
    for (std::size_t p = panels.begin; p < panels.end; ++p) {
      multiply_panel<Format, kRequests>(tiles, weights.panel(p), layout.steps, layout.rows, x,
                                        layout.factors(arranged.memory),
                                        layout.outputs(arranged.memory),
                                        out[0].data() + (p - panels.begin) * kPanel, out.stride());
    }
  };
  if (Format::kGroup > 32 && Format::kStepBytes / kLine <= kLinesPerTile * layout.rows.tiles)
    multiply.template operator()<Requests::while_multiplying>();
  else
    multiply.template operator()<Requests::while_unpacking>();
}

// As ProductKernels says of them, for quantized types. Tiles read rows as they are; only what else
// they take of rows is arranged.
inline std::size_t lines(const PackedMatrix& weights, std::size_t n_rows) {
  return with_format(weights.type,
                     [&]<typename Format>() { return Layout<Format>(weights, n_rows).lines(); });
}
inline void arrange(const PackedMatrix& weights, const ProductInput& input, Range rows,
                    ArrangedRows& arranged) {
  arranged.input = input;
  arranged.rows = rows;
  with_format(weights.type, [&]<typename Format>() {
    const Layout<Format> layout(weights, rows.end - rows.begin);
    CHECK(arranged.memory.size() >= layout.lines());
    const ProductInput::Quantized x = rows_from(input.quantized(weights.type), rows.begin);
    typename Format::Factors* factors = layout.factors(arranged.memory);
    for (std::size_t step = 0; step < layout.steps.count; ++step) {
      for (std::size_t tile = 0; tile < layout.rows.tiles; ++tile) {
        Format::fill(rows_from(x, layout.rows.first(tile)), layout.rows.height, step,
                     layout.steps.groups_of(step), *factors++);
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
