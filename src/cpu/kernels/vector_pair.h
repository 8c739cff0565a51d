// Vectors of 16 lanes made of two of 8, for kernels that want 16: a V as vector_functions.h
// describes it, as far as choice_vectors.h calls it.

#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "cpu/kernels/vector_functions.h"

#define OUTRIDER_OP [[gnu::always_inline]] static inline

namespace outrider {

template <class V>
struct Pair {
  static constexpr std::size_t kHalf = V::kWidth, kWidth = 2 * kHalf;
  struct Floats {
    typename V::Floats low, high;
  };
  struct Ints {
    typename V::Ints low, high;
  };
  struct Wide {
    typename V::Wide low, high;
  };
  struct Mask {
    typename V::Mask low, high;
  };

  OUTRIDER_OP Mask first_lanes(std::size_t n) {
    return {V::first_lanes(n), V::first_lanes(n < kHalf ? 0 : n - kHalf)};
  }
  OUTRIDER_OP Floats all(float x) { return {V::all(x), V::all(x)}; }
  OUTRIDER_OP Ints all(std::int32_t x) { return {V::all(x), V::all(x)}; }
  OUTRIDER_OP Floats load(const float* at) { return {V::load(at), V::load(at + kHalf)}; }
  OUTRIDER_OP Ints load(const std::int32_t* at) { return {V::load(at), V::load(at + kHalf)}; }
  OUTRIDER_OP Floats load(Mask mask, const float* at, Floats others) {
    return {V::load(mask.low, at, others.low), V::load(mask.high, at + kHalf, others.high)};
  }
  OUTRIDER_OP Ints load(Mask mask, const std::int32_t* at, Ints others) {
    return {V::load(mask.low, at, others.low), V::load(mask.high, at + kHalf, others.high)};
  }
  OUTRIDER_OP Floats load_fourth(Mask mask, const float* at, Floats others) {
    return {V::load_fourth(mask.low, at, others.low),
            V::load_fourth(mask.high, at + 4 * kHalf, others.high)};
  }
  template <typename T, typename X>
  OUTRIDER_OP void store(T* at, X x) {
    V::store(at, x.low);
    V::store(at + kHalf, x.high);
  }
  template <typename T, typename X>
  OUTRIDER_OP void store_close(T* at, Mask mask, X x) {
    V::store_close(at, mask.low, x.low);
    V::store_close(at + std::popcount(V::set_lanes(mask.low)), mask.high, x.high);
  }

// Those that are done to each half.
#define OUTRIDER_OF_ONE(Result, name, A)      \
  OUTRIDER_OP Result name(A a) {              \
    return {V::name(a.low), V::name(a.high)}; \
  }
#define OUTRIDER_OF_TWO(Result, name, A)                     \
  OUTRIDER_OP Result name(A a, A b) {                        \
    return {V::name(a.low, b.low), V::name(a.high, b.high)}; \
  }
  OUTRIDER_OF_TWO(Floats, add, Floats)
  OUTRIDER_OF_TWO(Floats, subtract, Floats)
  OUTRIDER_OF_TWO(Floats, multiply, Floats)
  OUTRIDER_OF_TWO(Floats, divide, Floats)
  OUTRIDER_OF_TWO(Floats, larger, Floats)
  OUTRIDER_OF_TWO(Floats, lesser, Floats)
  OUTRIDER_OF_ONE(Floats, size, Floats)
  OUTRIDER_OF_ONE(Floats, nearest, Floats)
  OUTRIDER_OF_ONE(Floats, exp_f32, Floats)
  OUTRIDER_OF_ONE(Floats, log_f32, Floats)
  OUTRIDER_OF_ONE(Floats, log1p_f32, Floats)
  OUTRIDER_OF_ONE(Ints, bits_of, Floats)
  OUTRIDER_OF_ONE(Floats, floats_of, Ints)
  OUTRIDER_OF_ONE(Floats, to_floats, Ints)
  OUTRIDER_OF_TWO(Ints, larger, Ints)
  OUTRIDER_OF_TWO(Ints, lesser, Ints)
  OUTRIDER_OF_TWO(Ints, lesser_unsigned, Ints)
  OUTRIDER_OF_TWO(Ints, and_bits, Ints)
  OUTRIDER_OF_TWO(Ints, xor_bits, Ints)
  OUTRIDER_OF_TWO(Mask, both, Mask)
  OUTRIDER_OF_TWO(Mask, either, Mask)
  OUTRIDER_OF_TWO(Mask, above, Floats)
  OUTRIDER_OF_TWO(Mask, at_least, Floats)
  OUTRIDER_OF_TWO(Mask, equal, Floats)
  OUTRIDER_OF_TWO(Mask, either_nan, Floats)
  OUTRIDER_OF_TWO(Mask, above, Ints)
  OUTRIDER_OF_TWO(Mask, at_most, Ints)
  OUTRIDER_OF_TWO(Mask, equal, Ints)
  OUTRIDER_OF_TWO(Mask, at_most_unsigned, Ints)
  OUTRIDER_OF_TWO(Wide, multiply_low, Wide)
  OUTRIDER_OF_ONE(Wide, high_half, Wide)
  OUTRIDER_OF_TWO(Ints, interleaved, Wide)
#undef OUTRIDER_OF_ONE
#undef OUTRIDER_OF_TWO

  OUTRIDER_OP Floats fused(Floats a, Floats b, Floats c) {
    return {V::fused(a.low, b.low, c.low), V::fused(a.high, b.high, c.high)};
  }
  template <int n>
  OUTRIDER_OP Ints shift_down(Ints x) {
    return {V::template shift_down<n>(x.low), V::template shift_down<n>(x.high)};
  }
  template <typename X>
  OUTRIDER_OP X select(Mask mask, X a, X b) {
    return {V::select(mask.low, a.low, b.low), V::select(mask.high, a.high, b.high)};
  }
  OUTRIDER_OP unsigned set_lanes(Mask mask) {
    return V::set_lanes(mask.low) | V::set_lanes(mask.high) << kHalf;
  }
  OUTRIDER_OP Mask mask_of(unsigned bits) {
    return {V::mask_of(bits), V::mask_of(bits >> kHalf)};
  }

  OUTRIDER_OP float largest(Floats x) {
    return V::largest(V::larger(x.low, x.high));
  }
  OUTRIDER_OP std::int32_t largest(Ints x) {
    return V::largest(V::larger(x.low, x.high));
  }
  OUTRIDER_OP std::int32_t least(Ints x) {
    return V::least(V::lesser(x.low, x.high));
  }
  OUTRIDER_OP float total(const Floats (&sums)[1]) {
    return V::total({sums[0].low, sums[0].high});
  }

  OUTRIDER_OP Wide all_wide(std::uint32_t x) {
    return {V::all_wide(x), V::all_wide(x)};
  }
  OUTRIDER_OP Wide counters(const std::uint32_t* at, int odd) {
    return {V::counters(at, odd), V::counters(at + kHalf / 4, odd)};
  }
  OUTRIDER_OP Wide xor_bits(Wide a, Wide b, Wide c) {
    return {V::xor_bits(a.low, b.low, c.low), V::xor_bits(a.high, b.high, c.high)};
  }
};

}  // namespace outrider

#undef OUTRIDER_OP
