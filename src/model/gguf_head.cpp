#include "model/gguf_head.h"

#include <utility>
#include <variant>

#include "base/error.h"
#include "model/tensor_names.h"

namespace outrider {
namespace {

constexpr GgufKey kKeys[] = {
    {"block_count", "num_hidden_layers"},
    {"embedding_length", "hidden_size"},
    {"feed_forward_length", "intermediate_size"},
    {"attention.head_count", "num_attention_heads"},
    {"attention.head_count_kv", "num_key_value_heads"},
    {"attention.key_length", "head_dim"},
    {"attention.layer_norm_rms_epsilon", "rms_norm_eps"},
    {"rope.freq_base", "rope_theta"},
};
constexpr GgufKey kScalingKeys[] = {
    {"rope.scaling.type", "rope_type"},
    {"rope.scaling.factor", "factor"},
    {"rope.scaling.original_context_length", "original_max_position_embeddings"},
};
constexpr const char* kScaling = "rope_scaling";

// Adds the keys of this list that the file has to a config.json, and how messages call all of them.
void add_keys(const Metadata& metadata, std::string_view architecture,
              std::span<const GgufKey> keys, const std::string& path, nlohmann::json& config,
              HeadConfig::Names& names) {
  for (const GgufKey& key : keys) {
    const std::string full_name = key.name.starts_with("tokenizer.")
                                      ? std::string(key.name)
                                      : fmt::format("{}.{}", architecture, key.name);
    const MetadataValue* value = metadata.find(full_name);
    if (value || !config.contains(key.config_name)) names[path + key.config_name] = full_name;
    if (value)
      config[key.config_name] =
          std::visit([](const auto& x) -> nlohmann::json { return x; }, *value);
  }
}

}  // namespace

bool is_gguf_head(const Metadata& metadata) {
  const MetadataValue* architecture = metadata.find("general.architecture");
  const auto* name = architecture ? std::get_if<std::string>(architecture) : nullptr;
  return name && (*name == kEagle3Architecture || *name == kBlockArchitecture);
}

HeadConfig config_of_gguf(const Metadata& metadata, std::string_view architecture,
                          std::span<const GgufKey> own) {
  nlohmann::json config = nlohmann::json::object(), scaling = nlohmann::json::object();
  HeadConfig::Names names;
  add_keys(metadata, architecture, kKeys, "", config, names);
  add_keys(metadata, architecture, own, "", config, names);
  add_keys(metadata, architecture, kScalingKeys, fmt::format("{}.", kScaling), scaling, names);
  if (!scaling.empty()) config[kScaling] = std::move(scaling);
  return {config, metadata.origin(), std::move(names)};
}

std::string gguf_tensor_name(Role role, int layer) {
  for (const auto& [known, pattern] : kTensorNames)
    if (known == role) return fmt::format(fmt::runtime(pattern), layer);
  return {};
}

}  // namespace outrider
