// Ministral 3 (Mistral AI 2025): Mistral with YaRN and queries that grow with their position.

#include "model/families/families.h"

namespace outrider {
namespace {

constexpr MetadataKey kKeys[] = {
    {.name = "attention.temperature_scale", .otherwise = 0.0},
};

ModelSpec spec(const FamilyFile& file) {
  ModelSpec spec = common_spec(file);
  Attention attention = common_attention(file, RopePairing::adjacent);
  if (const double beta = file.number("attention.temperature_scale", 0, 1e6); beta != 0)
    attention.query_growth = {beta,
                              file.integer("rope.scaling.original_context_length", 1, 1 << 24)};
  spec.layers.assign(layer_count(file), plain_layer(attention, common_mlp(file, Activation::silu)));
  return spec;
}

}  // namespace

Family mistral3_family() {
  return {"mistral3", spec, kKeys};
}

}  // namespace outrider
