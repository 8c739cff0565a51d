// A folder of features as features and train make it.

#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/console.h"
#include "training/features.h"

namespace outrider {

struct FeatureRun {
  FeatureCounts counts;
  double seconds = 0;          // of this run; where time is the goal, of all its parts
  std::uint64_t computed = 0;  // tokens, of prompts too, in this run
  std::uint64_t bytes = 0;     // of the folder
};

// When a folder is full enough.
struct FeatureGoal {
  std::uint64_t tokens = 0;  // of answers
  // After so many in all parts of the work, if a shard is there by then.
  std::optional<double> seconds = {};
};

// Fills the folder with features of settings.model; the rest is as the flags say. Says on the
// console, before it begins, what it will take, and shows progress. Throws Error, also if the disk
// has no room, and Interrupted.
FeatureRun fill_feature_folder(const Machine& machine, const Settings& settings, Console& console,
                               const std::filesystem::path& folder, const FeatureGoal& goal);

// "3 min", "2 h 5 min".
std::string duration_text(double seconds);

}  // namespace outrider
