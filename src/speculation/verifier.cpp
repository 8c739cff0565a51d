#include "speculation/verifier.h"

#include "base/error.h"

namespace outrider {

PhiloxChance::PhiloxChance(std::uint64_t seed, std::uint32_t stream, int length)
    : key_{.seed = seed, .stream = stream, .position = static_cast<std::uint32_t>(length)} {}

namespace {

// Uniform in (0, 1).
double number(NoiseKey key, NoiseUse use, int node) {
  key.use = use;
  key.node = static_cast<std::uint32_t>(node);
  return (noise_bits(key, 0) + 0.5) * 0x1p-32;
}

}  // namespace

bool PhiloxChance::accepts(int node, double probability) const {
  return number(key_, NoiseUse::acceptance, node) < probability;
}

std::size_t PhiloxChance::pick(int node, std::span<const double> weights) const {
  double sum = 0;
  for (const double weight : weights) sum += weight;
  double left = sum * number(key_, NoiseUse::residual, node);
  std::size_t last = weights.size();
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (weights[i] <= 0) continue;
    last = i;
    if (left < weights[i]) return i;
    left -= weights[i];
  }
  CHECK(last < weights.size());
  return last;
}

std::shared_ptr<const Verifier> make_verifier(std::string_view name,
                                              const TypicalAcceptance& acceptance) {
  if (name == "coupled") return coupled_verifier();
  if (name == "rejection") return rejection_verifier();
  CHECK(name == "typical");
  return typical_verifier(acceptance);
}

}  // namespace outrider
