// Ministral 3 (Mistral AI 2025): Mistral with YaRN and queries that grow with their position.

#include "model/families/families.h"

namespace outrider {
namespace {

ModelSpec spec(const Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata;
  ModelSpec spec = common_spec(checkpoint, "mistral3");
  Attention attention = common_attention(checkpoint, "mistral3", RopePairing::adjacent);
  if (metadata.find("mistral3.attention.temperature_scale") != nullptr) {
    attention.query_growth = {factor(metadata, "mistral3", "attention.temperature_scale"),
                              static_cast<int>(metadata.require_integer(
                                  "mistral3.rope.scaling.original_context_length", 1, 1 << 24))};
  }
  spec.layers.assign(layer_count(metadata, "mistral3"),
                     plain_layer(attention, common_mlp(checkpoint, "mistral3", Activation::silu)));
  return spec;
}

}  // namespace

Family mistral3_family() {
  return {"mistral3", spec};
}

}  // namespace outrider
