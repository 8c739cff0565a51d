// Llama and what copies it (SmolLM2): Touvron et al. 2023, arXiv:2302.13971.

#include "model/families/families.h"

namespace outrider {
namespace {

// GGUF stores q and k of this family permuted, so that neighbouring channels turn together.
ModelSpec spec(const Checkpoint& checkpoint) {
  ModelSpec spec = common_spec(checkpoint, "llama");
  const LayerSpec layer = {
      {{Role::attention_norm, common_attention(checkpoint, "llama", RopePairing::adjacent), {}},
       {Role::mlp_norm, common_mlp(checkpoint.metadata, "llama", Activation::silu), {}}}};
  spec.layers.assign(layer_count(checkpoint.metadata, "llama"), layer);
  return spec;
}

}  // namespace

Family llama_family() {
  return {"llama", spec, decoder_names()};
}

}  // namespace outrider
