// GLM-4 (0414): GLM Team 2024, arXiv:2406.12793. Norms before and after each body, rope on a part
// of the channels. Files hold gate and up as one tensor.

#include "model/families/families.h"

namespace outrider {
namespace {

constexpr MetadataKey kKeys[] = {
    // Of files that also see images: rope by three coordinates (M-RoPE).
    {.name = "rope.dimension_sections", .use = KeyUse::unsupported, .otherwise = 0.0},
};

ModelSpec spec(const FamilyFile& file) {
  ModelSpec spec = common_spec(file);
  spec.layers.assign(layer_count(file),
                     sandwich_layer(common_attention(file, RopePairing::adjacent),
                                    common_mlp(file, Activation::silu)));
  return spec;
}

}  // namespace

Family glm4_family() {
  return {"glm4", spec, kKeys};
}

}  // namespace outrider
