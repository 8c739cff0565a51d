// The kernels of choice_kernels.h over a vector type of 16 lanes (vector_functions.h,
// vector_pair.h).

#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "cpu/kernels/choice_kernels.h"
#include "cpu/kernels/vector_functions.h"
#include "numerics/functions.h"
#include "numerics/noise.h"

namespace outrider {

template <class V>
struct ChoiceOn : V {
  static_assert(V::kWidth == kChoiceSlice);
  using typename V::Floats;
  using typename V::Ints;
  using typename V::Mask;
  using typename V::Wide;
  using V::above, V::at_least, V::at_most, V::at_most_unsigned, V::equal, V::either, V::either_nan;
  using V::add, V::subtract, V::multiply, V::divide, V::fused, V::all, V::load, V::store;
  using V::all_wide, V::counters, V::multiply_low, V::high_half, V::interleaved;
  using V::bits_of, V::floats_of, V::to_floats, V::and_bits, V::xor_bits, V::store_close;
  using V::both, V::set_lanes, V::mask_of, V::first_lanes, V::load_fourth;
  using V::larger, V::lesser, V::lesser_unsigned, V::size, V::select, V::least, V::largest;

  static constexpr float kAbsent = -std::numeric_limits<float>::infinity();

  [[gnu::always_inline]] static inline std::size_t count(Mask mask) {
    return static_cast<std::size_t>(std::popcount(set_lanes(mask)));
  }

  // The slice at x[i], absent tokens past the end.
  [[gnu::always_inline]] static inline Floats load_slice(std::span<const float> x, std::size_t i) {
    if (i + kChoiceSlice <= x.size()) return load(&x[i]);
    if (i >= x.size()) return all(kAbsent);
    return load(first_lanes(x.size() - i), &x[i], all(kAbsent));
  }

  static float block_maxima(std::span<const float> x, std::span<float> maxima) {
    Floats max = all(kAbsent);
    Mask nan = first_lanes(0);
    for (std::size_t begin = 0, block = 0; begin < x.size(); begin += kChoiceBlock, ++block) {
      const Floats a = load_slice(x, begin), b = load_slice(x, begin + 16);
      const Floats c = load_slice(x, begin + 32), d = load_slice(x, begin + 48);
      nan = either(nan, either(either_nan(a, b), either_nan(c, d)));
      const Floats of_block = larger(larger(a, b), larger(c, d));
      maxima[block] = largest(of_block);
      max = larger(max, of_block);
    }
    return set_lanes(nan) != 0 ? std::numeric_limits<float>::quiet_NaN() : largest(max);
  }

  static void forbid(std::span<const std::uint64_t> allowed, std::span<float> x) {
    for (std::size_t i = 0; i < x.size(); i += kChoiceSlice) {
      const std::size_t word = i / 64;
      const auto bits =
          static_cast<unsigned>(word < allowed.size() ? allowed[word] >> i % 64 & 0xffff : 0);
      store(&x[i], select(mask_of(bits), load(&x[i]), all(kAbsent)));
    }
  }

  // Slices on their way to a RacePlace.
  struct Kept {
    [[gnu::always_inline]] inline void add(Mask kept, Floats logits, std::uint32_t slice) {
      if (set_lanes(kept) == 0) return;
      const Floats left = select(kept, logits, all(kAbsent));
      store(&to.logits[n * kChoiceSlice], left);
      to.slices[n] = slice;
      best = larger(best, left);
      if (++n % 4 == 0) end_block();
    }
    // Returns how many there were.
    [[gnu::always_inline]] inline std::size_t end() {
      if (n % 4 != 0) end_block();
      return n;
    }
    [[gnu::always_inline]] inline void end_block() {
      to.maxima[(n - 1) / 4] = largest(best);
      best = all(kAbsent);
    }

    RacePlace to;
    Floats best;
    std::size_t n = 0;
  };

  static std::size_t gather(const RaceView& race, std::span<const float> maxima, float bound,
                            const RacePlace& to) {
    Kept kept{to, all(kAbsent)};
    for (std::size_t block = 0; block < maxima.size(); ++block) {
      if (!(maxima[block] >= bound)) continue;
      const std::size_t end = std::min((block + 1) * 4, race.slices.size());
      for (std::size_t slice = block * 4; slice < end; ++slice) {
        const Floats logits = load_slice(race.logits, slice * kChoiceSlice);
        kept.add(at_least(logits, all(bound)), logits, race.slices[slice]);
      }
    }
    return kept.end();
  }

  static std::size_t gather_likely(const RaceView& race, std::span<const float> maxima, float max,
                                   float least, const RacePlace& to) {
    // Below this no exp() reaches `least`, whatever the rounding.
    const float hopeless = outrider::log_f32(least) - 1e-3f;
    Kept kept{to, all(kAbsent)};
    for (std::size_t block = 0; block < maxima.size(); ++block) {
      if (maxima[block] < max && maxima[block] - max < hopeless) continue;
      const std::size_t end = std::min((block + 1) * 4, race.slices.size());
      for (std::size_t slice = block * 4; slice < end; ++slice) {
        const Floats logits = load_slice(race.logits, slice * kChoiceSlice);
        const Mask likely = at_least(V::exp_f32(subtract(logits, all(max))), all(least));
        kept.add(either(likely, at_least(logits, all(max))), logits, race.slices[slice]);
      }
    }
    return kept.end();
  }

  static float exp_differences(std::span<const float> x, float max, std::span<float> y) {
    Floats sum = all(0.0f);
    for (std::size_t i = 0; i < x.size(); i += kChoiceSlice) {
      const Floats e = V::exp_f32(subtract(load_slice(x, i), all(max)));
      sum = add(sum, e);
      store(&y[i], e);
    }
    return V::total({sum});
  }

  static void divide_all(std::span<const float> x, float divisor, std::span<float> y) {
    for (std::size_t i = 0; i < x.size(); i += kChoiceSlice) {
      const Floats value = load_slice(x, i);
      const Floats quotients = divide(value, all(divisor));
      store(&y[i], select(above(value, all(kAbsent)), quotients, all(kAbsent)));
    }
  }

  [[gnu::always_inline]] static inline Floats log_p(Floats logits, float max, float log_sum) {
    return subtract(subtract(logits, all(max)), all(log_sum));
  }

  static float share_with_entropy(std::span<const float> logits, std::span<float> p, float sum,
                                  float max, float log_sum) {
    Floats terms = all(0.0f);
    for (std::size_t i = 0; i < logits.size(); i += kChoiceSlice) {
      const Floats share = divide(load(&p[i]), all(sum));
      store(&p[i], share);
      const Floats added = fused(share, log_p(load_slice(logits, i), max, log_sum), terms);
      terms = select(above(share, all(0.0f)), added, terms);
    }
    return -V::total({terms});
  }

  [[gnu::always_inline]] static inline void store_block(const Ints (&keys)[4], std::size_t block,
                                                        std::span<RankKey> out,
                                                        std::span<RankKey> minima) {
    for (std::size_t i = 0; i < 4; ++i)
      store(&out[block * kChoiceBlock + i * kChoiceSlice], keys[i]);
    minima[block] = least(lesser(lesser(keys[0], keys[1]), lesser(keys[2], keys[3])));
  }

  [[gnu::always_inline]] static inline Ints key_of(Floats value) {
    const Ints bits = bits_of(add(value, all(0.0f)));
    return xor_bits(bits, select(above(all(0), bits), all(INT32_MIN), all(-1)));
  }
  [[gnu::always_inline]] static inline Floats value_of(Ints key) {
    return floats_of(xor_bits(key, select(above(all(0), key), all(-1), all(INT32_MIN))));
  }

  static void keys_by_logit(std::span<const float> logits, std::span<RankKey> out,
                            std::span<RankKey> minima) {
    for (std::size_t block = 0; block < blocks_of(logits.size()); ++block) {
      Ints keys[4];
      for (std::size_t i = 0; i < 4; ++i) {
        const Floats logit = load_slice(logits, block * kChoiceBlock + i * kChoiceSlice);
        keys[i] = select(above(logit, all(kAbsent)), key_of(logit), all(kNoKey));
      }
      store_block(keys, block, out, minima);
    }
  }

  static void keys_by_share(std::span<const float> values, float sum, std::span<RankKey> out,
                            std::span<RankKey> minima) {
    for (std::size_t block = 0; block < blocks_of(values.size()); ++block) {
      Ints keys[4];
      for (std::size_t i = 0; i < 4; ++i) {
        const Floats value = load(&values[block * kChoiceBlock + i * kChoiceSlice]);
        // The key of a share, which is not negative.
        const Ints key = xor_bits(bits_of(divide(value, all(sum))), all(-1));
        keys[i] = select(above(value, all(0.0f)), key, all(kNoKey));
      }
      store_block(keys, block, out, minima);
    }
  }

  static void keys_by_surprise(std::span<const float> logits, float max, float log_sum,
                               float entropy, std::span<RankKey> out, std::span<RankKey> minima) {
    for (std::size_t block = 0; block < blocks_of(logits.size()); ++block) {
      Ints keys[4];
      for (std::size_t i = 0; i < 4; ++i) {
        const Floats logit = load_slice(logits, block * kChoiceBlock + i * kChoiceSlice);
        const Floats minus_log_p = subtract(all(0.0f), log_p(logit, max, log_sum));
        const Ints bits = bits_of(size(subtract(minus_log_p, all(entropy))));
        keys[i] = select(above(logit, all(kAbsent)), bits, all(kNoKey));
      }
      store_block(keys, block, out, minima);
    }
  }

  static std::size_t count_up_to(std::span<const RankKey> keys, RankKey bound) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < keys.size(); i += kChoiceSlice) {
      const Ints some = load_left(&keys[i], keys.size() - i, all(kNoKey));
      n += count(at_most(some, all(bound)));
    }
    return n;
  }

  static std::size_t collect(std::span<const RankKey> keys, std::span<const float> weights,
                             std::span<const RankKey> minima, RankKey after, RankKey last,
                             RankedPlace to) {
    std::size_t n = 0;
    for (std::size_t block = 0; block < minima.size(); ++block) {
      if (minima[block] > last) continue;
      for (std::size_t i = block * kChoiceBlock; i < (block + 1) * kChoiceBlock;
           i += kChoiceSlice) {
        const Ints key = load(&keys[i]);
        const Mask in = both(above(key, all(after)), at_most(key, all(last)));
        store_close(&to.keys[n], in, key);
        if (to.weights != nullptr) store_close(&to.weights[n], in, load(&weights[i]));
        n += count(in);
      }
    }
    return n;
  }

  // The first `left` lanes of a slice, if it has no more.
  template <typename Lanes, typename T>
  [[gnu::always_inline]] static inline Lanes load_left(const T* at, std::size_t left,
                                                       Lanes others) {
    return left >= kChoiceSlice ? load(at) : load(first_lanes(left), at, others);
  }

  struct Sums {
    [[gnu::always_inline]] inline void add_slice(Ints key, Floats weight, Floats scale) {
      first = lesser(first, key);
      last = larger(last, key);
      const Floats scaled = multiply(weight, scale), nearest = V::nearest(scaled);
      sum = add(sum, nearest);
      tie = either(tie, equal(size(subtract(scaled, nearest)), all(0.5f)));
    }

    Ints first, last;
    Floats sum;
    Mask tie;
  };

  static GroupSum group_sum(RankedPlace group, std::size_t n, float scale) {
    const Ints any = all(group.keys[0]);
    const Floats none = all(0.0f), factor = all(scale);
    Sums sums{any, any, none, first_lanes(0)};
    const std::size_t n_whole = n / kChoiceSlice * kChoiceSlice;
    for (std::size_t i = 0; i < n_whole; i += kChoiceSlice) {
      const Ints key = load(&group.keys[i]);
      sums.add_slice(key, group.weights != nullptr ? load(&group.weights[i]) : value_of(key),
                     factor);
    }
    if (n_whole < n) {
      const Mask some = first_lanes(n - n_whole);
      const Ints key = load(some, &group.keys[n_whole], any);
      const Floats weight = group.weights != nullptr ? load(some, &group.weights[n_whole], none)
                                                     : select(some, value_of(key), none);
      sums.add_slice(key, weight, factor);
    }
    return {
        {least(sums.first), largest(sums.last)}, V::total({sums.sum}), set_lanes(sums.tie) != 0};
  }

  static std::size_t partition(RankedPlace group, std::size_t n, RankKey pivot, RankedPlace rest) {
    std::size_t n_first = 0, n_rest = 0;
    for (std::size_t i = 0; i < n; i += kChoiceSlice) {
      const std::size_t left = n - i;
      const Ints key = load_left(&group.keys[i], left, all(kNoKey));
      const Mask low = at_most(key, all(pivot));
      const Mask high = both(first_lanes(left), above(key, all(pivot)));
      if (group.weights != nullptr) {
        const Floats weight = load_left(&group.weights[i], left, all(0.0f));
        store_close(&rest.weights[n_rest], high, weight);
        store_close(&group.weights[n_first], low, weight);
      }
      store_close(&rest.keys[n_rest], high, key);
      store_close(&group.keys[n_first], low, key);  // at most over what has been read
      n_first += count(low);
      n_rest += count(high);
    }
    return n_first;
  }

  // The first n of the lanes set in `bits`.
  static unsigned first_set(unsigned bits, std::size_t n) {
    if (n >= static_cast<std::size_t>(std::popcount(bits))) return bits;
    unsigned first = 0;
    for (; n > 0; --n, bits &= bits - 1) first |= bits & -bits;
    return first;
  }

  static std::size_t keep(const RaceView& race, std::span<const RankKey> keys,
                          std::span<const RankKey> minima, RankCut cut, const RacePlace& to) {
    Kept left{to, all(kAbsent)};
    for (std::size_t block = 0; block < minima.size(); ++block) {
      if (minima[block] > cut.key) continue;
      for (std::size_t slice = block * 4; slice < (block + 1) * 4; ++slice) {
        const Ints key = load(&keys[slice * kChoiceSlice]);
        const unsigned alike = set_lanes(equal(key, all(cut.key)));
        const unsigned alike_kept = first_set(alike, cut.n_equal);
        cut.n_equal -= static_cast<std::size_t>(std::popcount(alike_kept));
        const unsigned kept = set_lanes(above(all(cut.key), key)) | alike_kept;
        if (kept != 0)
          left.add(mask_of(kept), load(&race.logits[slice * kChoiceSlice]), race.slices[slice]);
      }
    }
    return left.end();
  }

  // Philox4x32-10 for 16 counters at once, as numerics/noise.h has it. Products take the low halves
  // of lanes of 64 bits, so the high halves may hold anything.
  struct Philox {
    [[gnu::always_inline]] inline explicit Philox(const NoiseKey& key)
        : position(all_wide(key.position)),
          stream(all_wide(key.stream)),
          use(all_wide(key.use_and_node())) {
      PhiloxKey round_key(key.seed);
      for (int round = 0; round < kPhiloxRounds; ++round, round_key.advance())
        for (int word = 0; word < 2; ++word) keys[round][word] = all_wide(round_key.words[word]);
    }

    // bits[i], lane j: of the token i + 4 (j mod 4) of slices[j / 4].
    [[gnu::always_inline]] inline void operator()(const std::uint32_t* slices,
                                                  Ints (&bits)[4]) const {
      const Wide factors[] = {all_wide(kPhiloxFactors[0]), all_wide(kPhiloxFactors[1])};
      Wide c[4][2];
      for (int odd = 0; odd < 2; ++odd) {
        c[0][odd] = counters(slices, odd);
        c[1][odd] = position;
        c[2][odd] = stream;
        c[3][odd] = use;
      }
#pragma GCC unroll 10
      for (int round = 0; round < kPhiloxRounds; ++round) {
#pragma GCC unroll 2
        for (int odd = 0; odd < 2; ++odd) {
          const Wide a = multiply_low(c[0][odd], factors[0]);
          const Wide b = multiply_low(c[2][odd], factors[1]);
          c[0][odd] = xor_bits(high_half(b), c[1][odd], keys[round][0]);
          c[1][odd] = b;
          c[2][odd] = xor_bits(high_half(a), c[3][odd], keys[round][1]);
          c[3][odd] = a;
        }
      }
      for (int i = 0; i < 4; ++i) bits[i] = interleaved(c[i][0], c[i][1]);
    }

    Wide position, stream, use;
    Wide keys[kPhiloxRounds][2];
  };

  [[gnu::always_inline]] static inline Floats gumbel_of_bits(Ints h) {
    const Floats high = to_floats(V::template shift_down<16>(h));
    const Floats low = add(to_floats(and_bits(h, all(0xffff))), all(0.5f));
    const Floats sum = fused(high, all(0x1p-16f), multiply(low, all(0x1p-32f)));
    const Floats u = lesser(sum, all(1 - 0x1p-24f)), zero = all(0.0f);
    return subtract(zero, V::log_f32(subtract(zero, V::log1p_f32(subtract(zero, u)))));
  }

  // Noise is large where the random bits h are small: it is below log(2^32 / h), so a token needs h
  // up to 2^32 exp(score - bar), the score before noise, to reach the bar. The slack is for the
  // rounding of noise (below 1e-5), of this and of scores.
  [[gnu::always_inline]] static inline Floats limits_of_bits(Floats scores, float bar) {
    const Floats sizes = add(size(scores), all(std::fabs(bar)));
    const Floats slack = fused(sizes, all(0x1p-22f), all(1e-4f));
    return multiply(V::exp_f32(add(subtract(scores, all(bar)), slack)), all(0x1p32f));
  }

  static std::size_t scores_at_least(const RaceView& race, std::span<const float> maxima,
                                     float temperature, const NoiseKey& noise,
                                     std::size_t first_block, float bar, std::span<RaceEntry> out) {
    const Philox philox(noise);
    const Floats best = divide(load_slice(maxima, first_block), all(temperature));
    // Rounding keeps the order: if a block's best logit plus the largest possible noise is below
    // the bar, its random bits are not needed.
    unsigned blocks = set_lanes(at_least(add(best, all(kNoiseHighest)), all(bar)));
    float limits[kScoredBlocks];
    store(limits, limits_of_bits(best, bar));
    std::size_t n = 0;
    for (; blocks != 0; blocks &= blocks - 1) {
      const auto i = static_cast<std::size_t>(std::countr_zero(blocks));
      const std::size_t block = first_block + i;
      const std::uint32_t limit =
          limits[i] < 0x1.fffffep31f ? static_cast<std::uint32_t>(limits[i]) : UINT32_MAX;
      const Ints limit_of_all = all(static_cast<std::int32_t>(limit));
      Ints bits[4];
      philox(&race.slices[block * 4], bits);
      const Ints least_bits =
          lesser_unsigned(lesser_unsigned(bits[0], bits[1]), lesser_unsigned(bits[2], bits[3]));
      if (set_lanes(at_most_unsigned(least_bits, limit_of_all)) == 0) continue;
      for (std::size_t j = 0; j < 4; ++j) {
        const Mask small = at_most_unsigned(bits[j], limit_of_all);
        if (set_lanes(small) == 0) continue;
        // Lane l is the token at place first + 4 l.
        const std::size_t first = block * kChoiceBlock + j;
        const std::size_t left = race.logits.size() - std::min(first, race.logits.size());
        const Floats logits =
            load_fourth(first_lanes((left + 3) / 4), &race.logits[first], all(kAbsent));
        const Floats scaled = divide(logits, all(temperature));
        const Floats scores = add(scaled, gumbel_of_bits(bits[j]));
        const Mask hits =
            both(both(small, above(scaled, all(kAbsent))), at_least(scores, all(bar)));
        float found[kChoiceSlice];
        store(found, scores);
        for (unsigned lanes = set_lanes(hits); lanes != 0; lanes &= lanes - 1) {
          const auto lane = static_cast<std::size_t>(std::countr_zero(lanes));
          out[n++] = {found[lane], static_cast<std::uint32_t>(first + 4 * lane)};
        }
      }
    }
    return n;
  }

  static constexpr ChoiceKernels table() {
    return {
        .block_maxima = block_maxima,
        .forbid = forbid,
        .gather = gather,
        .gather_likely = gather_likely,
        .exp_differences = exp_differences,
        .divide = divide_all,
        .share_with_entropy = share_with_entropy,
        .keys_by_logit = keys_by_logit,
        .keys_by_share = keys_by_share,
        .keys_by_surprise = keys_by_surprise,
        .count_up_to = count_up_to,
        .collect = collect,
        .group_sum = group_sum,
        .partition = partition,
        .keep = keep,
        .scores_at_least = scores_at_least,
    };
  }
};

}  // namespace outrider
