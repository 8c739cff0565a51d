// Half precision and bfloat16, as numbers in files and caches are stored. Scalar and exact on every
// machine; the fast twins (F16C, AVX-512) give the same bits.

#pragma once

#include <bit>
#include <cstdint>

namespace outrider {

// The bits of an IEEE binary16.
using Half = std::uint16_t;

// Exact. A NaN keeps its sign and payload and becomes quiet.
inline float half_to_float(Half half) {
  const std::uint32_t sign = std::uint32_t{half & 0x8000u} << 16;
  const std::uint32_t magnitude = half & 0x7fffu;
  std::uint32_t bits;
  if (magnitude > 0x7c00u) {
    bits = 0x7fc00000u | (magnitude & 0x3ffu) << 13;
  } else if (magnitude == 0x7c00u) {
    bits = 0x7f800000u;
  } else if (magnitude >= 0x0400u) {
    bits = (magnitude << 13) + (112u << 23);  // exponent bias 15 becomes 127
  } else {
    bits = std::bit_cast<std::uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);  // subnormal
  }
  return std::bit_cast<float>(sign | bits);
}

// Round to nearest even; beyond 65504 to infinity from 65520 on. A NaN keeps its sign and the upper
// part of its payload and becomes quiet.
inline Half float_to_half(float value) {
  const std::uint32_t bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits >> 16) & 0x8000u;
  const std::uint32_t magnitude = bits & 0x7fffffffu;
  std::uint32_t half;
  if (magnitude > 0x7f800000u) {
    half = 0x7e00u | (magnitude >> 13 & 0x3ffu);
  } else if (magnitude >= 0x477ff000u) {  // 65520: half way between 65504 and what would come next
    half = 0x7c00u;
  } else if (magnitude >= 0x38800000u) {  // 2^-14, the least normal half
    half = (magnitude - (112u << 23) + 0xfffu + (magnitude >> 13 & 1u)) >> 13;
  } else {
    // Floats in [0.5, 1) are 2^-24 apart, as subnormal halves are: the addition rounds to a
    // multiple of that.
    half = std::bit_cast<std::uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  }
  return static_cast<Half>(sign | half);
}

// Exact; NaNs keep their bits.
inline float bf16_to_float(std::uint16_t bf16) {
  return std::bit_cast<float>(std::uint32_t{bf16} << 16);
}

}  // namespace outrider
