// Gemma 2: Gemma Team 2024, arXiv:2408.00118. Norms before and after each body, soft caps on scores
// and logits, a sliding window in every other layer, an embedding scaled by the root of its width.

#include <cmath>

#include "model/families/families.h"

namespace outrider {
namespace {

constexpr int kPeriod = 2;        // every second layer sees everything
constexpr int kLayersOf27B = 46;  // the one size whose scores are scaled by embedding / heads

ModelSpec spec(const Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata;
  ModelSpec spec = common_spec(checkpoint, "gemma2");
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.embedding)));
  spec.logit_softcap = softcap(metadata, "gemma2", "final_logit_softcapping");

  Attention local = common_attention(checkpoint, "gemma2", RopePairing::halves);
  local.window =
      static_cast<int>(metadata.require_integer("gemma2.attention.sliding_window", 1, 1 << 24));
  local.softcap = softcap(metadata, "gemma2", "attn_logit_softcapping");
  const int n_layers = layer_count(metadata, "gemma2");
  if (n_layers == kLayersOf27B)
    local.scale = 1 / std::sqrt(static_cast<double>(spec.embedding) / local.n_heads);
  Attention global = local;
  global.window.reset();

  const Mlp mlp = common_mlp(checkpoint, "gemma2", Activation::gelu_tanh);
  for (int layer = 0; layer < n_layers; ++layer) {
    const bool is_local = has_window(metadata, "gemma2", layer, kPeriod);
    spec.layers.push_back(sandwich_layer(is_local ? local : global, mlp));
  }
  return spec;
}

}  // namespace

Family gemma2_family() {
  return {"gemma2", spec};
}

}  // namespace outrider
