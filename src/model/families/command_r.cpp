// Command-R and R+, Aya 23 (Cohere 2024): attention and MLP side by side behind one layer norm,
// scaled logits. R+ has a norm on each head of q and k, with weights of its own.

#include "model/families/families.h"

namespace outrider {
namespace {

// llama.cpp loads files without a scale, but no model of the family is without one.
constexpr MetadataKey kKeys[] = {
    {.name = "logit_scale"},
    kLayerNormEpsilon,
    kNoRmsNormEpsilon,
};

ModelSpec spec(const FamilyFile& file) {
  ModelSpec spec = common_spec(file, NormKind::layer);
  spec.logit_scale = static_cast<float>(required_factor(file, "logit_scale"));
  Attention attention = common_attention(file, RopePairing::adjacent);
  if (file.checkpoint().find("blk.0.attn_q_norm.weight") != nullptr)
    attention.qk_norm = HeadNorm::each;
  spec.layers.assign(layer_count(file),
                     parallel_layer(attention, common_mlp(file, Activation::silu)));
  return spec;
}

}  // namespace

Family command_r_family() {
  return {"command-r", spec, kKeys};
}

}  // namespace outrider
