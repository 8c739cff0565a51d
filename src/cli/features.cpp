// Writes what a learned head is trained from.

#include "cli/json.h"
#include "cli/make_features.h"

namespace outrider {
namespace {

int features(const Machine& machine, const Settings& settings) {
  if (!settings.out) throw UsageError("features: needs --out FOLDER");
  Console console(settings);
  const FeatureRun run =
      fill_feature_folder(machine, settings, console, *settings.out, {.tokens = settings.tokens});
  const FeatureCounts& counts = run.counts;
  const double speed = run.seconds > 0 ? static_cast<double>(run.computed) / run.seconds : 0;
  if (settings.json) {
    write_json({{"folder", *settings.out},
                {"answer_tokens", counts.answer_tokens},
                {"prompts", counts.n_prompts},
                {"own", counts.n_own},
                {"built", counts.n_built},
                {"left_out", counts.n_left_out},
                {"shards", counts.n_shards},
                {"bytes", run.bytes},
                {"seconds", run.seconds},
                {"tokens_per_second", speed}});
  } else {
    write_output(fmt::format(
        "{}: {} tokens of answers to {} prompts ({} the model's own, {} built) in {} shards, {}; "
        "{:.0f} tokens/s over {}\n",
        *settings.out, counts.answer_tokens, counts.n_prompts, counts.n_own, counts.n_built,
        counts.n_shards, human_bytes(run.bytes), speed, duration_text(run.seconds)));
  }
  return kDone;
}

}  // namespace

Command features_command() {
  return {
      .name = "features",
      .summary = "write answers of a model with their features, to train a head from",
      .description =
          "Has the model answer prompts, many at a time, and writes what it computes of each token "
          "into --out FOLDER, from which train makes a draft head. Half of the prompts are the "
          "model's own, half are built from texts on this machine; or those of --data. The same "
          "command again goes on where it was interrupted.",
      .flag_set = FlagSet::loading,
      .flags = {"--out", "--data", "--without", "--tokens", "--predict", "--ctx-size", "--parallel",
                "--seed", "--temp"},
      .run = features};
}

}  // namespace outrider
