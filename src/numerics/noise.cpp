#include "numerics/noise.h"

#include <algorithm>
#include <cmath>

#include "numerics/functions.h"

namespace outrider {

std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::uint64_t key) {
  auto key0 = static_cast<std::uint32_t>(key), key1 = static_cast<std::uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = std::uint64_t{0xd2511f53} * counter[0];
    const std::uint64_t product1 = std::uint64_t{0xcd9e8d57} * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key0,
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key1,
               static_cast<std::uint32_t>(product0)};
    key0 += 0x9e3779b9;  // golden ratio
    key1 += 0xbb67ae85;  // sqrt(3) - 1
  }
  return counter;
}

float uniform_from_bits(std::uint32_t h) {
  // Both parts are exact, so the fma rounds once.
  const float high = static_cast<float>(h >> 16), low = static_cast<float>(h & 0xffff) + 0.5f;
  return std::min(std::fma(high, 0x1p-16f, low * 0x1p-32f), 1 - 0x1p-24f);
}

float uniform(const NoiseKey& key, NoiseUse use, Token token) {
  const auto id = static_cast<std::uint32_t>(token);
  const auto h =
      philox4x32({id / 4, key.position, key.stream, static_cast<std::uint32_t>(use)}, key.seed);
  return uniform_from_bits(h[id % 4]);
}

float gumbel_from_uniform(float u) {
  return -log_f32(-log1p_f32(-u));
}

float gumbel(const NoiseKey& key, NoiseUse use, Token token) {
  return gumbel_from_uniform(uniform(key, use, token));
}

}  // namespace outrider
