// Phi-3 and Phi-4: Abdin et al. 2024, arXiv:2404.14219, arXiv:2412.08905. Llama with rope over
// halves of the first channels, with long and short factors. Files hold q, k and v, and gate and
// up, as one tensor each.

#include "model/families/families.h"

namespace outrider {
namespace {

constexpr MetadataKey kKeys[] = {
    {.name = "attention.sliding_window",
     .otherwise = Published{.model = "Phi-3 mini and medium, 4k",
                            .then = 2047,
                            .elsewhere = 0,
                            .where = {{{"context_length", 4096}}}}},
};

ModelSpec spec(const FamilyFile& file) {
  ModelSpec spec = common_spec(file);
  spec.layers.assign(layer_count(file), plain_layer(common_attention(file, RopePairing::halves),
                                                    common_mlp(file, Activation::silu)));
  return spec;
}

}  // namespace

Family phi3_family() {
  return {"phi3", spec, kKeys};
}

}  // namespace outrider
