// StarCoder 2: Lozhkov et al. 2024, arXiv:2402.19173. Layer norms, biases on everything, an MLP
// without a gate.

#include "model/families/families.h"

namespace outrider {
namespace {

constexpr MetadataKey kKeys[] = {
    // Of all published models (as the paper says); converters leave it out.
    {.name = "attention.sliding_window", .otherwise = 4096.0},
    kLayerNormEpsilon,
    kNoRmsNormEpsilon,
};

ModelSpec spec(const FamilyFile& file) {
  ModelSpec spec = common_spec(file, NormKind::layer);
  Mlp mlp = common_mlp(file, Activation::gelu_tanh);
  mlp.is_gated = false;
  spec.layers.assign(layer_count(file),
                     plain_layer(common_attention(file, RopePairing::halves), mlp));
  return spec;
}

}  // namespace

Family starcoder2_family() {
  return {"starcoder2", spec, kKeys};
}

}  // namespace outrider
