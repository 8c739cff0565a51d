// The kernels of attention_kernels.h that add up values, merge sums and convert for the cache, over
// a vector type (vector_functions.h), one channel per lane; and the table of all kernels. Up to six
// queries share the registers of values.

#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "cpu/kernels/attention_kernels.h"
#include "cpu/kernels/attention_scores.h"
#include "cpu/kernels/query_blocks.h"
#include "cpu/kernels/vector_functions.h"
#include "numerics/half.h"

namespace outrider {

template <class V>
struct AttentionOn : Functions<V> {
  using typename V::Floats;
  using typename V::Ints;
  using typename V::Lanes;
  using typename V::Mask;
  using V::add, V::subtract, V::multiply, V::divide, V::fused, V::all, V::load, V::store, V::larger;
  using V::lesser, V::lanes, V::either, V::either_nan, V::set_lanes, V::kWidth;
  using Scores = AttentionScores<V>;

  // Vectors of channels that a block of queries shares.
  static constexpr int kValueVectors = V::kRegisters >= 32 ? 4 : 2;

  template <bool kWhole, typename T>
  [[gnu::always_inline]] static inline Floats load_lanes(const Lanes& some, const T* at) {
    return kWhole ? load(at) : load(some, at);
  }
  template <bool kWhole>
  [[gnu::always_inline]] static inline void store_lanes(const Lanes& some, float* at, Floats x) {
    kWhole ? store(at, x) : store(some, at, x);
  }

  // One vector of channels without the keys whose weight is zero, added to `sum`.
  template <typename Kept>
  [[gnu::noinline]] static Floats values_present(const float* p, const Kept* values,
                                                 std::size_t stride, std::size_t count, Lanes some,
                                                 Floats sum) {
    for (std::size_t j = 0; j < count; ++j) {
      if (p[j] == 0) continue;
      sum = fused(all(p[j]), load(some, values + j * stride), sum);
    }
    return sum;
  }

  // kVectors vectors of channels for kQueries queries; of one vector the lanes `some`. A key of
  // weight 0 adds nothing, unless its value is NaN: that is detected in the sums, which are then
  // computed again without it.
  template <int kQueries, int kVectors, bool kMerge, typename Kept>
  static void values_channels(MatrixView<const float> p, const Kept* values, std::size_t stride,
                              std::size_t count, Lanes some, const Kept* next,
                              const MergeFactors& merge, MatrixView<float> out,
                              std::size_t channel) {
    constexpr bool kWhole = kVectors > 1;
    const float* weights[kQueries];
    float* to[kQueries];
    for (int q = 0; q < kQueries; ++q) {
      weights[q] = p[q].data();
      to[q] = &out[q][channel];
    }
    Floats sums[kQueries][kVectors];
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v)
        sums[q][v] = kMerge ? all(0.0f) : load_lanes<kWhole>(some, to[q] + v * kWidth);
    const Kept* at = values + channel;
    for (std::size_t j = 0; j < count; ++j, at += stride) {
      if (next != nullptr) prefetch(next + j * stride, stride * sizeof(Kept));
      Floats value[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) value[v] = load_lanes<kWhole>(some, at + v * kWidth);
#pragma GCC unroll 8
      for (int q = 0; q < kQueries; ++q) {
        const Floats weight = all(weights[q][j]);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sums[q][v] = fused(weight, value[v], sums[q][v]);
      }
    }
    Mask nans = either_nan(sums[0][0], sums[0][0]);
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; v += 2)
        nans = either(nans, either_nan(sums[q][v], sums[q][v + 1 < kVectors ? v + 1 : v]));
    // The sums pass through memory here: if what follows used the registers, GCC 12 would keep the
    // sums in memory in the loop above, too.
    alignas(64) float done[kQueries][kVectors * kWidth];
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) store(&done[q][v * kWidth], sums[q][v]);
    for (int q = 0; q < kQueries; ++q) {
      for (std::size_t i = 0; i < kVectors * kWidth; i += kWidth) {
        float* const place = to[q] + i;
        Floats sum = load(&done[q][i]);
        if (set_lanes(nans) != 0) {
          const Floats before = kMerge ? all(0.0f) : load_lanes<kWhole>(some, place);
          sum = values_present(weights[q], values + channel + i, stride, count, some, before);
        }
        if (kMerge) {
          const Floats later = multiply(sum, all(merge.of_later[q]));
          sum = fused(load_lanes<kWhole>(some, place), all(merge.of_old[q]), later);
        }
        store_lanes<kWhole>(some, place, sum);
      }
    }
  }

  template <int kQueries, bool kMerge, typename Kept>
  static void values_block(MatrixView<const float> p, const Kept* values, std::size_t count,
                           const Kept* next, const MergeFactors& merge, MatrixView<float> out) {
    const std::size_t value_dim = out.columns();
    std::size_t channel = 0;
    for (; channel + kValueVectors * kWidth <= value_dim; channel += kValueVectors * kWidth) {
      values_channels<kQueries, kValueVectors, kMerge>(p, values, value_dim, count, lanes(kWidth),
                                                       next, merge, out, channel);
      next = nullptr;
    }
    for (; channel < value_dim; channel += kWidth) {
      values_channels<kQueries, 1, kMerge>(p, values, value_dim, count, lanes(value_dim - channel),
                                           next, merge, out, channel);
      next = nullptr;
    }
  }

  static MergeFactors factors_from(const MergeFactors& factors, std::size_t first) {
    return {factors.of_old + first, factors.of_later + first};
  }

  template <typename Kept>
  static void values(MatrixView<const float> p, const Kept* values, std::size_t count,
                     const Kept* next, const MergeFactors* merge, MatrixView<float> out) {
    for_even_blocks<kMostQueries>(out.rows(), [&](Range block, auto n) {
      const auto rows = rows_of(p, block);
      const Kept* const ahead = std::exchange(next, nullptr);
      if (merge != nullptr) {
        values_block<n, true>(rows, values, count, ahead, factors_from(*merge, block.begin),
                              rows_of(out, block));
      } else {
        values_block<n, false>(rows, values, count, ahead, {}, rows_of(out, block));
      }
    });
  }

  // Where sums of 8-bit values go: added to integers, or merged as floats.
  struct Added {
    MatrixView<std::int32_t> sums;

    Added part(Range rows) const { return {rows_of(sums, rows)}; }
    [[gnu::always_inline]] inline void put(std::size_t q, std::size_t channel, Ints sum) const {
      std::int32_t* const place = &sums[q][channel];
      store(place, add(sum, load(place)));
    }
  };
  struct Merged {
    const float* factors;
    MergeFactors merge;
    MatrixView<float> sums;

    Merged part(Range rows) const {
      return {factors + rows.begin, factors_from(merge, rows.begin), rows_of(sums, rows)};
    }
    [[gnu::always_inline]] inline void put(std::size_t q, std::size_t channel, Ints sum) const {
      const Floats later = multiply(all(factors[q]), V::to_floats(sum));
      const Floats scaled = multiply(later, all(merge.of_later[q]));
      float* const place = &sums[q][channel];
      store(place, fused(load(place), all(merge.of_old[q]), scaled));
    }
  };

  // kVectors vectors of channels for kQueries queries.
  template <int kQueries, int kVectors, typename To>
  static void values_q8_0_channels(MatrixView<const std::int16_t> weights,
                                   const std::int8_t* values, Range pairs, const std::int8_t* next,
                                   const To& to, std::size_t channel) {
    const std::size_t stride = 2 * to.sums.columns();
    const std::int16_t* pair[kQueries];
    Ints sum[kQueries][kVectors] = {};
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q) pair[q] = weights[q].data();
    for (std::size_t j = pairs.begin; j < pairs.end; ++j) {
      const std::int8_t* at = values + j * stride + 2 * channel;
      if (next != nullptr) prefetch(next + j * stride, stride);
      Ints value[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) value[v] = V::load_pairs(at + v * 2 * kWidth);
#pragma GCC unroll 8
      for (int q = 0; q < kQueries; ++q) {
        const Ints weight = all_unaligned<V>(pair[q] + 2 * j);
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) sum[q][v] = V::add_pairs(sum[q][v], value[v], weight);
      }
    }
    // Through memory, as in values_channels().
    alignas(64) std::int32_t done[kQueries][kVectors * kWidth];
#pragma GCC unroll 8
    for (int q = 0; q < kQueries; ++q)
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) store(&done[q][v * kWidth], sum[q][v]);
    for (int q = 0; q < kQueries; ++q) {
      for (std::size_t i = 0; i < kVectors * kWidth; i += kWidth)
        to.put(q, channel + i, load(&done[q][i]));
    }
  }

  // value_dim is a multiple of 32.
  template <int kQueries, typename To>
  static void values_q8_0_block(MatrixView<const std::int16_t> weights, const std::int8_t* values,
                                Range pairs, const std::int8_t* next, const To& to) {
    const std::size_t value_dim = to.sums.columns();
    std::size_t channel = 0;
    for (; channel + kValueVectors * kWidth <= value_dim; channel += kValueVectors * kWidth) {
      values_q8_0_channels<kQueries, kValueVectors>(weights, values, pairs, next, to, channel);
      next = nullptr;
    }
    for (; channel < value_dim; channel += 2 * kWidth) {
      values_q8_0_channels<kQueries, 2>(weights, values, pairs, next, to, channel);
      next = nullptr;
    }
  }

  template <typename To>
  static void values_q8_0_to(MatrixView<const std::int16_t> weights, const std::int8_t* values,
                             Places places, const std::int8_t* next, const To& to) {
    const Range pairs{places.begin / std::size_t{2}, (places.end + std::size_t{1}) / 2};
    for_even_blocks<kMostQueries>(to.sums.rows(), [&](Range block, auto n) {
      values_q8_0_block<n>(rows_of(weights, block), values, pairs, std::exchange(next, nullptr),
                           to.part(block));
    });
  }

  static void values_q8_0(MatrixView<const std::int16_t> weights, const std::int8_t* values,
                          Places places, MatrixView<std::int32_t> sums) {
    values_q8_0_to(weights, values, places, nullptr, Added{sums});
  }

  static void values_q8_0_merged(MatrixView<const std::int16_t> weights, const std::int8_t* values,
                                 Places places, const std::int8_t* next, const float* factors,
                                 const MergeFactors& merge, MatrixView<float> out) {
    values_q8_0_to(weights, values, places, next, Merged{factors, merge, out});
  }

  static void widen(const float* factors, MatrixView<const std::int32_t> sums,
                    MatrixView<float> out) {
    for (std::size_t q = 0; q < out.rows(); ++q) {
      for (std::size_t d = 0; d < out.columns(); d += kWidth)
        store(&out[q][d], multiply(all(factors[q]), V::to_floats(load(&sums[q][d]))));
    }
  }

  static void merge_sums(const AttentionSums& later, const AttentionSums& sums,
                         const MergeFactors& factors) {
    for (std::size_t q = 0; q < sums.size(); q += kWidth) {
      const Lanes some = lanes(sums.size() - q);
      const Floats before = load(some, sums.max + q), after = load(some, later.max + q);
      const Floats max = larger(before, after);
      const Floats a = Functions<V>::exp_of_negative(subtract(before, max));
      const Floats b = Functions<V>::exp_of_negative(subtract(after, max));
      const Floats scaled = multiply(load(some, later.sum + q), b);
      store(some, sums.max + q, max);
      store(some, sums.sum + q, fused(load(some, sums.sum + q), a, scaled));
      store(some, factors.of_old + q, a);
      store(some, factors.of_later + q, b);
    }
  }

  static void merge(const AttentionSums& later, const AttentionSums& sums) {
    const std::size_t value_dim = sums.out.columns();
    for (std::size_t first = 0; first < sums.size(); first += kWidth) {
      const Range block{first, std::min(sums.size(), first + kWidth)};
      float as[kWidth], bs[kWidth];
      const auto part = [&](const AttentionSums& of) {
        return AttentionSums{of.max + first, of.sum + first, rows_of(of.out, block)};
      };
      merge_sums(part(later), part(sums), {as, bs});
      for (std::size_t q = block.begin; q < block.end; ++q) {
        const Floats of_old = all(as[q - first]), of_new = all(bs[q - first]);
        const float* from = later.out[q].data();
        float* to = sums.out[q].data();
        for (std::size_t d = 0; d < value_dim; d += kWidth) {
          const Lanes some = lanes(value_dim - d);
          const Floats added = multiply(load(some, from + d), of_new);
          store(some, to + d, fused(load(some, to + d), of_old, added));
        }
      }
    }
  }

  static void divide_out(const AttentionSums& sums, std::size_t query, std::span<float> out) {
    const Floats sum = all(sums.sum[query]);
    for (std::size_t d = 0; d < out.size(); d += kWidth) {
      const Lanes some = lanes(out.size() - d);
      store(some, &out[d], divide(load(some, &sums.out[query][d]), sum));
    }
  }

  // Of a NaN, larger() and lesser() return their second operand.
  [[gnu::always_inline]] static inline Floats clamped(Floats x) {
    return larger(all(-65504.0f), lesser(all(65504.0f), x));
  }

  template <typename Kept>
  static void clamp(std::span<const float> x, Kept* out) {
    for (std::size_t i = 0; i < x.size(); i += kWidth) {
      const Lanes some = lanes(x.size() - i);
      store(some, out + i, clamped(load(some, &x[i])));
    }
  }

  static void keep_q8_0(std::span<const float> x, std::size_t group, std::int8_t* q, Half* d) {
    for (std::size_t first = 0; first < x.size(); first += group) {
      Ints sizes = all(0);  // bits without sign: a NaN is the largest
      for (std::size_t i = first; i < first + group; i += kWidth)
        sizes = larger(sizes, V::bits_of(V::size(load(&x[i]))));
      const float largest = std::bit_cast<float>(V::largest(sizes));
      d[first / group] =
          float_to_half(largest != largest ? largest : std::min(largest, 65504.0f) / 127);
      const float scale = half_to_float(d[first / group]);
      if (!(scale > 0)) {
        std::fill_n(q + first, group, std::int8_t{0});
        continue;
      }
      for (std::size_t i = first; i < first + group; i += kWidth) {
        const Ints nearest = V::to_ints(divide(clamped(load(&x[i])), all(scale)));
        V::store_bytes(q + i, larger(lesser(nearest, all(127)), all(-127)));
      }
    }
  }

  static constexpr AttentionKernels table() {
    return {
        .scores_f16 = Scores::template scores<Half>,
        .scores_f32 = Scores::template scores<float>,
        .scores_q8_0 = Scores::scores_q8_0,
        .softmax = Scores::softmax,
        .softmax_q8_0 = Scores::softmax_q8_0,
        .values_f16 = values<Half>,
        .values_f32 = values<float>,
        .values_q8_0 = values_q8_0,
        .values_q8_0_merged = values_q8_0_merged,
        .widen = widen,
        .merge = merge,
        .merge_sums = merge_sums,
        .divide = divide_out,
        .clamp_to_half = clamp<Half>,
        .clamp_to_float = clamp<float>,
        .keep_q8_0 = keep_q8_0,
    };
  }
};

}  // namespace outrider
