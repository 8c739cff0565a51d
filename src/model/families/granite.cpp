// Granite 3, dense (Granite Team 2024): Llama with factors on embedding, scores, what each body
// adds, and logits (Yang et al. 2022, arXiv:2203.03466).

#include "model/families/families.h"

namespace outrider {
namespace {

constexpr MetadataKey kKeys[] = {
    {.name = "logit_scale"},
    {.name = "residual_scale", .otherwise = 0.0},
    {.name = "embedding_scale", .otherwise = 0.0},
    {.name = "attention.scale", .otherwise = 0.0},
    {.name = "rope.scaling.finetuned", .otherwise = 1.0},  // the switch for rope
    {.name = "deepstack_mapping", .use = KeyUse::unsupported, .otherwise = -1.0},
    {.name = "expert_shared_feed_forward_length", .use = KeyUse::unsupported, .otherwise = 0.0},
};

ModelSpec spec(const FamilyFile& file) {
  ModelSpec spec = common_spec(file);
  spec.embedding_scale = static_cast<float>(factor(file, "embedding_scale"));
  spec.output_scale = static_cast<float>(factor(file, "residual_scale"));
  spec.logit_scale = static_cast<float>(1 / required_factor(file, "logit_scale"));
  Attention attention = common_attention(file, RopePairing::adjacent);
  if (file.number("attention.scale", 0, 1e6) != 0)
    attention.scale = factor(file, "attention.scale");
  if (!file.boolean("rope.scaling.finetuned")) attention.rope.reset();
  spec.layers.assign(layer_count(file), plain_layer(attention, common_mlp(file, Activation::silu)));
  return spec;
}

}  // namespace

Family granite_family() {
  return {"granite", spec, kKeys};
}

}  // namespace outrider
