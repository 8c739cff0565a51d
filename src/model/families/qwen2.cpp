// Qwen2 and Qwen2.5: Yang et al. 2024, arXiv:2407.10671. Llama with a bias on q, k and v and rope
// over halves.

#include "model/families/families.h"

namespace outrider {
namespace {

constexpr TensorName kNames[] = {
    {Role::token_embedding, "token_embd.weight"},
    {Role::output_norm, "output_norm.weight"},
    {Role::output, "output.weight", true},
    {Role::attention_norm, "blk.{}.attn_norm.weight"},
    {Role::attention_q, "blk.{}.attn_q.weight"},
    {Role::attention_k, "blk.{}.attn_k.weight"},
    {Role::attention_v, "blk.{}.attn_v.weight"},
    {Role::attention_q_bias, "blk.{}.attn_q.bias"},
    {Role::attention_k_bias, "blk.{}.attn_k.bias"},
    {Role::attention_v_bias, "blk.{}.attn_v.bias"},
    {Role::attention_output, "blk.{}.attn_output.weight"},
    {Role::mlp_norm, "blk.{}.ffn_norm.weight"},
    {Role::mlp_gate, "blk.{}.ffn_gate.weight"},
    {Role::mlp_up, "blk.{}.ffn_up.weight"},
    {Role::mlp_down, "blk.{}.ffn_down.weight"},
};

ModelSpec spec(const Checkpoint& checkpoint) {
  ModelSpec spec = common_spec(checkpoint, "qwen2");
  Attention attention = common_attention(checkpoint, "qwen2", RopePairing::halves);
  attention.has_bias = true;
  const LayerSpec layer = {
      {{Role::attention_norm, attention, {}},
       {Role::mlp_norm, common_mlp(checkpoint.metadata, "qwen2", Activation::silu), {}}}};
  spec.layers.assign(layer_count(checkpoint.metadata, "qwen2"), layer);
  return spec;
}

}  // namespace

Family qwen2_family() {
  return {"qwen2", spec, kNames};
}

}  // namespace outrider
