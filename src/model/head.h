// Learned heads as their producers write them: which layers they have, what these read of the
// target, and for which tokens they have logits (docs/heads.md).

#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/token.h"
#include "formats/checkpoint.h"
#include "model/made_for.h"
#include "model/model.h"

namespace outrider {

struct Head {
  // spec.eagle, spec.block or spec.medusa is set; the vocabulary is the target's, and so is the
  // checkpoint that tensors come from which the head does not have.
  Model model;
  std::string kind;      // as people call it: "EAGLE-3"
  std::string producer;  // by whose conventions the file was read: "speculators", "SpecForge"
  // The target's tokens that the rows of the output matrix stand for, each once; empty: all, in
  // order (d2t in EAGLE-3's files).
  std::vector<Token> output_tokens = {};
  // Other ways to read the file, where it leaves open which is meant; the model's is its
  // producer's.
  struct Reading {
    std::string name;  // "taps one layer later"
    EagleInput input;
  };
  std::vector<Reading> other_readings = {};
  // By its own word. Such a head's file leaves nothing open.
  std::optional<MadeFor> made_for = {};
  // The only rows of it that count, ascending; empty: all.
  std::vector<Token> output_rows = {};
};

// Whether a checkpoint in GGUF is a head, no model.
bool is_head(const Checkpoint& checkpoint);

// Whether a checkpoint, which may be a whole model's, has a layer for multi-token prediction.
bool has_prediction_layer(const Checkpoint& checkpoint);

// Which drafter takes the head of a checkpoint, by its tensors: "eagle", "mtp", "dflash",
// "dspark", "medusa".
std::string_view drafter_of_head(const Checkpoint& checkpoint);

// Reads a head for this target, which must outlive nothing: what the head needs of it stays alive
// with the result. `config` is the config.json beside safetensors, null where there is none; not
// looked at where the checkpoint is GGUF. Throws Error: one line that names the file and what is
// missing, contradictory or made for another target.
Head interpret_head(std::shared_ptr<const Checkpoint> checkpoint, const nlohmann::json& config,
                    const Model& target);

}  // namespace outrider
