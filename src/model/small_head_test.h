// A small target and heads for it, in memory, which tests and fuzzing change before they are read.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "model/head.h"

namespace outrider {

inline constexpr std::int64_t kSmallWidth = 8, kSmallVocabulary = 16, kSmallHeads = 2,
                              kSmallKvHeads = 1, kSmallHeadDim = 4, kSmallFfn = 12, kSmallRows = 5;

// A checkpoint and the bytes that its tensors are views of.
struct OwnedCheckpoint {
  std::vector<std::vector<std::byte>> bytes;
  Checkpoint checkpoint;

  static std::shared_ptr<const Checkpoint> shared(std::shared_ptr<OwnedCheckpoint> owner) {
    const Checkpoint* const checkpoint = &owner->checkpoint;
    return {std::move(owner), checkpoint};
  }
};

// A llama of zeros, "target.gguf".
inline Model small_target(int n_layers = 6, bool is_tied = false) {
  GgufWriter writer;
  const auto key = [](const char* name) { return std::string("llama.") + name; };
  writer.add("general.architecture", std::string("llama"));
  writer.add(key("block_count"), n_layers);
  writer.add(key("context_length"), 128);
  writer.add(key("embedding_length"), static_cast<int>(kSmallWidth));
  writer.add(key("feed_forward_length"), static_cast<int>(kSmallFfn));
  writer.add(key("attention.head_count"), static_cast<int>(kSmallHeads));
  writer.add(key("attention.layer_norm_rms_epsilon"), 1e-5f);
  const auto tensor = [&](const std::string& name, std::vector<std::int64_t> shape) {
    std::int64_t n = sizeof(float);
    for (const std::int64_t extent : shape) n *= extent;
    writer.add_tensor(name, TensorType::f32, shape,
                      std::vector<std::byte>(static_cast<std::size_t>(n)));
  };
  tensor("token_embd.weight", {kSmallWidth, kSmallVocabulary});
  tensor("output_norm.weight", {kSmallWidth});
  if (!is_tied) tensor("output.weight", {kSmallWidth, kSmallVocabulary});
  for (int layer = 0; layer < n_layers; ++layer) {
    const std::string block = "blk." + std::to_string(layer) + ".";
    for (const char* norm : {"attn_norm", "ffn_norm"})
      tensor(block + norm + ".weight", {kSmallWidth});
    for (const char* matrix : {"attn_q", "attn_k", "attn_v", "attn_output"})
      tensor(block + matrix + ".weight", {kSmallWidth, kSmallWidth});
    for (const char* matrix : {"ffn_gate", "ffn_up"})
      tensor(block + matrix + ".weight", {kSmallWidth, kSmallFfn});
    tensor(block + "ffn_down.weight", {kSmallFfn, kSmallWidth});
  }
  const auto owner = std::make_shared<OwnedCheckpoint>();
  owner->bytes.push_back(writer.bytes());
  owner->checkpoint = read_gguf(owner->bytes[0], "target.gguf");
  return interpret_checkpoint(OwnedCheckpoint::shared(owner));
}

struct SmallHead {
  struct Tensor {
    TensorType type = TensorType::f32;
    std::vector<std::int64_t> shape = {};  // columns first
    std::vector<std::byte> bytes = {};
    std::size_t shift = 0;  // of the first byte from an aligned place
  };

  std::string origin = "dir/head.safetensors";
  nlohmann::json config = nlohmann::json::object();  // config.json
  std::map<std::string, MetadataValue> metadata = {};
  std::map<std::string, Tensor> tensors = {};

  // Elements are 0.5, 0.625 and so on up to 1.25, again and again.
  void add(const std::string& name, std::vector<std::int64_t> shape) {
    std::int64_t n = 1;
    for (const std::int64_t extent : shape) n *= extent;
    std::vector<float> values;
    for (std::int64_t i = 0; i < n; ++i)
      values.push_back(0.5f + 0.125f * static_cast<float>(i % 7));
    set(name, TensorType::f32, std::move(shape), values);
  }
  template <typename T>
  void set(const std::string& name, TensorType type, std::vector<std::int64_t> shape,
           const std::vector<T>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    tensors[name] = {type, std::move(shape), {bytes.begin(), bytes.end()}};
  }
  void set_d2t(const std::vector<std::int64_t>& values) {
    set("d2t", TensorType::i64, {std::ssize(values)}, values);
  }

  std::shared_ptr<const Checkpoint> checkpoint() const {
    const auto owner = std::make_shared<OwnedCheckpoint>();
    owner->checkpoint.path = origin;
    owner->checkpoint.metadata = Metadata(origin);
    for (const auto& [key, value] : metadata) owner->checkpoint.metadata.insert(key, value);
    for (const auto& [name, tensor] : tensors) {
      std::vector<std::byte>& bytes = owner->bytes.emplace_back(tensor.shift);
      bytes.insert(bytes.end(), tensor.bytes.begin(), tensor.bytes.end());
      owner->checkpoint.tensor_index[name] = owner->checkpoint.tensors.size();
      owner->checkpoint.tensors.push_back(
          {name, tensor.type, tensor.shape, std::span(bytes).subspan(tensor.shift)});
    }
    return OwnedCheckpoint::shared(owner);
  }
  Head read(const Model& target) const { return interpret_head(checkpoint(), config, target); }
};

// A head of one layer with three taps and its own five outputs. `layer` is what its producer calls
// the layer: "midlayer", "layers.0", or "blk.0" for GGUF.
inline SmallHead small_head(const std::string& layer = "midlayer") {
  SmallHead head;
  const bool is_gguf = layer == "blk.0";
  const auto add = [&](const char* name, const char* gguf_name, std::vector<std::int64_t> shape) {
    head.add(std::string(is_gguf ? gguf_name : name) + ".weight", std::move(shape));
  };
  const auto add_of_layer = [&](const char* name, const char* gguf_name,
                                std::vector<std::int64_t> shape) {
    head.add(layer + "." + (is_gguf ? gguf_name : name) + ".weight", std::move(shape));
  };
  constexpr std::int64_t kQ = kSmallHeads * kSmallHeadDim, kKv = kSmallKvHeads * kSmallHeadDim;
  add("fc", "fc", {3 * kSmallWidth, kSmallWidth});
  add("norm", "output_norm", {kSmallWidth});
  add("lm_head", "output", {kSmallWidth, kSmallRows});
  add_of_layer("input_layernorm", "attn_norm", {kSmallWidth});
  add_of_layer("hidden_norm", "attn_norm_2", {kSmallWidth});
  add_of_layer("post_attention_layernorm", "ffn_norm", {kSmallWidth});
  add_of_layer("self_attn.q_proj", "attn_q", {2 * kSmallWidth, kQ});
  add_of_layer("self_attn.k_proj", "attn_k", {2 * kSmallWidth, kKv});
  add_of_layer("self_attn.v_proj", "attn_v", {2 * kSmallWidth, kKv});
  add_of_layer("self_attn.o_proj", "attn_output", {kQ, kSmallWidth});
  add_of_layer("mlp.gate_proj", "ffn_gate", {kSmallWidth, kSmallFfn});
  add_of_layer("mlp.up_proj", "ffn_up", {kSmallWidth, kSmallFfn});
  add_of_layer("mlp.down_proj", "ffn_down", {kSmallFfn, kSmallWidth});
  if (is_gguf) {
    head.origin = "dir/head.gguf";
    head.set_d2t({0, 2, 4, 7, 15});
    head.metadata = {{"general.architecture", "eagle3"},
                     {"eagle3.block_count", std::int64_t{1}},
                     {"eagle3.embedding_length", kSmallWidth},
                     {"eagle3.feed_forward_length", kSmallFfn},
                     {"eagle3.attention.head_count", kSmallHeads},
                     {"eagle3.attention.head_count_kv", kSmallKvHeads},
                     {"eagle3.target_layers", std::vector<std::int64_t>{2, 3, 6}}};
    return head;
  }
  head.set_d2t({0, 1, 2, 4, 11});
  head.config = {{"hidden_size", kSmallWidth},
                 {"intermediate_size", kSmallFfn},
                 {"num_attention_heads", kSmallHeads},
                 {"num_key_value_heads", kSmallKvHeads},
                 {"draft_vocab_size", kSmallRows}};
  return head;
}

// Tensors of a decoder layer in Hugging Face's naming, and the keys that say how large it is.
inline void add_decoder_layer(SmallHead& head, const std::string& prefix) {
  constexpr std::int64_t kQ = kSmallHeads * kSmallHeadDim, kKv = kSmallKvHeads * kSmallHeadDim;
  head.add(prefix + "input_layernorm.weight", {kSmallWidth});
  head.add(prefix + "post_attention_layernorm.weight", {kSmallWidth});
  head.add(prefix + "self_attn.q_proj.weight", {kSmallWidth, kQ});
  head.add(prefix + "self_attn.k_proj.weight", {kSmallWidth, kKv});
  head.add(prefix + "self_attn.v_proj.weight", {kSmallWidth, kKv});
  head.add(prefix + "self_attn.o_proj.weight", {kQ, kSmallWidth});
  head.add(prefix + "mlp.gate_proj.weight", {kSmallWidth, kSmallFfn});
  head.add(prefix + "mlp.up_proj.weight", {kSmallWidth, kSmallFfn});
  head.add(prefix + "mlp.down_proj.weight", {kSmallFfn, kSmallWidth});
  head.config.update({{"hidden_size", kSmallWidth},
                      {"intermediate_size", kSmallFfn},
                      {"num_attention_heads", kSmallHeads},
                      {"num_key_value_heads", kSmallKvHeads}});
}

// A head of EAGLE as SafeAILab writes it, without what the target has.
inline SmallHead small_eagle1() {
  SmallHead head;
  add_decoder_layer(head, "layers.0.");
  head.tensors.erase("layers.0.input_layernorm.weight");
  head.add("fc.weight", {2 * kSmallWidth, kSmallWidth});
  head.add("fc.bias", {kSmallWidth});
  head.config.update({{"num_hidden_layers", 1}, {"rms_norm_eps", 1e-5}});
  return head;
}

// A further layer of a head that calls its first one "layers.0".
inline void add_layer(SmallHead& head, int layer) {
  const std::string prefix = "layers." + std::to_string(layer) + ".";
  std::vector<std::pair<std::string, SmallHead::Tensor>> added;
  for (auto [name, tensor] : head.tensors) {
    if (!name.starts_with("layers.0.") || name == "layers.0.hidden_norm.weight") continue;
    for (const char* matrix : {"q_proj", "k_proj", "v_proj"}) {
      if (name != std::string("layers.0.self_attn.") + matrix + ".weight") continue;
      tensor.shape[0] /= 2;
      tensor.bytes.resize(tensor.bytes.size() / 2);
    }
    added.emplace_back(prefix + name.substr(std::strlen("layers.0.")), std::move(tensor));
  }
  for (auto& [name, tensor] : added) head.tensors[name] = std::move(tensor);
}

}  // namespace outrider
