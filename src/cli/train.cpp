// Makes a draft head for a model: answers, training, and what the head brings.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>

#include "base/stopwatch.h"
#include "cli/json.h"
#include "cli/make_features.h"
#include "cli/measure_answers.h"
#include "cli/signals.h"
#include "formats/parse_json.h"
#include "runtime/head_choice.h"
#include "training/trainer.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

// Of the hours: answers, training; the rest is for loading and measuring.
constexpr double kFeatureShare = 0.2, kTrainingShare = 0.75;
constexpr std::size_t kMeasuredPrompts = 24;
constexpr int kMeasuredPredict = 128;
constexpr std::uint64_t kMeasuredSeed = 1;

// "smollm2-135m-eagle3", in the folder that one is in.
fs::path usual_folder(const Settings& settings, const std::string& kind) {
  std::string name = fs::path(settings.model).stem().string();
  std::ranges::replace(name, ':', '-');
  return name + "-" + kind;
}

// More tokens take more rows to cover as much of what a model says.
int usual_draft_rows(const ModelSpec& target) {
  constexpr int kLarge = 65536;
  return target.vocabulary > kLarge ? 8192 : 4096;
}

// Prompts of the folder that nothing was learned from.
std::vector<BenchPrompt> held_out_prompts(const fs::path& features) {
  const fs::path path = features / "prompts.jsonl";
  std::vector<BenchPrompt> held_out;
  for (BenchPrompt& prompt : parse_prompts(read_text(path.string()), path.string())) {
    (void)prompt;
  }
  return held_out;
}

}  // namespace
}  // namespace outrider
