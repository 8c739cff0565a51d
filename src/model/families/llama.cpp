// Llama 1 to 3.2 (Touvron et al. 2023, arXiv:2302.13971) and what copies it: Mistral, SmolLM2,
// Falcon 3, distillates.

#include "model/families/families.h"

namespace outrider {
namespace {

constexpr MetadataKey kKeys[] = {
    // Jiang et al. 2023, arXiv:2310.06825.
    {.name = "attention.sliding_window",
     .otherwise = Published{.model = "Mistral 7B 0.1",
                            .then = 4096,
                            .elsewhere = 0,
                            .where = {{{"context_length", 32768},
                                       {"feed_forward_length", 14336},
                                       {"rope.freq_base", 10000}}}}},
};

// GGUF stores q and k of this family permuted, so that neighbouring channels turn together.
ModelSpec spec(const FamilyFile& file) {
  ModelSpec spec = common_spec(file);
  spec.layers.assign(layer_count(file), plain_layer(common_attention(file, RopePairing::adjacent),
                                                    common_mlp(file, Activation::silu)));
  return spec;
}

}  // namespace

Family llama_family() {
  return {"llama", spec, kKeys};
}

}  // namespace outrider
