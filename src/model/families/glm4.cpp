// GLM-4 (0414): GLM Team 2024, arXiv:2406.12793. Norms before and after each body, rope on a part
// of the channels. Files hold gate and up as one tensor.

#include "model/families/families.h"

namespace outrider {
namespace {

ModelSpec spec(const Checkpoint& checkpoint) {
  ModelSpec spec = common_spec(checkpoint, "glm4");
  spec.layers.assign(layer_count(checkpoint.metadata, "glm4"),
                     sandwich_layer(common_attention(checkpoint, "glm4", RopePairing::adjacent),
                                    common_mlp(checkpoint, "glm4", Activation::silu)));
  return spec;
}

}  // namespace

Family glm4_family() {
  return {"glm4", spec};
}

}  // namespace outrider
