// Llama 1 to 3.2 (Touvron et al. 2023, arXiv:2302.13971) and what copies it: Mistral, SmolLM2,
// Falcon 3, distillates.

#include "model/families/families.h"

namespace outrider {
namespace {

// GGUF stores q and k of this family permuted, so that neighbouring channels turn together.
ModelSpec spec(const Checkpoint& checkpoint) {
  ModelSpec spec = common_spec(checkpoint, "llama");
  spec.layers.assign(layer_count(checkpoint.metadata, "llama"),
                     plain_layer(common_attention(checkpoint, "llama", RopePairing::adjacent),
                                 common_mlp(checkpoint, "llama", Activation::silu)));
  return spec;
}

}  // namespace

Family llama_family() {
  return {"llama", spec};
}

}  // namespace outrider
