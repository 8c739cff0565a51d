#include "model/family.h"

#include <cmath>

#include "base/error.h"
#include "cache/cache.h"
#include "model/families/families.h"

namespace outrider {
namespace {

std::string key(std::string_view architecture, std::string_view name) {
  return fmt::format("{}.{}", architecture, name);
}

}  // namespace

std::span<const Family> families() {
  static const Family kFamilies[] = {llama_family(), qwen2_family(), gemma3_family()};
  return kFamilies;
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
    throw Error("{}: {} is {}, expected a number from 0 to 1", metadata.origin(),
                key(architecture, "attention.layer_norm_rms_epsilon"), spec.norm_eps);
  }
  const TensorView* embedding = checkpoint.find("token_embd.weight");
  if (embedding == nullptr) {
    throw Error("{}: tensor token_embd.weight is missing; this is no complete language model",
                metadata.origin());
  }
  if (embedding->rows() < 1 || embedding->rows() > (1 << 24)) {
    throw Error(
        "{}: tensor token_embd.weight has {} rows, expected one for each token of the vocabulary",
        metadata.origin(), embedding->rows());
  }
  spec.vocabulary = static_cast<int>(embedding->rows());
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
    throw Error("{}: {} heads cannot share {} key and value heads evenly", metadata.origin(),
                attention.n_heads, attention.n_kv_heads);
  }
  const auto length = [&](std::string_view name) {
    return metadata.find(key(architecture, name)) != nullptr
               ? metadata.require_integer(key(architecture, name), 1, 4096)
               : embedding / attention.n_heads;
  };
  if (length("attention.key_length") != length("attention.value_length")) {
    throw Error("{}: keys of {} and values of {} channels; only equal lengths are supported",
                metadata.origin(), length("attention.key_length"),
                length("attention.value_length"));
  }
  attention.head_dim = static_cast<int>(length("attention.key_length"));
  attention.scale = 1 / std::sqrt(static_cast<double>(attention.head_dim));

  Rope& rope = attention.rope;
  rope.pairing = pairing;
  rope.dims = attention.head_dim;
  if (metadata.find(key(architecture, "rope.dimension_count")) != nullptr) {
    rope.dims = static_cast<int>(
        metadata.require_integer(key(architecture, "rope.dimension_count"), 0, 4096));
  }
  if (rope.dims % 2 != 0 || rope.dims > attention.head_dim) {
    throw Error("{}: {} is {}, expected an even number up to the head's {} channels",
                metadata.origin(), key(architecture, "rope.dimension_count"), rope.dims,
                attention.head_dim);
  }
  rope.base = metadata.number(key(architecture, "rope.freq_base")).value_or(10000);
  if (!(rope.base >= 1 && rope.base <= 1e12)) {
    throw Error("{}: {} is {}, expected a number from 1 to 1e12", metadata.origin(),
                key(architecture, "rope.freq_base"), rope.base);
  }
  const std::string scaling =
      metadata.string(key(architecture, "rope.scaling.type")).value_or("none");
  if (scaling == "linear") {
    const double factor = metadata.require_number(key(architecture, "rope.scaling.factor"));
    if (!(factor >= 1 && factor <= 1e6)) {
      throw Error("{}: {} is {}, expected a number from 1 to 1e6", metadata.origin(),
                  key(architecture, "rope.scaling.factor"), factor);
    }
    rope.position_scale = 1 / factor;
  } else if (scaling != "none") {
    throw Error("{}: rope scaling '{}' is not supported in this version (none and linear are)",
                metadata.origin(), scaling);
  }
  return attention;
}

Mlp common_mlp(const Metadata& metadata, std::string_view architecture, Activation activation) {
  return {.width = static_cast<int>(
              metadata.require_integer(key(architecture, "feed_forward_length"), 1, 1 << 24)),
          .activation = activation};
}

}  // namespace outrider
