// Qwen2 and Qwen2.5: Yang et al. 2024, arXiv:2407.10671. Llama with a bias on q, k and v and rope
// over halves.

#include "model/families/families.h"

namespace outrider {
namespace {

ModelSpec spec(const Checkpoint& checkpoint) {
  ModelSpec spec = common_spec(checkpoint, "qwen2");
  Attention attention = common_attention(checkpoint, "qwen2", RopePairing::halves);
  attention.has_bias = true;
  spec.layers.assign(layer_count(checkpoint.metadata, "qwen2"),
                     plain_layer(attention, common_mlp(checkpoint, "qwen2", Activation::silu)));
  return spec;
}

}  // namespace

Family qwen2_family() {
  return {"qwen2", spec};
}

}  // namespace outrider
