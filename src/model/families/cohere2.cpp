// Command R7B and Command A: Cohere 2025, arXiv:2504.00698. Command-R with a sliding window in
// three of four layers; the fourth sees everything and has no rope.

#include "model/families/families.h"
#include "model/rope_spec.h"

namespace outrider {
namespace {

constexpr int kPeriod = 4;
constexpr MetadataKey kKeys[] = {
    {.name = "logit_scale"},
    {.name = "attention.sliding_window"},
    {.name = "rope.freq_base_swa", .otherwise = SameAs{"rope.freq_base"}},
    kWindowPattern,
    kLayerNormEpsilon,
    kNoRmsNormEpsilon,
};

ModelSpec spec(const FamilyFile& file) {
  ModelSpec spec = common_spec(file, NormKind::layer);
  spec.logit_scale = static_cast<float>(required_factor(file, "logit_scale"));
  Attention local = common_attention(file, RopePairing::adjacent);
  if (local.rope)
    local.rope = scaled_rope(file, RopePairing::adjacent, local.rope->dims(), "rope.freq_base_swa");
  Attention global = local;
  global.window.reset();
  global.rope.reset();
  const Mlp mlp = common_mlp(file, Activation::silu);
  const int n_layers = layer_count(file);
  for (int layer = 0; layer < n_layers; ++layer) {
    const bool is_local = has_window(file, layer, kPeriod);
    spec.layers.push_back(parallel_layer(is_local ? local : global, mlp));
  }
  return spec;
}

}  // namespace

Family cohere2_family() {
  return {"cohere2", spec, kKeys};
}

}  // namespace outrider
