#include "model/family.h"

#include <cmath>

#include "base/bytes.h"
#include "base/error.h"
#include "cache/cache.h"
#include "model/families/families.h"

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

}  // namespace

std::span<const Family> families() {
  static const Family kFamilies[] = {llama_family(), qwen2_family(), gemma3_family()};
  return kFamilies;
}

std::vector<TensorName> decoder_names(std::initializer_list<TensorName> more) {
  std::vector<TensorName> names = {
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
  names.insert(names.end(), more);
  return names;
}

int layer_count(const Metadata& metadata, std::string_view architecture) {
  return static_cast<int>(
      metadata.require_integer(key(architecture, "block_count"), 1, kMaxLayers));
}

ModelSpec common_spec(const Checkpoint& checkpoint, std::string_view architecture) {
  const Metadata& metadata = checkpoint.metadata;
  ModelSpec spec;
  spec.family = architecture;
  spec.embedding =
      static_cast<int>(metadata.require_integer(key(architecture, "embedding_length"), 1, 1 << 20));
  spec.context_trained =
      static_cast<int>(metadata.require_integer(key(architecture, "context_length"), 1, 1 << 24));
  spec.norm_eps = static_cast<float>(
      metadata.require_number(key(architecture, "attention.layer_norm_rms_epsilon")));
  if (!(spec.norm_eps >= 0 && spec.norm_eps < 1)) {
    throw Error("{}: {} is {}, expected at least 0 and below 1; convert the model again",
                metadata.origin(), key(architecture, "attention.layer_norm_rms_epsilon"),
                spec.norm_eps);
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
    return metadata.find(key(architecture, name)) != nullptr
               ? metadata.require_integer(key(architecture, name), 1, kHeadDimMax)
               : embedding / attention.n_heads;
  };
  const std::int64_t head_dim = length("attention.key_length");
  if (head_dim != length("attention.value_length")) {
    throw Error(
        "{}: keys of {} and values of {} channels; this version supports equal lengths only, "
        "choose another model",
        metadata.origin(), head_dim, length("attention.value_length"));
  }
  if (head_dim < 1 || head_dim > kHeadDimMax) {
    throw Error(
        "{}: an embedding of {} gives each of {} heads {} channels, expected 1 to {}; convert the "
        "model again",
        metadata.origin(), embedding, attention.n_heads, head_dim, kHeadDimMax);
  }
  attention.head_dim = static_cast<int>(head_dim);
  attention.scale = 1 / std::sqrt(static_cast<double>(attention.head_dim));

  Rope& rope = attention.rope;
  rope.pairing = pairing;
  rope.dims = attention.head_dim;
  if (metadata.find(key(architecture, "rope.dimension_count")) != nullptr) {
    rope.dims = static_cast<int>(
        metadata.require_integer(key(architecture, "rope.dimension_count"), 0, kHeadDimMax));
  }
  if (rope.dims % 2 != 0 || rope.dims > attention.head_dim) {
    throw Error(
        "{}: rope turns {} of a head's {} channels, expected an even number of them; convert the "
        "model again",
        metadata.origin(), rope.dims, attention.head_dim);
  }
  rope.base = metadata.number(key(architecture, "rope.freq_base")).value_or(10000);
  if (!(rope.base >= 1 && rope.base <= 1e12)) {
    throw Error("{}: {} is {}, expected a number from 1 to 1e12; convert the model again",
                metadata.origin(), key(architecture, "rope.freq_base"), rope.base);
  }
  const std::string scaling =
      metadata.string(key(architecture, "rope.scaling.type")).value_or("none");
  if (scaling == "linear") {
    const double factor = metadata.require_number(key(architecture, "rope.scaling.factor"));
    if (!(factor >= 1 && factor <= 1e6)) {
      throw Error("{}: {} is {}, expected a number from 1 to 1e6; convert the model again",
                  metadata.origin(), key(architecture, "rope.scaling.factor"), factor);
    }
    rope.position_scale = 1 / factor;
  } else if (scaling != "none") {
    throw Error(
        "{}: rope scaling \"{}\" is not supported in this version; choose a model with none or "
        "linear",
        metadata.origin(), printable(scaling));
  }
  return attention;
}

Mlp common_mlp(const Metadata& metadata, std::string_view architecture, Activation activation) {
  return {.width = static_cast<int>(
              metadata.require_integer(key(architecture, "feed_forward_length"), 1, 1 << 24)),
          .activation = activation};
}

}  // namespace outrider
