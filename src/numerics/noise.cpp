#include "numerics/noise.h"

#include <algorithm>
#include <cmath>

#include "numerics/functions.h"

namespace outrider {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::uint64_t key) {
  PhiloxKey round_key(key);
  for (int round = 0; round < kPhiloxRounds; ++round, round_key.advance()) {
    const std::uint64_t a = std::uint64_t{kPhiloxFactors[0]} * counter[0];
    const std::uint64_t b = std::uint64_t{kPhiloxFactors[1]} * counter[2];
    counter = {static_cast<std::uint32_t>(b >> 32) ^ counter[1] ^ round_key.words[0],
               static_cast<std::uint32_t>(b),
               static_cast<std::uint32_t>(a >> 32) ^ counter[3] ^ round_key.words[1],
               static_cast<std::uint32_t>(a)};
  }
  return counter;
}

float uniform_from_bits(std::uint32_t h) {
  // Both parts are exact, so the fma rounds once.
  const float high = static_cast<float>(h >> 16), low = static_cast<float>(h & 0xffff) + 0.5f;
  return std::min(std::fma(high, 0x1p-16f, low * 0x1p-32f), 1 - 0x1p-24f);
}

std::uint32_t noise_bits(const NoiseKey& key, Token token) {
  const auto id = static_cast<std::uint32_t>(token);
  return philox4x32({id / 4, key.position, key.stream, key.use_and_node()}, key.seed)[id % 4];
}

float uniform(const NoiseKey& key, Token token) {
  return uniform_from_bits(noise_bits(key, token));
}

float gumbel_from_uniform(float u) {
  return -log_f32(-log1p_f32(-u));
}

float gumbel(const NoiseKey& key, Token token) {
  return gumbel_from_uniform(uniform(key, token));
}

}  // namespace outrider
