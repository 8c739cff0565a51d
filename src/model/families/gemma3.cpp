// Gemma 3: Gemma Team 2025, arXiv:2503.19786. Norms before and after each body and on each head of
// q and k, five layers with a sliding window for each that sees everything, an embedding scaled by
// the root of its width.

#include <cmath>

#include "model/families/families.h"
#include "model/rope_spec.h"

namespace outrider {
namespace {

constexpr int kPeriod = 6;  // every sixth layer sees everything
constexpr MetadataKey kKeys[] = {
    // Converters leave it out where no layer has a window.
    {.name = "attention.sliding_window", .otherwise = 0.0},
    kWindowPattern,
    {.name = "rope.freq_base_swa", .otherwise = 10000.0},
    {.name = "final_logit_softcapping", .otherwise = 0.0},
};
constexpr int kLayersOf27B = 62;  // the one size whose scores are scaled by embedding / heads

ModelSpec spec(const FamilyFile& file) {
  ModelSpec spec = common_spec(file);
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.embedding)));
  spec.logit_softcap = softcap(file, "final_logit_softcapping");

  Attention global = common_attention(file, RopePairing::halves);
  global.qk_norm = HeadNorm::shared;
  const int n_layers = layer_count(file);
  if (n_layers == kLayersOf27B)
    global.scale = 1 / std::sqrt(static_cast<double>(spec.embedding) / global.n_heads);
  Attention local = global;
  if (local.rope)
    local.rope = plain_rope(file, RopePairing::halves, local.rope->dims(), "rope.freq_base_swa");
  global.window.reset();

  const Mlp mlp = common_mlp(file, Activation::gelu_tanh);
  for (int layer = 0; layer < n_layers; ++layer) {
    const bool is_local = local.window && has_window(file, layer, kPeriod);
    spec.layers.push_back(sandwich_layer(is_local ? local : global, mlp));
  }
  return spec;
}

}  // namespace

Family gemma3_family() {
  return {"gemma3", spec, kKeys};
}

}  // namespace outrider
