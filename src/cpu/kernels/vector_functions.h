// numerics/functions.h on vectors, with the same bits. Where the reference branches, both sides are
// computed and one is kept.
//
// This header and those that include it are templates over a vector type V, a class of static
// functions that one instruction set writes down (x86/avx2.h, x86/avx512.h). A V has
//
//   kWidth, kRegisters  lanes of 32 bits in a vector; registers that the set has
//   Floats, Ints, Wide  vectors of float, of signed 32-bit integers, of 64-bit integers
//   Mask                some of the lanes, made by comparing
//   Lanes               the first lanes of a vector, for the end of a row
//   Power               2^n for each lane
//
//   all, load, store    a value in all lanes; kWidth values of memory. 16-bit values are halves,
//                       rounded to nearest even. With Lanes, memory past them is not touched and
//                       lanes past them are 0; with a Mask, lanes outside it are `others`
//   load_fourth         at[4 * lane]
//   store_words         Ints that fit, in 16 bits; store_bytes: in 8
//   store_close         the lanes of the mask side by side; may overwrite all kWidth places
//   lanes, first_lanes  the first n lanes, at most all, as Lanes (n > 0) and as a Mask
//   lanes_in            the lanes l with begin <= first + l < end; 0 <= begin < end <= 64
//
//   fused               a * b + c, rounded once; minus_product: c - a * b
//   larger, lesser      of floats; b if one of them is a NaN
//   size, nearest       |x|; x rounded to an integer, to nearest even; to_ints: the same, as Ints
//   power               2^n up to n = 128, for n as Floats and as Ints; power_below_128: up to 127;
//                       inverse_power: 2^-n for n from -32 to 160
//   times               x * 2^n, rounded once
//   largest             of all lanes; largest_lane: the same, in all lanes; least
//   total               of 16 accumulators: pairwise at distance 8, 4, 2, 1 (docs/arithmetic.md,
//                       rule 2)
//   each_twice          lanes 0, 0, 1, 1, ...; swap_pairs: lanes 1, 0, 3, 2, ...
//   subtract_add        a - b in even lanes, a + b in odd ones
//
//   bits_of, floats_of  the same bits as Ints, as Floats
//   add_fours           sum + the products of four 8-bit keys and channels in each lane. load_keys
//                       reads keys, which are stored 128 larger; a sum begins as
//                       biased_sum(-128 * the sum of its channels)
//   add_pairs           sum + the products of two 16-bit numbers in each lane; load_pairs reads
//                       such numbers from 8 bits
//
//   select              a in the mask's lanes, b in the others; zero_unless: x and 0
//   not_below, unequal  true of a NaN; above, below, at_least, equal are false of it
//   set_lanes, mask_of  a Mask as bits, lane 0 the lowest
//
//   counters            4 * at[i / 2] + 2 * (i mod 2) + odd in lane i of 64 bits
//   multiply_low        the product of the lanes' low halves; high_half: x >> 32
//   interleaved         the low halves of `even` and `odd`, by turns
//
// and arithmetic, comparisons and bits by their usual names.
//
// Functions here name no instruction set: a region gives them one (x86/intrinsics.h).

#pragma once

#include <cstdint>
#include <limits>

#include "numerics/functions.h"

namespace outrider {

template <class V>
struct Functions : V {
  using typename V::Floats;
  using typename V::Ints;
  using V::add, V::subtract, V::multiply, V::divide, V::fused, V::minus_product, V::size, V::all;
  using V::and_bits, V::or_bits, V::bits_of, V::floats_of, V::to_floats, V::larger, V::select;
  using V::zero_unless, V::above, V::below, V::not_below, V::at_least, V::equal, V::times;

  [[gnu::always_inline]] static inline Floats exp_f32(Floats x) {
    using namespace function_constants;
    const ExpParts e = exp_parts(x);
    const Floats result = times(add(all(1.0f), e.t), V::power(e.n, e.whole));
    const Floats finite = select(above(x, all(kExpHighest)), all(kInfinity), result);
    return zero_unless(not_below(x, all(kExpLowest)), finite);
  }

  // The same for x that are at most 0 or NaN, with nothing to watch above.
  [[gnu::always_inline]] static inline Floats exp_of_negative(Floats x) {
    using namespace function_constants;
    const ExpParts e = exp_parts(x);
    const Floats result = times(add(all(1.0f), e.t), V::power_below_128(e.n, e.whole));
    return zero_unless(not_below(x, all(kExpLowest)), result);
  }

  [[gnu::always_inline]] static inline Floats sigmoid_f32(Floats x) { return gate(all(1.0f), x); }
  [[gnu::always_inline]] static inline Floats silu_f32(Floats x) { return gate(x, x); }

  [[gnu::always_inline]] static inline Floats gelu_tanh_f32(Floats x) {
    using namespace function_constants;
    return gate(x, multiply(x, fused(multiply(x, x), all(kGelu3), all(kGelu1))));
  }

  [[gnu::always_inline]] static inline Floats tanh_f32(Floats x) {
    using namespace function_constants;
    const Floats square = multiply(x, x);
    const Floats small = fused(multiply(x, square), polynomial(kTanh, square), x);
    const Floats complement = gate(all(2.0f), multiply(all(-2.0f), size(x)));
    const Floats large = subtract(all(1.0f), complement);  // its sign bit is 0
    const Ints sign = and_bits(bits_of(x), all(std::numeric_limits<std::int32_t>::min()));
    const Floats signed_large = floats_of(or_bits(bits_of(large), sign));
    return select(below(size(x), all(kTanhSmall)), small, signed_large);
  }

  [[gnu::always_inline]] static inline Floats log_f32(Floats x) {
    const auto subnormal = below(x, all(std::numeric_limits<float>::min()));
    const Exponent s = split(select(subnormal, multiply(x, all(0x1p23f)), x));
    const Ints e = select(subnormal, subtract(s.e, all(23)), s.e);
    return log_edges(x, all(0.0f), log_of_parts(e, subtract(s.m, all(1.0f))));
  }

  [[gnu::always_inline]] static inline Floats log1p_f32(Floats x) {
    const Floats one = all(1.0f);
    const Floats sum = add(one, x);
    const Floats x_part = subtract(sum, one);
    const Floats lost = add(subtract(one, subtract(sum, x_part)), subtract(x, x_part));
    const Exponent s = split(sum);
    const Ints minus_e = larger(subtract(all(0), s.e), all(-126));
    const Floats power = floats_of(V::template shift_up<23>(add(minus_e, all(127))));
    const Floats f = fused(lost, power, subtract(s.m, one));
    return log_edges(x, all(-1.0f), log_of_parts(s.e, f));
  }

 private:
  static constexpr float kInfinity = std::numeric_limits<float>::infinity();

  template <int n>
  [[gnu::always_inline]] static inline Floats polynomial(const float (&coefficients)[n], Floats x) {
    Floats sum = all(coefficients[0]);
#pragma GCC unroll 16
    for (int i = 1; i < n; ++i) sum = fused(sum, x, all(coefficients[i]));
    return sum;
  }

  // exp(x) = 2^n (1 + t)
  struct ExpParts {
    Floats n;
    Ints whole;  // n
    Floats t;
  };
  [[gnu::always_inline]] static inline ExpParts exp_parts(Floats x) {
    using namespace function_constants;
    const Floats rounder = all(kRounder), rounded = fused(x, all(kLog2e), rounder);
    const Floats n = subtract(rounded, rounder);
    const Floats r = minus_product(n, all(kLn2Low), minus_product(n, all(kLn2High), x));
    const Floats t = fused(multiply(r, r), polynomial(kExp, r), r);
    return {n, subtract(bits_of(rounded), bits_of(rounder)), t};
  }

  // x * sigmoid(z)
  [[gnu::always_inline]] static inline Floats gate(Floats x, Floats z) {
    using namespace function_constants;
    const Floats one = all(1.0f);
    const ExpParts e = exp_parts(subtract(all(0.0f), z));
    const auto power = V::inverse_power(e.n, e.whole);
    const Floats w = times(one, power), sum = add(one, w);
    const Floats lost = subtract(w, subtract(sum, one));
    const Floats result = divide(times(x, power), add(sum, add(e.t, lost)));
    const Floats bounded = select(above(z, all(kGateHighest)), x, result);
    return zero_unless(not_below(z, all(kGateLowest)), bounded);
  }

  // x = 2^e m, m from 2/3 to 4/3
  struct Exponent {
    Ints e;
    Floats m;
  };
  [[gnu::always_inline]] static inline Exponent split(Floats x) {
    const Ints base = all(std::int32_t{function_constants::kTwoThirdsBits});
    const Ints above_base = subtract(bits_of(x), base);
    const Ints mantissa = and_bits(above_base, all(0x7fffff));
    return {V::template shift_down_signed<23>(above_base), floats_of(add(mantissa, base))};
  }
  [[gnu::always_inline]] static inline Floats log_of_parts(Ints e, Floats f) {
    using namespace function_constants;
    return fused(to_floats(e), all(kLn2), fused(multiply(f, f), polynomial(kLog, f), f));
  }
  // `result` but where x is infinite, zero_at, below it or NaN.
  [[gnu::always_inline]] static inline Floats log_edges(Floats x, Floats zero_at, Floats result) {
    const Floats infinity = all(kInfinity), nan = all(std::numeric_limits<float>::quiet_NaN());
    result = select(equal(x, infinity), infinity, result);
    result = select(equal(x, zero_at), subtract(all(0.0f), infinity), result);
    return select(at_least(x, zero_at), result, nan);
  }
};

}  // namespace outrider
