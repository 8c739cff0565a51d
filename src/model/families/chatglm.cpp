// ChatGLM 3 and GLM-4 (first release): GLM Team 2024, arXiv:2406.12793. Llama with a bias on q, k
// and v and rope on half of the channels. Files hold q, k and v, and gate and up, as one tensor
// each.

#include "model/families/families.h"

namespace outrider {
namespace {

ModelSpec spec(const FamilyFile& file) {
  ModelSpec spec = common_spec(file);
  spec.layers.assign(layer_count(file), plain_layer(common_attention(file, RopePairing::adjacent),
                                                    common_mlp(file, Activation::silu)));
  return spec;
}

}  // namespace

Family chatglm_family() {
  return {"chatglm", spec};
}

}  // namespace outrider
