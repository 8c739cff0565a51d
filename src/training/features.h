// Fills a folder of features: prompts, the target's own answers to them, and what it computed of
// both.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "runtime/opened_model.h"
#include "training/built_prompts.h"
#include "training/feature_folder.h"
#include "training/shared_passages.h"

namespace outrider {

struct FeatureWork {
  // Prompts to answer, once each. Nothing: half the model's own (own_prompts.h), half built from
  // texts on this machine (built_prompts.h).
  std::optional<std::vector<std::string>> data = {};
  SharedPassages without = {};  // no text that shares a passage with these
  std::uint64_t n_tokens = 0;   // of answers, at least; fewer if prompts run out
  int n_predict = 0;            // tokens of an answer at most
  int n_parallel = 1;           // answers at a time
  std::uint64_t seed = 0;
  std::optional<float> temperature = {};  // nothing: 0 and 0.8 in turn
};

// What decides which texts are made, for features.json: the same again gives the same shards.
nlohmann::json json_of(const FeatureWork& work);

struct FeatureCounts {
  std::uint64_t answer_tokens = 0;            // in all shards
  int n_shards = 0;                           // that are complete
  int n_prompts = 0, n_own = 0, n_built = 0;  // of complete shards
  int n_left_out = 0;  // prompts too long, and texts that share a passage, this time
};

struct FeatureWatcher {
  // Before anything else, unless prompts are given: what there is to build some from.
  std::function<void(const PromptMaterial& material)> found = {};
  // After each step, and for each prompt that is built: tokens of answers in shards and in
  // progress, tokens computed so far this time. What it throws ends the work; complete shards stay.
  std::function<void(std::uint64_t answer_tokens, std::uint64_t computed)> stepped = {};
  std::function<void(std::string_view activity)> began = {};  // "prompts", "answers"
};

// Adds shards until there are as many tokens as asked for. The engine has no drafters, its
// sequences share no pages, and n_parallel of them are free. Throws Error where a file cannot be
// written, if there is no prompt to answer, and if the context has no room for one.
FeatureCounts make_features(Engine& engine, const OpenedModel& model, FeatureFolder& folder,
                            const FeatureWork& work, const FeatureWatcher& watcher);

// Of what lies in the folder.
FeatureCounts count_features(const FeatureFolder& folder);

}  // namespace outrider
