// Gemma 2: Gemma Team 2024, arXiv:2408.00118. Norms before and after each body, soft caps on scores
// and logits, a sliding window in every other layer, an embedding scaled by the root of its width.

#include <cmath>

#include "model/families/families.h"
#include "model/rope_spec.h"

namespace outrider {
namespace {

constexpr int kPeriod = 2;  // every second layer sees everything
// Files of 2024 lack window and soft caps.
constexpr MetadataKey kKeys[] = {
    {.name = "attention.sliding_window", .otherwise = 4096.0},
    kWindowPattern,
    {.name = "rope.freq_base_swa", .otherwise = SameAs{"rope.freq_base"}},
    {.name = "attn_logit_softcapping", .otherwise = 50.0},
    {.name = "final_logit_softcapping", .otherwise = 30.0},
};
constexpr int kLayersOf27B = 46;  // the one size whose scores are scaled by embedding / heads

ModelSpec spec(const FamilyFile& file) {
  ModelSpec spec = common_spec(file);
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.embedding)));
  spec.logit_softcap = softcap(file, "final_logit_softcapping");

  Attention local = common_attention(file, RopePairing::halves);
  local.softcap = softcap(file, "attn_logit_softcapping");
  const int n_layers = layer_count(file);
  if (n_layers == kLayersOf27B)
    local.scale = 1 / std::sqrt(static_cast<double>(spec.embedding) / local.n_heads);
  Attention global = local;
  global.window.reset();
  if (local.rope)
    local.rope = scaled_rope(file, RopePairing::halves, local.rope->dims(), "rope.freq_base_swa");

  const Mlp mlp = common_mlp(file, Activation::gelu_tanh);
  for (int layer = 0; layer < n_layers; ++layer) {
    const bool is_local = has_window(file, layer, kPeriod);
    spec.layers.push_back(sandwich_layer(is_local ? local : global, mlp));
  }
  return spec;
}

}  // namespace

Family gemma2_family() {
  return {"gemma2", spec, kKeys};
}

}  // namespace outrider
