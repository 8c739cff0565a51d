// A model family as data: what each layer computes, with the numbers from the file. Families differ
// in what they put here and in how they name tensors (family.h), never in code that runs per token.

#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/token.h"

namespace outrider {

// What a tensor is for. One of each per layer, but for those up to confidence_bias, which a model
// has once.
enum class Role {
  token_embedding,  // [embedding, vocabulary]
  output_norm,      // [embedding], as all norms and their biases below unless noted
  output_norm_bias,
  output,        // [embedding, vocabulary]; absent: the token embedding serves
  rope_factors,  // [dims / 2]; the spec's rope is made with them (rope_spec.h), as with the next
  rope_factors_long,
  rope_factors_short,
  feature_fusion,  // of a head, as EagleInput::Fused says
  feature_fusion_bias,
  feature_norm,     // [taps * tap_width]; of BlockInput [embedding]
  successor_table,  // of a head, as BlockInput says: [rank, vocabulary]
  successor_gate,   // [embedding + rank, rank], or [rank + rank + embedding, 3 * rank]
  successor_gate_bias,
  successor_output,  // [rank, vocabulary]
  confidence,        // [embedding], or [embedding + rank]
  confidence_bias,   // [1]
  token_norm,        // of a token's embedding beside the stream (Operation::reads_token)
  attention_norm,
  attention_norm_bias,
  attention_q,
  attention_k,
  attention_v,
  attention_q_bias,
  attention_k_bias,
  attention_v_bias,
  attention_q_norm,  // as HeadNorm says
  attention_k_norm,
  attention_gate,  // [embedding, n_heads * value_dim], as Attention::has_gate says
  attention_output,
  attention_output_bias,
  attention_post_norm,
  mlp_norm,
  mlp_norm_bias,
  mlp_gate,
  mlp_up,
  mlp_down,
  mlp_gate_bias,
  mlp_up_bias,
  mlp_down_bias,
  mlp_post_norm,
  medusa_block,  // [embedding, embedding]: as MedusaHeads says
  medusa_block_bias,
  medusa_output,  // [embedding, vocabulary]
};
inline constexpr int kRoles = static_cast<int>(Role::medusa_output) + 1;

// Keys and values of a head have at most so many channels, so that they fit into small local
// buffers.
inline constexpr int kHeadDimMax = 4096;

enum class Activation { silu, gelu_tanh };

// Which two channels of a head turn together: (2i, 2i + 1), or (i, i + pairs).
enum class RopePairing { adjacent, halves };

// All kinds of rope and of its scaling come down to these numbers (rope_spec.h).
struct Rope {
  RopePairing pairing = RopePairing::halves;
  // Radians per position, of each pair. The first 2 * frequencies.size() channels of a query or key
  // turn, further ones pass.
  std::vector<double> frequencies;
  double magnitude = 1;  // cos and sin are multiplied by it
  // With a context that is longer than `length`, other frequencies (LongRoPE: Ding et al. 2024,
  // arXiv:2402.13753).
  struct Longer {
    int length = 0;
    std::vector<double> frequencies;
    bool operator==(const Longer&) const = default;
  };
  std::optional<Longer> longer;

  bool operator==(const Rope&) const = default;
  int dims() const { return 2 * static_cast<int>(frequencies.size()); }
};

// Which norm q and k get before rope, and how large its weights are: on each head, with weights
// that the heads share, [key_dim], or have each, [key_dim, heads]; or on all heads as one vector,
// [heads * key_dim].
enum class HeadNorm { none, shared, each, all };

// Queries grow with their position p, so that attention over long texts stays sharp: they are
// multiplied by 1 + beta * ln(1 + floor(p / length)). Of Llama 4 and Ministral 3.
struct QueryGrowth {
  double beta = 0;
  int length = 0;
  bool operator==(const QueryGrowth&) const = default;
};

// Grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245) with all that families add to it.
struct Attention {
  int n_heads = 0, n_kv_heads = 0;
  int first_key = 0;              // rows see no earlier position but their own
  int key_dim = 0;                // channels of a head's query and key
  int value_dim = 0;              // channels of a head's value and output, mostly as many
  double scale = 0;               // of the scores, normally 1 / sqrt(key_dim)
  std::optional<double> softcap;  // scores become c * tanh(s / c)
  std::optional<int> window;      // a key counts if row position - key position < window
  std::optional<Rope> rope;
  HeadNorm qk_norm = HeadNorm::none;
  std::optional<QueryGrowth> query_growth;
  bool has_bias = false;  // q, k and v
  bool has_output_bias = false;
  // What all heads attended to is multiplied by the sigmoid of attention_gate * the operation's
  // input (Qiu et al. 2025, arXiv:2505.06708).
  bool has_gate = false;
  bool sees_block = false;  // rows of a block see those after them, too (BlockInput)
  bool operator==(const Attention&) const = default;
};

// The first position that a row at this one sees.
inline int first_visible(const Attention& attention, int position) {
  const int first = std::min(attention.first_key, position);
  return attention.window ? std::max(first, position - *attention.window + 1) : first;
}

// down(activation(gate x) * (up x)), Shazeer 2020, arXiv:2002.05202; not gated: down(activation(up
// x)).
struct Mlp {
  int width = 0;
  Activation activation = Activation::silu;
  bool is_gated = true;
  bool has_bias = false;  // gate, up and down
  bool operator==(const Mlp&) const = default;
};

// x + scale * post_norm(body(pre_norm(x))); a norm without a role is left out. scale:
// ModelSpec::output_scale.
struct Operation {
  std::optional<Role> pre_norm;
  std::variant<Attention, Mlp> body;
  std::optional<Role> post_norm;
  // Reads what the operation before it read, norm included, as where attention and MLP stand side
  // by side (Wang and Komatsuzaki 2021, GPT-J). It has no norm of its own before it.
  bool shares_input = false;
  // Reads [the token's embedding, normed with Role::token_norm; the stream, normed as above]: twice
  // as wide. Of a head's first layer.
  bool reads_token = false;
  bool operator==(const Operation&) const = default;
};

struct LayerSpec {
  std::vector<Operation> operations;
  bool operator==(const LayerSpec&) const = default;
};

// A layer's attention, of which it has at most one; null without.
inline const Attention* attention_of(const LayerSpec& layer) {
  for (const Operation& operation : layer.operations) {
    if (const auto* attention = std::get_if<Attention>(&operation.body)) return attention;
  }
  return nullptr;
}

// Heads that each guess one token from the target's state after its output norm alone (Medusa, Cai
// et al. 2024, arXiv:2401.10774): head h, from 0 on, guesses the token at p + 2 + h from the state
// at position p. Each block adds SiLU(block x + bias) to x; then x is multiplied by the output
// matrix. The spec has a layer for each block, head by head, without operations; `medusa_output`
// belongs to a head's first one, and where it is missing, `output` serves.
struct MedusaHeads {
  int n_heads = 0, n_blocks = 0;
  bool has_bias = false;
  bool operator==(const MedusaHeads&) const = default;
};

enum class NormKind { rms, layer };  // numerics/norm.h

// What a head reads of its target: the output of the layer of that number, from 0 to n_layers - 1;
// kEmbeddingTap: the stream before the first layer; n_layers: the stream after the output norm.
inline constexpr int kEmbeddingTap = -1;
// Of a row that completes a block's: the head's memory after it (BlockInput); the first [rank]
// numbers count.
inline constexpr int kMemoryTap = -2;

// A head that continues a target. Its row at position p takes token p and the state before it:
// where the target has computed position p - 1, the features that it has there, otherwise the
// head's own state at p - 1. Its stream begins with that state, or with what feature_fusion makes.
struct EagleInput {
  std::vector<int> taps;  // of the target; their concatenation are the features
  int tap_width = 0;      // the target's embedding
  // What feature_fusion multiplies, [columns, embedding], and its bias is added to.
  enum class Fused {
    // EAGLE-3 (Li et al. 2025, arXiv:2503.01840): the features. The head's own state goes on as it
    // is, and the first layer reads the token (Operation::reads_token).
    features,
    // [the token's embedding; the state], where the target's state is that of the only tap: EAGLE
    // (Li et al. 2024, arXiv:2401.15077) and multi-token prediction (Gloeckle et al. 2024,
    // arXiv:2404.19737; DeepSeek-AI 2024, arXiv:2412.19437). The embedding is normed with
    // Role::token_norm if there is one, the state as feature_norm says.
    token_and_state,
    state_and_token,  // the same the other way round
  };
  Fused fused = Fused::features;
  enum class Norm { none, whole, each };
  Norm feature_norm = Norm::none;   // of the features before the fusion: all together, or each tap
  bool residual_is_normed = false;  // the first layer adds to the state after its norm
  bool state_is_normed = false;     // the head's own state is its stream after the output norm
  bool operator==(const EagleInput&) const = default;
};

// A head that guesses a block of tokens in one pass (DFlash, Chen et al. 2026, arXiv:2602.06036;
// DSpark). Of the text it has keys and values alone: in all layers those of one state for each
// position, feature_norm(feature_fusion * the features there). The rows of a block follow the text:
// the anchor, which is the text's last token, and after it as many times the mask.
struct BlockInput {
  std::vector<int> taps;  // as EagleInput's
  int tap_width = 0;
  int n_rows = 0;  // of a block, with the anchor's
  Token mask = 0;
  // What row j, from 0 on, guesses: the token j + 1 places after the anchor; or the one j places
  // after it, so that the anchor's guesses nothing.
  bool anchor_guesses = false;
  int first_guess() const { return anchor_guesses ? 0 : 1; }  // the first row that guesses
  int n_guesses() const { return n_rows - first_guess(); }
  // All rows of a block have the window (Attention::window) of the position before the anchor, and
  // see the block beside it.
  bool windows_end_at_anchor = false;
  // DSpark: what a row says is completed by the token before the one that it guesses: its logits
  // are output * state + successor_output * v, where v is successor_table's row of that token, or
  // sigmoid(successor_gate * [state; v] + bias) * v, elementwise. 0: they are what the row says.
  int successor_rank = 0;
  // The head remembers the tokens of a block's path in [rank] numbers m, at first 0. Then successor
  // gate and bias make [g; c; o] of [m; successor_table's row; state]; v is tanh(o), and m becomes
  // sigmoid(g) * m + (1 - sigmoid(g)) * tanh(c).
  bool successors_remember = false;
  // The chance that the best token of a completed row, or without a rank of any that wants logits,
  // is right, if those before it are: the sigmoid of confidence * [state; v], or confidence *
  // state, + bias.
  bool has_confidence = false;
  bool operator==(const BlockInput&) const = default;
};

struct ModelSpec {
  std::string family;  // GGUF's general.architecture
  int vocabulary = 0;  // rows of the output matrix
  int embedding = 0;   // width of the residual stream
  int context_trained = 0;
  NormKind norm = NormKind::rms;  // of all norms
  bool has_norm_bias = false;     // of those before operations and before the output
  bool has_output_norm = true;
  float norm_eps = 0;
  float embedding_scale = 1;            // Gemma: float(sqrt(embedding))
  float output_scale = 1;               // of what each operation adds to the stream
  float logit_scale = 1;                // of the logits, before the soft cap
  std::optional<double> logit_softcap;  // of the logits
  std::vector<LayerSpec> layers;
  std::optional<EagleInput> eagle;  // the model is such a head, or such heads
  std::optional<MedusaHeads> medusa;
  std::optional<BlockInput> block;

  bool operator==(const ModelSpec&) const = default;
  int n_layers() const { return static_cast<int>(layers.size()); }
};

// What a head reads of its target, as outputs of layers (kEmbeddingTap above).
inline std::vector<int> taps_of(const ModelSpec& head, const ModelSpec& target) {
  if (head.eagle) return head.eagle->taps;
  return head.block ? head.block->taps : std::vector{target.n_layers()};
}

}  // namespace outrider
