// Random numbers that are a function of a key and a token alone, not of earlier draws
// (docs/arithmetic.md, "The rest").

#pragma once

#include <array>
#include <cstdint>

#include "base/token.h"

namespace outrider {

// Philox4x32-10: Salmon et al. 2011, "Parallel random numbers: as easy as 1, 2, 3".
inline constexpr int kPhiloxRounds = 10;
inline constexpr std::uint32_t kPhiloxFactors[] = {0xd2511f53, 0xcd9e8d57};
struct PhiloxKey {
  explicit PhiloxKey(std::uint64_t key)
      : words{static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32)} {}
  void advance() {           // to the next round
    words[0] += 0x9e3779b9;  // golden ratio
    words[1] += 0xbb67ae85;  // sqrt(3) - 1
  }
  std::array<std::uint32_t, 2> words;
};
std::array<std::uint32_t, 4> philox4x32(std::array<std::uint32_t, 4> counter, std::uint64_t key);

// What a number is drawn for; numbers of different uses are independent.
enum class NoiseUse : std::uint32_t {
  choice = 0,      // of the target, and of drafters that guess it
  draft = 1,       // a drafter's draw from a distribution of its own
  acceptance = 2,  // of a drafted node
  residual = 3,    // the token in place of the drafted ones
};

// Where noise comes from; noise of different keys is independent.
struct NoiseKey {
  std::uint64_t seed = 0;
  std::uint32_t stream = 0;  // index among a request's parallel answers
  // A choice: tokens of the sequence before the chosen one, prompt included. Other uses: tokens of
  // the sequence at the start of the step.
  std::uint32_t position = 0;
  NoiseUse use = NoiseUse::choice;
  std::uint32_t node = 0;  // of the step's draft, below 2^28; a choice has none

  friend bool operator==(const NoiseKey&, const NoiseKey&) = default;

  std::uint32_t use_and_node() const { return static_cast<std::uint32_t>(use) | node << 4; }
};

// min((h + 0.5) * 2^-32, 1 - 2^-24), rounded once: between 0 and 1, neither.
float uniform_from_bits(std::uint32_t h);

// 32 bits: output (token mod 4) of counter (token / 4, position, stream, use + 16 node) under the
// seed.
std::uint32_t noise_bits(const NoiseKey& key, Token token);
// Uniform in (0, 1), of these bits.
float uniform(const NoiseKey& key, Token token);

// Gumbel noise, -log(-log1p(-u)). The argmax of logit + noise is a draw from the softmax (Gumbel
// 1954).
float gumbel_from_uniform(float u);
float gumbel(const NoiseKey& key, Token token);

// The least and the largest noise, rounded outwards: at u = 1 - 2^-24 and at u = 2^-33.
inline constexpr float kNoiseLowest = -2.8116f, kNoiseHighest = 22.8743f;

}  // namespace outrider
