#include "model/head.h"

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "model/gguf_head.h"
#include "model/head_readers.h"

namespace outrider {

HeadConfig config_beside(const std::string& weights, const nlohmann::json& config) {
  return {config, (std::filesystem::path(weights).parent_path() / "config.json").string()};
}

bool is_head(const Checkpoint& checkpoint) {
  // llama.cpp also writes a model's layers for prediction without its others.
  return is_gguf_head(checkpoint.metadata) ||
         (has_prediction_layer(checkpoint) &&
          !checkpoint.find(gguf_tensor_name(Role::attention_norm, 0)));
}

std::string_view drafter_of_head(const Checkpoint& checkpoint) {
  if (is_medusa(checkpoint)) return "medusa";
  if (is_block_head(checkpoint)) return is_dspark(checkpoint) ? "dspark" : "dflash";
  return has_prediction_layer(checkpoint) ? "mtp" : "eagle";
}

Head interpret_head(std::shared_ptr<const Checkpoint> checkpoint, const nlohmann::json& config,
                    const Model& target) {
  if (is_medusa(*checkpoint)) return interpret_medusa(std::move(checkpoint), config, target);
  const Metadata& metadata = checkpoint->metadata;
  const bool is_gguf = metadata.find("general.architecture") != nullptr;
  if (config.is_null() && !is_gguf)
    throw Error("{}: there is no config.json beside the head, which says how it is built",
                metadata.origin());
  if (is_block_head(*checkpoint))
    return interpret_block_head(std::move(checkpoint), config, target);
  if (has_prediction_layer(*checkpoint))
    return interpret_mtp(std::move(checkpoint), config, target);
  if (is_eagle1(*checkpoint)) return interpret_eagle1(std::move(checkpoint), config, target);
  return interpret_eagle3(std::move(checkpoint), config, target);
}

}  // namespace outrider
