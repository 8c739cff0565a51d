// Gemma 3: Gemma Team 2025, arXiv:2503.19786. Norms before and after each body and on each head of
// q and k, five layers with a sliding window for each that sees everything, an embedding scaled by
// the root of its width.

#include <cmath>

#include "model/families/families.h"

namespace outrider {
namespace {

constexpr int kPattern = 6;  // every sixth layer sees everything
constexpr double kLocalRopeBase =
    10000;                        // of the others, whatever the file says about the global ones
constexpr int kLayersOf27B = 62;  // the one size whose scores are scaled by embedding / heads

ModelSpec spec(const Checkpoint& checkpoint) {
  const Metadata& metadata = checkpoint.metadata;
  ModelSpec spec = common_spec(checkpoint, "gemma3");
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(spec.embedding)));

  Attention global = common_attention(checkpoint, "gemma3", RopePairing::halves);
  global.has_qk_norm = true;
  const int n_layers = layer_count(metadata, "gemma3");
  if (n_layers == kLayersOf27B) {
    global.scale = 1 / std::sqrt(static_cast<double>(spec.embedding) / global.n_heads);
  }
  Attention local = global;
  local.window =
      static_cast<int>(metadata.require_integer("gemma3.attention.sliding_window", 1, 1 << 24));
  local.rope.base = kLocalRopeBase;
  local.rope.position_scale = 1;

  const Mlp mlp = common_mlp(metadata, "gemma3", Activation::gelu_tanh);
  for (int layer = 0; layer < n_layers; ++layer) {
    const bool is_global = layer % kPattern == kPattern - 1;
    spec.layers.push_back(
        {{{Role::attention_norm, is_global ? global : local, Role::attention_post_norm},
          {Role::mlp_norm, mlp, Role::mlp_post_norm}}});
  }
  return spec;
}

}  // namespace

Family gemma3_family() {
  return {"gemma3", spec,
          decoder_names({{Role::attention_q_norm, "blk.{}.attn_q_norm.weight"},
                         {Role::attention_k_norm, "blk.{}.attn_k_norm.weight"},
                         {Role::attention_post_norm, "blk.{}.post_attention_norm.weight"},
                         {Role::mlp_post_norm, "blk.{}.post_ffw_norm.weight"}})};
}

}  // namespace outrider
