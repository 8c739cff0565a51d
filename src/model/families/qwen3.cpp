// Qwen3, dense: Yang et al. 2025, arXiv:2505.09388. Qwen2 with a norm on each head of q and k
// instead of biases.

#include "model/families/families.h"

namespace outrider {
namespace {

ModelSpec spec(const FamilyFile& file) {
  ModelSpec spec = common_spec(file);
  Attention attention = common_attention(file, RopePairing::halves);
  attention.qk_norm = HeadNorm::shared;
  spec.layers.assign(layer_count(file), plain_layer(attention, common_mlp(file, Activation::silu)));
  return spec;
}

}  // namespace

Family qwen3_family() {
  return {"qwen3", spec};
}

}  // namespace outrider
