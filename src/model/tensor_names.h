// What GGUF calls the tensor of each role, in every family; "{}" stands for the layer.

#pragma once

#include <string_view>
#include <vector>

#include "model/spec.h"

namespace outrider {

struct TensorName {
  Role role;
  std::string_view pattern;
};
inline constexpr TensorName kTensorNames[] = {
    {Role::token_embedding, "token_embd.weight"},
    {Role::output_norm, "output_norm.weight"},
    {Role::output_norm_bias, "output_norm.bias"},
    {Role::output, "output.weight"},
    {Role::rope_factors, "rope_freqs.weight"},
    {Role::rope_factors_long, "rope_factors_long.weight"},
    {Role::rope_factors_short, "rope_factors_short.weight"},
    {Role::attention_norm, "blk.{}.attn_norm.weight"},
    {Role::attention_norm_bias, "blk.{}.attn_norm.bias"},
    {Role::attention_q, "blk.{}.attn_q.weight"},
    {Role::attention_k, "blk.{}.attn_k.weight"},
    {Role::attention_v, "blk.{}.attn_v.weight"},
    {Role::attention_q_bias, "blk.{}.attn_q.bias"},
    {Role::attention_k_bias, "blk.{}.attn_k.bias"},
    {Role::attention_v_bias, "blk.{}.attn_v.bias"},
    {Role::attention_q_norm, "blk.{}.attn_q_norm.weight"},
    {Role::attention_k_norm, "blk.{}.attn_k_norm.weight"},
    {Role::attention_output, "blk.{}.attn_output.weight"},
    {Role::attention_output_bias, "blk.{}.attn_output.bias"},
    {Role::attention_post_norm, "blk.{}.post_attention_norm.weight"},
    {Role::mlp_norm, "blk.{}.ffn_norm.weight"},
    {Role::mlp_norm_bias, "blk.{}.ffn_norm.bias"},
    {Role::mlp_gate, "blk.{}.ffn_gate.weight"},
    {Role::mlp_up, "blk.{}.ffn_up.weight"},
    {Role::mlp_down, "blk.{}.ffn_down.weight"},
    {Role::mlp_gate_bias, "blk.{}.ffn_gate.bias"},
    {Role::mlp_up_bias, "blk.{}.ffn_up.bias"},
    {Role::mlp_down_bias, "blk.{}.ffn_down.bias"},
    {Role::mlp_post_norm, "blk.{}.post_ffw_norm.weight"},
};

// Tensors that hold those of several roles, one after another, where a file lacks the first of
// them.
struct FusedTensorName {
  std::string_view pattern;
  std::vector<Role> roles;
};
inline const FusedTensorName kFusedTensorNames[] = {
    {"blk.{}.attn_qkv.weight", {Role::attention_q, Role::attention_k, Role::attention_v}},
    {"blk.{}.attn_qkv.bias",
     {Role::attention_q_bias, Role::attention_k_bias, Role::attention_v_bias}},
    {"blk.{}.ffn_up.weight", {Role::mlp_gate, Role::mlp_up}},
    {"blk.{}.ffn_up.bias", {Role::mlp_gate_bias, Role::mlp_up_bias}},
};

}  // namespace outrider
