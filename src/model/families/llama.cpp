// Llama and what copies it (SmolLM2): Touvron et al. 2023, arXiv:2302.13971.

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
    {Role::attention_output, "blk.{}.attn_output.weight"},
    {Role::mlp_norm, "blk.{}.ffn_norm.weight"},
    {Role::mlp_gate, "blk.{}.ffn_gate.weight"},
    {Role::mlp_up, "blk.{}.ffn_up.weight"},
    {Role::mlp_down, "blk.{}.ffn_down.weight"},
};

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
  return {"llama", spec, kNames};
}

}  // namespace outrider
