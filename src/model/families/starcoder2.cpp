// StarCoder 2: Lozhkov et al. 2024, arXiv:2402.19173. Layer norms, biases on everything, an MLP
// without a gate.

#include "model/families/families.h"

namespace outrider {
namespace {

ModelSpec spec(const Checkpoint& checkpoint) {
  ModelSpec spec = common_spec(checkpoint, "starcoder2", NormKind::layer);
  Mlp mlp = common_mlp(checkpoint, "starcoder2", Activation::gelu_tanh);
  mlp.is_gated = false;
  spec.layers.assign(
      layer_count(checkpoint.metadata, "starcoder2"),
      plain_layer(common_attention(checkpoint, "starcoder2", RopePairing::halves), mlp));
  return spec;
}

}  // namespace

Family starcoder2_family() {
  return {"starcoder2", spec};
}

}  // namespace outrider
