// SmolLM3 (Bakouch et al. 2025): Llama in which every fourth layer has no rope (Yang et al. 2025,
// arXiv:2501.18795).

#include "model/families/families.h"

namespace outrider {
namespace {

constexpr int kPeriod = 4;  // files do not say it

ModelSpec spec(const FamilyFile& file) {
  ModelSpec spec = common_spec(file);
  const Attention with_rope = common_attention(file, RopePairing::adjacent);
  Attention without_rope = with_rope;
  without_rope.rope.reset();
  const Mlp mlp = common_mlp(file, Activation::silu);
  const int n_layers = layer_count(file);
  for (int layer = 0; layer < n_layers; ++layer)
    spec.layers.push_back(
        plain_layer(layer % kPeriod == kPeriod - 1 ? without_rope : with_rope, mlp));
  return spec;
}

}  // namespace

Family smollm3_family() {
  return {"smollm3", spec};
}

}  // namespace outrider
