// The folder that a learned head is trained from: texts of the target with what it computed of them
// (docs/training.md lists its files). It grows shard by shard and goes on where it ended.

#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "formats/partial_file.h"
#include "runtime/opened_model.h"
#include "training/batch_answers.h"

namespace outrider {

inline constexpr int kFeatureFormat = 1;
inline constexpr int kShardTexts = 64;  // prompts of a shard

// Where a prompt came from.
enum class PromptSource { own, built, data };
std::string_view name(PromptSource source);  // "own", "built", "data"

struct ShardPrompt {
  int number = 0;  // in all shards; every twentieth is held out from training
  int shard = 0;
  PromptSource source = PromptSource::own;
  std::string text = {};
};

// Texts of these prompts are not trained on: what is learned is measured with them.
inline constexpr int kHeldOutFirst = 19;
inline bool is_held_out(int number) {
  return number % 20 == kHeldOutFirst;
}

// Those of a folder, in order; none if it has none yet. Throws Error for a file that is damaged.
std::vector<ShardPrompt> read_shard_prompts(const std::filesystem::path& folder);

// Which outputs of layers a head of this target reads: one near the beginning, the middle one, one
// near the end, as EAGLE-3's own heads do.
std::vector<int> feature_taps(const ModelSpec& target);

// The target as features.json has it: what tells it apart, and what a head copies. Hashes the file.
nlohmann::json describe_target(const OpenedModel& model, const Progress& progress);

// Throws Error if the folder holds features of another target, whatever its name.
void check_features_of(const nlohmann::json& target, const std::filesystem::path& folder);

// Bytes of the rows of `n_tokens` tokens, and of the target's matrices.
std::uint64_t feature_bytes(const ModelSpec& target, std::uint64_t n_tokens);
std::uint64_t target_bytes(const Model& model);

class FeatureFolder {
 public:
  // Makes the folder, or goes on with one that was begun with the same `about`: what features.json
  // holds. Writes the target's matrices, if they are missing. One process at a time has it. Throws
  // Error if the folder cannot be written, another process has it, or it holds something else.
  FeatureFolder(std::filesystem::path folder, const nlohmann::json& about, const Model& target);

  const std::filesystem::path& path() const { return folder_; }
  // That were spent on it so far, as far as note_seconds() was told.
  double seconds() const { return seconds_; }
  void note_seconds(double seconds);
  // All that were added so far, in order.
  const std::vector<ShardPrompt>& prompts() const { return prompts_; }
  int n_shards() const { return prompts_.empty() ? 0 : prompts_.back().shard + 1; }
  // Numbers and shards continue those before, which is a CHECK.
  void add_prompts(const std::vector<ShardPrompt>& prompts);

  bool has_shard(int shard) const;
  // Tokens of answers in a shard that is there.
  std::uint64_t answer_tokens(int shard) const;
  // The answers to the shard's prompts, by number; those that are too short to learn from are left
  // out. Their features end with the target's final state.
  void write_shard(int shard, std::vector<BatchAnswer> answers);

 private:
  std::filesystem::path shard_path(int shard) const;

  const std::filesystem::path folder_;
  const std::size_t embedding_;
  const std::size_t n_taps_;
  std::unique_ptr<PartialFile> lock_;
  std::vector<ShardPrompt> prompts_;
  double seconds_ = 0;
};

}  // namespace outrider
