// Decoder layers of heads: their numbers from a config.json, their tensors by name.

#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/head_config.h"
#include "model/head_tensors.h"

namespace outrider {

// What a layout calls the tensor of a role in a layer; empty where it has none.
using HeadTensorNames = std::function<std::string(Role role, int layer)>;

// What Hugging Face's layouts call the tensor of a role, in its layer; empty for others.
std::string_view layer_tensor_name(Role role);

// All functions below throw Error, naming the file and the key or the tensor.

// What attention may have in some kinds of heads: in those of Qwen a gate, told by the shape of the
// queries' tensor, which then holds both, and rope over a part of the channels
// (partial_rotary_factor). Elsewhere these are errors.
enum class HeadVariants { none, qwen };

// Frequencies of `dims` channels: rope_theta, or 10000 where it is missing, with rope_scaling or
// rope_parameters (linear, llama3, yarn).
Rope read_head_rope(const HeadConfig& config, int dims, RopePairing pairing,
                    HeadVariants variants = HeadVariants::none);

// num_attention_heads, num_key_value_heads, head_dim and the rope; biases and norms of heads as
// layer 0 has tensors for them. Position 0 has no row.
Attention read_head_attention(const HeadConfig& config, RopePairing pairing,
                              const HeadTensors& tensors, const HeadTensorNames& names,
                              HeadVariants variants = HeadVariants::none);

// num_hidden_layers, 1 where it is missing; with the target's they have to fit into the cache.
int read_head_layers(const HeadConfig& config, const Model& target);

// rms_norm_eps, 1e-6 where it is missing.
float read_head_epsilon(const HeadConfig& config);

// intermediate_size; hidden_act has to be SiLU.
Mlp read_head_mlp(const HeadConfig& config);

// Takes the tensors of a layer with attention and MLP, norms where its operations have them.
void take_head_layer(HeadTensors& tensors, const ModelSpec& spec, int layer,
                     const HeadTensorNames& names);

// The tokens that the rows of an output matrix stand for (tensor d2t): of row i the token i +
// d2t[i], or d2t[i] itself where the table is absolute. Empty: all tokens, in order. output: the
// name of the matrix. draft_vocab_size has to agree.
std::vector<Token> read_draft_tokens(const HeadTensors& tensors, const HeadConfig& config,
                                     const Model& target, std::string_view output,
                                     bool is_absolute);

// How many rows the output matrix then has.
std::int64_t count_outputs(const HeadTensors& tensors, const Model& target);

}  // namespace outrider
