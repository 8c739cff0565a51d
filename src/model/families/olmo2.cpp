// OLMo 2 and 3, dense: OLMo Team 2025, arXiv:2501.00656. Norms after each body instead of before
// it, and on all heads of q and of k as one vector. OLMo 3 has a sliding window in three of four
// layers, whose rope is not scaled.

#include "model/families/families.h"
#include "model/rope_spec.h"

namespace outrider {
namespace {

constexpr int kPeriod = 4;  // every fourth layer sees everything, if any has a window
constexpr MetadataKey kKeys[] = {
    kWindowPattern,
    {.name = "rope.freq_base_swa", .otherwise = SameAs{"rope.freq_base"}},
};

ModelSpec spec(const FamilyFile& file) {
  ModelSpec spec = common_spec(file);
  Attention global = common_attention(file, RopePairing::halves);
  global.qk_norm = HeadNorm::all;
  Attention local = global;
  if (local.rope)
    local.rope = plain_rope(file, RopePairing::halves, local.rope->dims(), "rope.freq_base_swa");
  global.window.reset();
  const Mlp mlp = common_mlp(file, Activation::silu);
  const int n_layers = layer_count(file);
  for (int layer = 0; layer < n_layers; ++layer) {
    const bool is_local = local.window && has_window(file, layer, kPeriod);
    spec.layers.push_back({{{{}, is_local ? local : global, Role::attention_post_norm},
                            {{}, mlp, Role::mlp_post_norm}}});
  }
  return spec;
}

}  // namespace

Family olmo2_family() {
  return {"olmo2", spec, kKeys};
}

}  // namespace outrider
