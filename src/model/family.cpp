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
void check_activation(const FamilyFile& file, Activation activation) {
  const std::string key = file.key("hidden_activation");
  const std::optional<std::string> found = file.metadata().string(key);
  const std::vector<std::string_view> names =
      activation == Activation::silu
          ? std::vector<std::string_view>{"silu", "swish"}
          : std::vector<std::string_view>{"gelu_pytorch_tanh", "gelu_new"};
  if (!found || std::ranges::find(names, *found) != names.end()) return;
  throw Error(
      "{}: {} is \"{}\", but \"{}\" has {}; this variant is not supported in this version, choose "
      "another model",
      file.origin(), key, printable(*found), file.architecture(), names.front());
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

int prediction_layer_count(const FamilyFile& file) {
  return file.integer("nextn_predict_layers", 0, kMaxLayers);
}

int layer_count(const FamilyFile& file) {
  const int prediction = prediction_layer_count(file);
  return file.integer("block_count", 1 + prediction, kMaxLayers) - prediction;
}

ModelSpec common_spec(const FamilyFile& file, NormKind norm) {
  ModelSpec spec;
  spec.family = file.architecture();
  spec.embedding = file.integer("embedding_length", 1, 1 << 20);
  spec.context_trained = file.integer("context_length", 1, 1 << 24);
  spec.norm = norm;
  spec.has_norm_bias = file.checkpoint().find("output_norm.bias") != nullptr;
  const std::string_view eps =
      norm == NormKind::rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon";
  spec.norm_eps = static_cast<float>(file.number(eps, 1e-30, 1));
  spec.vocabulary = vocabulary_size(file.checkpoint());
  return spec;
}

Attention common_attention(const FamilyFile& file, RopePairing pairing) {
  const int embedding = file.integer("embedding_length", 1, 1 << 20);
  Attention attention;
  attention.n_heads = file.integer("attention.head_count", 1, 4096);
  attention.n_kv_heads = file.integer("attention.head_count_kv", 1, 4096);
  if (attention.n_heads % attention.n_kv_heads != 0) {
    throw Error("{}: {} heads cannot share {} key and value heads evenly; convert the model again",
                file.origin(), attention.n_heads, attention.n_kv_heads);
  }
  const auto length = [&](std::string_view name) {
    if (const std::optional<int> given = file.given_integer(name, 1, kHeadDimMax)) return *given;
    const int share = embedding / attention.n_heads;
    if (share < 1 || share > kHeadDimMax) {
      throw Error(
          "{}: an embedding of {} gives each of {} heads {} channels, expected 1 to {}; convert "
          "the model again",
          file.origin(), embedding, attention.n_heads, share, kHeadDimMax);
    }
    return share;
  };
  attention.key_dim = length("attention.key_length");
  attention.value_dim = length("attention.value_length");
  attention.scale = 1 / std::sqrt(static_cast<double>(attention.key_dim));

  const int dims =
      file.given_integer("rope.dimension_count", 0, kHeadDimMax).value_or(attention.key_dim);
  if (dims % 2 != 0 || dims > attention.key_dim) {
    throw Error(
        "{}: rope turns {} of a key's {} channels, expected an even number of them; convert the "
        "model again",
        file.origin(), dims, attention.key_dim);
  }
  file.must_be("attention.key_length_swa", attention.key_dim);
  file.must_be("attention.value_length_swa", attention.value_dim);
  file.must_be("rope.dimension_count_swa", dims);
  if (dims > 0) attention.rope = scaled_rope(file, pairing, dims);
  attention.window = sliding_window(file);
  attention.has_bias = file.checkpoint().find("blk.0.attn_q.bias") != nullptr ||
                       file.checkpoint().find("blk.0.attn_qkv.bias") != nullptr;
  attention.has_output_bias = file.checkpoint().find("blk.0.attn_output.bias") != nullptr;
  return attention;
}

Mlp common_mlp(const FamilyFile& file, Activation activation) {
  check_activation(file, activation);
  return {.width = file.integer("feed_forward_length", 1, 1 << 24),
          .activation = activation,
          .has_bias = file.checkpoint().find("blk.0.ffn_up.bias") != nullptr};
}

std::optional<int> sliding_window(const FamilyFile& file) {
  const int window = file.integer("attention.sliding_window", 0, 1 << 24);
  return window > 0 ? std::optional(window) : std::nullopt;
}

bool has_window(const FamilyFile& file, int layer, int period) {
  const std::string name = file.key("attention.sliding_window_pattern");
  const MetadataValue* value = file.metadata().find(name);
  const auto* windows = value ? std::get_if<std::vector<bool>>(value) : nullptr;
  if (windows == nullptr) {
    const int own =
        file.given_integer("attention.sliding_window_pattern", 1, kMaxLayers).value_or(period);
    return layer % own != own - 1;
  }
  const int n_layers = layer_count(file);
  const int n_all = n_layers + prediction_layer_count(file);
  const auto n_windows = static_cast<std::int64_t>(windows->size());
  if (n_windows == n_layers || n_windows == n_all)
    return (*windows)[static_cast<std::size_t>(layer)];
  throw Error("{}: {} is about {} layers, but there are {}; convert the model again", file.origin(),
              name, n_windows, n_all);
}

double required_factor(const FamilyFile& file, std::string_view name) {
  return file.number(name, 1e-6, 1e6);
}

double factor(const FamilyFile& file, std::string_view name) {
  return file.number(name, 0, 1e6) == 0 ? 1 : required_factor(file, name);
}

std::optional<double> softcap(const FamilyFile& file, std::string_view name) {
  const double cap = file.number(name, 0, 1e6);
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
