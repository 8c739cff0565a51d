// The readers of each kind of head, for head.cpp.

#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "formats/checkpoint.h"
#include "model/head.h"
#include "model/head_config.h"

namespace outrider {

// EAGLE-3 (Li et al. 2025, arXiv:2503.01840), which is also asked to say what is wrong with files
// that are of no kind.
Head interpret_eagle3(std::shared_ptr<const Checkpoint> checkpoint, const nlohmann::json& config,
                      const Model& target);

// EAGLE (Li et al. 2024, arXiv:2401.15077) and EAGLE-2 (arXiv:2406.16858), whose files are alike,
// as SafeAILab writes them.
bool is_eagle1(const Checkpoint& checkpoint);
Head interpret_eagle1(std::shared_ptr<const Checkpoint> checkpoint, const nlohmann::json& config,
                      const Model& target);

// Layers for multi-token prediction (has_prediction_layer() in head.h), of MiMo, Qwen, DeepSeek, in
// speculators' files and in GGUF. Where files leave open which states are normed, other readings
// say so.
Head interpret_mtp(std::shared_ptr<const Checkpoint> checkpoint, const nlohmann::json& config,
                   const Model& target);

// DFlash (Chen et al. 2026, arXiv:2602.06036) and DSpark, of z-lab, DeepSpec, SpecForge and
// speculators.
bool is_block_head(const Checkpoint& checkpoint);
bool is_dspark(const Checkpoint& checkpoint);  // it has a Markov head
Head interpret_block_head(std::shared_ptr<const Checkpoint> checkpoint,
                          const nlohmann::json& config, const Model& target);

// Medusa's heads (Cai et al. 2024, arXiv:2401.10774). The config may be null.
bool is_medusa(const Checkpoint& checkpoint);
Head interpret_medusa(std::shared_ptr<const Checkpoint> checkpoint, const nlohmann::json& config,
                      const Model& target);

// The config.json beside these weights.
HeadConfig config_beside(const std::string& weights, const nlohmann::json& config);

}  // namespace outrider
