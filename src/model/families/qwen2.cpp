// Qwen2 and Qwen2.5: Yang et al. 2024, arXiv:2407.10671. Llama with a bias on q, k and v and rope
// over halves.

#include "model/families/families.h"

namespace outrider {
namespace {

ModelSpec spec(const FamilyFile& file) {
  ModelSpec spec = common_spec(file);
  Attention attention = common_attention(file, RopePairing::halves);
  attention.has_bias = true;
  spec.layers.assign(layer_count(file), plain_layer(attention, common_mlp(file, Activation::silu)));
  return spec;
}

}  // namespace

Family qwen2_family() {
  return {"qwen2", spec};
}

}  // namespace outrider
