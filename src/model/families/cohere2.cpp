// Command R7B and Command A: Cohere 2025, arXiv:2504.00698. Command-R with a sliding window in
// three of four layers; the fourth sees everything and has no rope.

#include "model/families/families.h"

namespace outrider {
namespace {

constexpr int kPeriod = 4;

ModelSpec spec(const Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata;
  ModelSpec spec = common_spec(checkpoint, "cohere2", NormKind::layer);
  spec.logit_scale = static_cast<float>(factor(metadata, "cohere2", "logit_scale"));
  Attention local = common_attention(checkpoint, "cohere2", RopePairing::adjacent);
  local.window =
      static_cast<int>(metadata.require_integer("cohere2.attention.sliding_window", 1, 1 << 24));
  Attention global = local;
  global.window.reset();
  global.rope.reset();
  const Mlp mlp = common_mlp(checkpoint, "cohere2", Activation::silu);
  const int n_layers = layer_count(metadata, "cohere2");
  for (int layer = 0; layer < n_layers; ++layer) {
    const bool is_local = has_window(metadata, "cohere2", layer, kPeriod);
    spec.layers.push_back(parallel_layer(is_local ? local : global, mlp));
  }
  return spec;
}

}  // namespace

Family cohere2_family() {
  return {"cohere2", spec};
}

}  // namespace outrider
