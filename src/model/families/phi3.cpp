// Phi-3 and Phi-4: Abdin et al. 2024, arXiv:2404.14219, arXiv:2412.08905. Llama with rope over
// halves of the first channels, with long and short factors. Files hold q, k and v, and gate and
// up, as one tensor each.

#include "model/families/families.h"

namespace outrider {
namespace {

ModelSpec spec(const Checkpoint& checkpoint) {
  ModelSpec spec = common_spec(checkpoint, "phi3");
  spec.layers.assign(layer_count(checkpoint.metadata, "phi3"),
                     plain_layer(common_attention(checkpoint, "phi3", RopePairing::halves),
                                 common_mlp(checkpoint, "phi3", Activation::silu)));
  return spec;
}

}  // namespace

Family phi3_family() {
  return {"phi3", spec};
}

}  // namespace outrider
