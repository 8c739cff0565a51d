// Command-R and R+, Aya 23 (Cohere 2024): attention and MLP side by side behind one layer norm,
// scaled logits. R+ has a norm on each head of q and k, with weights of its own.

#include "model/families/families.h"

namespace outrider {
namespace {

ModelSpec spec(const Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata;
  ModelSpec spec = common_spec(checkpoint, "command-r", NormKind::layer);
  spec.logit_scale = static_cast<float>(factor(metadata, "command-r", "logit_scale"));
  Attention attention = common_attention(checkpoint, "command-r", RopePairing::adjacent);
  if (checkpoint.find("blk.0.attn_q_norm.weight") != nullptr) attention.qk_norm = HeadNorm::each;
  spec.layers.assign(
      layer_count(metadata, "command-r"),
      parallel_layer(attention, common_mlp(checkpoint, "command-r", Activation::silu)));
  return spec;
}

}  // namespace

Family command_r_family() {
  return {"command-r", spec};
}

}  // namespace outrider
