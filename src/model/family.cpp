#include "model/family.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "cache/cache.h"
#include "model/families/families.h"
#include "model/rope_spec.h"

namespace outrider {
namespace {

std::string key(std::string_view architecture, std::string_view name) {
  return fmt::format("{}.{}", architecture, name);
}

// There must be one row per token: a row without a token could be chosen but has no text, and a
// token without a row has no embedding. If a model has more rows than tokens, converters pad the
// vocabulary.
int vocabulary_size(const Checkpoint& checkpoint) {
  constexpr std::int64_t kVocabularyMax = 1 << 24;
  const std::string& origin = checkpoint.metadata.origin();
  const TensorView* embedding = checkpoint.find("token_embd.weight");
  if (embedding == nullptr) {
    throw Error(
        "{}: tensor token_embd.weight is missing; this is no complete language model, choose "
        "another file",
        origin);
  }
  const auto* tokens = checkpoint.metadata.strings("tokenizer.ggml.tokens");
  if (tokens != nullptr && embedding->rows() != static_cast<std::int64_t>(tokens->size())) {
    throw Error(
        "{}: tensor token_embd.weight is [{}], {} rows for a vocabulary of {} tokens; convert the "
        "model again",
        origin, fmt::join(embedding->shape, ", "), embedding->rows(), tokens->size());
  }
  if (embedding->rows() > kVocabularyMax) {
    throw Error("{}: tensor token_embd.weight has {} rows, expected at most {}", origin,
                embedding->rows(), kVocabularyMax);
  }
  return static_cast<int>(embedding->rows());
}

// Few files name the activation. It is a part of the family, so another one is no variant of it.
void check_activation(const Metadata& metadata, std::string_view architecture,
                      Activation activation) {
  const std::optional<std::string> found = metadata.string(key(architecture, "hidden_activation"));
  const std::vector<std::string_view> names =
      activation == Activation::silu
          ? std::vector<std::string_view>{"silu", "swish"}
          : std::vector<std::string_view>{"gelu_pytorch_tanh", "gelu_new"};
  if (!found || std::ranges::find(names, *found) != names.end()) return;
  throw Error(
      "{}: {} is \"{}\", but \"{}\" has {}; this variant is not supported in this version, choose "
      "another model",
      metadata.origin(), key(architecture, "hidden_activation"), printable(*found), architecture,
      names.front());
}

}  // namespace

std::span<const Family> families() {
  static const Family kFamilies[] = {
      chatglm_family(),  cohere2_family(), command_r_family(),  gemma2_family(),
      gemma3_family(),   glm4_family(),    granite_family(),    llama_family(),
      mistral3_family(), olmo2_family(),   phi3_family(),       qwen2_family(),
      qwen3_family(),    smollm3_family(), starcoder2_family(),
  };
  return kFamilies;
}

int prediction_layer_count(const Metadata& metadata, std::string_view architecture) {
  const std::string name = key(architecture, "nextn_predict_layers");
  if (metadata.find(name) == nullptr) return 0;
  return static_cast<int>(metadata.require_integer(name, 0, kMaxLayers));
}

int layer_count(const Metadata& metadata, std::string_view architecture) {
  const int prediction = prediction_layer_count(metadata, architecture);
  return static_cast<int>(metadata.require_integer(key(architecture, "block_count"), 1 + prediction,
                                                   kMaxLayers)) -
         prediction;
}

ModelSpec common_spec(const Checkpoint& checkpoint, std::string_view architecture, NormKind norm) {
  const Metadata& metadata = checkpoint.metadata;
  ModelSpec spec;
  spec.family = architecture;
  spec.embedding =
      static_cast<int>(metadata.require_integer(key(architecture, "embedding_length"), 1, 1 << 20));
  spec.context_trained =
      static_cast<int>(metadata.require_integer(key(architecture, "context_length"), 1, 1 << 24));
  spec.norm = norm;
  spec.has_norm_bias = checkpoint.find("output_norm.bias") != nullptr;
  const std::string eps_key =
      key(architecture, norm == NormKind::rms ? "attention.layer_norm_rms_epsilon"
                                              : "attention.layer_norm_epsilon");
  spec.norm_eps = static_cast<float>(metadata.require_number(eps_key));
  if (!(spec.norm_eps > 0 && spec.norm_eps < 1)) {
    throw Error("{}: {} is {}, expected more than 0 and less than 1; convert the model again",
                metadata.origin(), eps_key, spec.norm_eps);
  }
  spec.vocabulary = vocabulary_size(checkpoint);
  return spec;
}

Attention common_attention(const Checkpoint& checkpoint, std::string_view architecture,
                           RopePairing pairing) {
  const Metadata& metadata = checkpoint.metadata;
  const auto embedding =
      metadata.require_integer(key(architecture, "embedding_length"), 1, 1 << 20);
  Attention attention;
  attention.n_heads = static_cast<int>(
      metadata.require_integer(key(architecture, "attention.head_count"), 1, 4096));
  attention.n_kv_heads = attention.n_heads;
  if (metadata.find(key(architecture, "attention.head_count_kv")) != nullptr) {
    attention.n_kv_heads = static_cast<int>(
        metadata.require_integer(key(architecture, "attention.head_count_kv"), 1, 4096));
  }
  if (attention.n_heads % attention.n_kv_heads != 0) {
    throw Error("{}: {} heads cannot share {} key and value heads evenly; convert the model again",
                metadata.origin(), attention.n_heads, attention.n_kv_heads);
  }
  const auto length = [&](std::string_view name) {
    if (metadata.find(key(architecture, name)) != nullptr)
      return static_cast<int>(metadata.require_integer(key(architecture, name), 1, kHeadDimMax));
    const std::int64_t share = embedding / attention.n_heads;
    if (share < 1 || share > kHeadDimMax) {
      throw Error(
          "{}: an embedding of {} gives each of {} heads {} channels, expected 1 to {}; convert "
          "the model again",
          metadata.origin(), embedding, attention.n_heads, share, kHeadDimMax);
    }
    return static_cast<int>(share);
  };
  attention.key_dim = length("attention.key_length");
  attention.value_dim = length("attention.value_length");
  attention.scale = 1 / std::sqrt(static_cast<double>(attention.key_dim));

  std::int64_t dims = attention.key_dim;
  if (metadata.find(key(architecture, "rope.dimension_count")) != nullptr)
    dims = metadata.require_integer(key(architecture, "rope.dimension_count"), 0, kHeadDimMax);
  if (dims % 2 != 0 || dims > attention.key_dim) {
    throw Error(
        "{}: rope turns {} of a key's {} channels, expected an even number of them; convert the "
        "model again",
        metadata.origin(), dims, attention.key_dim);
  }
  if (dims > 0)
    attention.rope = scaled_rope(checkpoint, architecture, pairing, static_cast<int>(dims));
  attention.window = sliding_window(metadata, architecture);
  attention.has_bias = checkpoint.find("blk.0.attn_q.bias") != nullptr ||
                       checkpoint.find("blk.0.attn_qkv.bias") != nullptr;
  attention.has_output_bias = checkpoint.find("blk.0.attn_output.bias") != nullptr;
  return attention;
}

Mlp common_mlp(const Checkpoint& checkpoint, std::string_view architecture, Activation activation) {
  check_activation(checkpoint.metadata, architecture, activation);
  return {.width = static_cast<int>(checkpoint.metadata.require_integer(
              key(architecture, "feed_forward_length"), 1, 1 << 24)),
          .activation = activation,
          .has_bias = checkpoint.find("blk.0.ffn_up.bias") != nullptr};
}

std::optional<int> sliding_window(const Metadata& metadata, std::string_view architecture) {
  const std::string name = key(architecture, "attention.sliding_window");
  if (metadata.find(name) == nullptr) return std::nullopt;
  const auto window = static_cast<int>(metadata.require_integer(name, 0, 1 << 24));
  return window > 0 ? std::optional(window) : std::nullopt;
}

bool has_window(const Metadata& metadata, std::string_view architecture, int layer, int period) {
  const std::string name = key(architecture, "attention.sliding_window_pattern");
  const MetadataValue* value = metadata.find(name);
  if (value == nullptr) return layer % period != period - 1;
  if (const auto* windows = std::get_if<std::vector<bool>>(value)) {
    const int n_layers = layer_count(metadata, architecture);
    const int n_all = n_layers + prediction_layer_count(metadata, architecture);
    const auto n_windows = static_cast<std::int64_t>(windows->size());
    if (n_windows == n_layers || n_windows == n_all)
      return (*windows)[static_cast<std::size_t>(layer)];
    throw Error("{}: {} is about {} layers, but there are {}; convert the model again",
                metadata.origin(), name, n_windows, n_all);
  }
  const auto own = static_cast<int>(metadata.require_integer(name, 1, kMaxLayers));
  return layer % own != own - 1;
}

double factor(const Metadata& metadata, std::string_view architecture, std::string_view name) {
  const double value = metadata.number(key(architecture, name)).value_or(1);
  if (!(value >= 1e-6 && value <= 1e6)) {
    throw Error("{}: {} is {}, expected a factor from 1e-6 to 1e6; convert the model again",
                metadata.origin(), key(architecture, name), value);
  }
  return value;
}

std::optional<double> softcap(const Metadata& metadata, std::string_view architecture,
                              std::string_view name) {
  const double cap = metadata.number(key(architecture, name)).value_or(0);
  if (!(cap >= 0 && cap <= 1e6)) {
    throw Error("{}: {} is {}, expected a number from 0 to 1e6; convert the model again",
                metadata.origin(), key(architecture, name), cap);
  }
  return cap > 0 ? std::optional(cap) : std::nullopt;
}

LayerSpec plain_layer(const Attention& attention, const Mlp& mlp) {
  return {{{Role::attention_norm, attention, {}}, {Role::mlp_norm, mlp, {}}}};
}

LayerSpec sandwich_layer(const Attention& attention, const Mlp& mlp) {
  return {{{Role::attention_norm, attention, Role::attention_post_norm},
           {Role::mlp_norm, mlp, Role::mlp_post_norm}}};
}

LayerSpec parallel_layer(const Attention& attention, const Mlp& mlp) {
  return {{{Role::attention_norm, attention, {}}, {{}, mlp, {}, true}}};
}

}  // namespace outrider
