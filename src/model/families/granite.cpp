// Granite 3, dense (Granite Team 2024): Llama with factors on embedding, scores, what each body
// adds, and logits (Yang et al. 2022, arXiv:2203.03466).

#include "model/families/families.h"

namespace outrider {
namespace {

ModelSpec spec(const Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata;
  ModelSpec spec = common_spec(checkpoint, "granite");
  spec.embedding_scale = static_cast<float>(factor(metadata, "granite", "embedding_scale"));
  spec.output_scale = static_cast<float>(factor(metadata, "granite", "residual_scale"));
  spec.logit_scale = static_cast<float>(1 / factor(metadata, "granite", "logit_scale"));
  Attention attention = common_attention(checkpoint, "granite", RopePairing::adjacent);
  if (metadata.find("granite.attention.scale") != nullptr)
    attention.scale = factor(metadata, "granite", "attention.scale");
  spec.layers.assign(layer_count(metadata, "granite"),
                     plain_layer(attention, common_mlp(checkpoint, "granite", Activation::silu)));
  return spec;
}

}  // namespace

Family granite_family() {
  return {"granite", spec};
}

}  // namespace outrider
