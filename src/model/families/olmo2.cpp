// OLMo 2 and 3, dense: OLMo Team 2025, arXiv:2501.00656. Norms after each body instead of before
// it, and on all heads of q and of k as one vector. OLMo 3 has a sliding window in three of four
// layers, whose rope is not scaled.

#include "model/families/families.h"
#include "model/rope_spec.h"

namespace outrider {
namespace {

constexpr int kPeriod = 4;  // every fourth layer sees everything, if any has a window
constexpr double kDefaultRopeBase = 10000;

ModelSpec spec(const Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata;
  ModelSpec spec = common_spec(checkpoint, "olmo2");
  Attention global = common_attention(checkpoint, "olmo2", RopePairing::halves);
  global.qk_norm = HeadNorm::all;
  Attention local = global;
  local.rope = plain_rope(RopePairing::halves, local.rope ? local.rope->dims() : 0,
                          rope_base(metadata, "olmo2.rope.freq_base").value_or(kDefaultRopeBase));
  global.window.reset();
  const Mlp mlp = common_mlp(checkpoint, "olmo2", Activation::silu);
  const int n_layers = layer_count(metadata, "olmo2");
  for (int layer = 0; layer < n_layers; ++layer) {
    const bool is_local = local.window && has_window(metadata, "olmo2", layer, kPeriod);
    spec.layers.push_back({{{{}, is_local ? local : global, Role::attention_post_norm},
                            {{}, mlp, Role::mlp_post_norm}}});
  }
  return spec;
}

}  // namespace

Family olmo2_family() {
  return {"olmo2", spec};
}

}  // namespace outrider
