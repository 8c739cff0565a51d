// A model family as data: what each layer computes, with the numbers from the file. Families differ
// in what they put here and in how they name tensors (family.h), never in code that runs per token.

#pragma once

#include <optional>
#include <string>
#include <variant>
#include <vector>

namespace outrider {

// What a tensor is for. One of each per layer, but for the first three, which a model has once.
enum class Role {
  token_embedding,  // [embedding, vocabulary]
  output_norm,      // [embedding]
  output,           // [embedding, vocabulary]; absent: the token embedding serves
  attention_norm,
  attention_q,
  attention_k,
  attention_v,
  attention_q_bias,
  attention_k_bias,
  attention_v_bias,
  attention_q_norm,  // [head_dim]
  attention_k_norm,  // [head_dim]
  attention_output,
  attention_post_norm,
  mlp_norm,
  mlp_gate,
  mlp_up,
  mlp_down,
  mlp_post_norm,
};
inline constexpr int kRoles = static_cast<int>(Role::mlp_post_norm) + 1;

// A head has at most so many channels, so that it fits into a small local buffer.
inline constexpr int kHeadDimMax = 4096;

enum class Activation { silu, gelu_tanh };

// Which two channels of a head turn together: (2i, 2i + 1), or (i, i + dims / 2).
enum class RopePairing { adjacent, halves };

struct Rope {
  RopePairing pairing = RopePairing::halves;
  int dims = 0;               // the first dims channels turn, further ones pass
  double base = 10000;        // theta
  double position_scale = 1;  // positions are multiplied by it (linear scaling)
};

// Grouped-query attention (Ainslie et al. 2023, arXiv:2305.13245) with all that families add to it.
struct Attention {
  int n_heads = 0, n_kv_heads = 0, head_dim = 0;
  double scale = 0;               // of the scores, normally 1 / sqrt(head_dim)
  std::optional<double> softcap;  // scores become c * tanh(s / c)
  std::optional<int> window;      // a key counts if row position - key position < window
  Rope rope;
  bool has_bias = false;     // q, k and v
  bool has_qk_norm = false;  // RMS norm of each head of q and k, before rope
};

// down(activation(gate x) * (up x)): Shazeer 2020, arXiv:2002.05202.
struct Mlp {
  int width = 0;
  Activation activation = Activation::silu;
};

// x + post_norm(body(pre_norm(x))); a norm without a role is left out.
struct Operation {
  std::optional<Role> pre_norm;
  std::variant<Attention, Mlp> body;
  std::optional<Role> post_norm;
};

struct LayerSpec {
  std::vector<Operation> operations;
};

// A layer's attention, of which it has at most one; null without.
inline const Attention* attention_of(const LayerSpec& layer) {
  for (const Operation& operation : layer.operations) {
    if (const auto* attention = std::get_if<Attention>(&operation.body)) return attention;
  }
  return nullptr;
}

struct ModelSpec {
  std::string family;  // GGUF's general.architecture
  int vocabulary = 0;  // rows of the output matrix
  int embedding = 0;   // width of the residual stream
  int context_trained = 0;
  float norm_eps = 0;
  float embedding_scale = 1;            // Gemma: float(sqrt(embedding))
  std::optional<double> logit_softcap;  // of the logits
  std::vector<LayerSpec> layers;

  int n_layers() const { return static_cast<int>(layers.size()); }
};

}  // namespace outrider
