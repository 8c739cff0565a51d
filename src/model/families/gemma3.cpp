// Gemma 3: Gemma Team 2025, arXiv:2503.19786. Norms before and after each body and on each head of
// q and k, five layers with a sliding window for each that sees everything, an embedding scaled by
// the root of its width.

#include <cmath>

#include "model/families/families.h"
#include "model/rope_spec.h"

namespace outrider {
namespace {

constexpr int kPeriod = 6;                // every sixth layer sees everything
constexpr double kLocalRopeBase = 10000;  // of the others, unless the file has another
constexpr int kLayersOf27B = 62;  // the one size whose scores are scaled by embedding / heads

ModelSpec spec(const Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata;
  ModelSpec spec = common_spec(checkpoint, "gemma3");
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.embedding)));
  spec.logit_softcap = softcap(metadata, "gemma3", "final_logit_softcapping");

  Attention global = common_attention(checkpoint, "gemma3", RopePairing::halves);
  global.qk_norm = HeadNorm::shared;
  const int n_layers = layer_count(metadata, "gemma3");
  if (n_layers == kLayersOf27B)
    global.scale = 1 / std::sqrt(static_cast<double>(spec.embedding) / global.n_heads);
  Attention local = global;
  local.window =
      static_cast<int>(metadata.require_integer("gemma3.attention.sliding_window", 1, 1 << 24));
  local.rope =
      plain_rope(RopePairing::halves, local.rope ? local.rope->dims() : 0,
                 rope_base(metadata, "gemma3.rope.freq_base_swa").value_or(kLocalRopeBase));
  global.window.reset();

  const Mlp mlp = common_mlp(checkpoint, "gemma3", Activation::gelu_tanh);
  for (int layer = 0; layer < n_layers; ++layer) {
    const bool is_local = has_window(metadata, "gemma3", layer, kPeriod);
    spec.layers.push_back(sandwich_layer(is_local ? local : global, mlp));
  }
  return spec;
}

}  // namespace

Family gemma3_family() {
  return {"gemma3", spec};
}

}  // namespace outrider
