// Training a draft head: the project's trainer (train/, Python with PyTorch), which is part of the
// program, run in the program's own Python environment (formats/python_environment.h).

#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/progress.h"

namespace outrider {

enum class TrainedKind { eagle3, medusa };
std::string_view name(TrainedKind kind);

// What is not set is the trainer's to choose.
struct TrainingOptions {
  TrainedKind kind = TrainedKind::eagle3;
  std::filesystem::path features;  // a complete FeatureFolder
  std::filesystem::path out;       // the head's folder; a run that was stopped goes on from there
  double hours = 1;                // of the whole run, earlier parts included
  std::optional<int> draft_rows = {};  // tokens that the head can guess
  std::optional<int> threads = {};
  std::optional<std::int64_t> seed = {};
  bool offline = false;  // refuse to make the Python environment
  // note: what the trainer says; detail: what else Python does.
  Progress progress = {};
};

// On held-out texts (train/outrider_train/evaluation.py).
struct HeldOutAcceptance {
  std::vector<double> greedy, sampled;  // shares by depth of a draft
  // Tokens per pass of chains of three, the target's own included; `length` is the mean of both.
  std::optional<double> length, greedy_length, sampled_length;
  std::optional<double> covered;  // share of the target's choices that the head can guess
  std::optional<std::int64_t> positions;
};

// What the trainer says of its run; what an event does not say is empty.
struct TrainingEvent {
  enum class Kind { agreement, plan, progress, evaluation, done };
  Kind kind = Kind::progress;
  std::optional<double> done, seconds;       // of the whole run: from 0 to 1; so far
  std::optional<std::int64_t> step, tokens;  // so far; tokens of answers, each as often as used

  // agreement, done: how often recomputed logits choose the text's token, of how many.
  std::optional<double> agreement;
  std::optional<std::int64_t> agreement_positions;

  // plan
  std::optional<std::int64_t> texts, answer_tokens, held_out_texts, draft_rows, parameters, threads;
  std::optional<std::int64_t> resumed_at;  // the step
  std::optional<double> hours;
  std::optional<std::int64_t> steps;
  std::optional<std::string> precision, device;

  // progress, since the last one
  std::optional<std::int64_t> epoch, depths;
  std::optional<double> loss, cross_entropy, variation;
  std::optional<double> tokens_per_second, gflops;

  // evaluation; done: of the head that was kept
  std::optional<HeldOutAcceptance> acceptance;
  std::optional<bool> is_best;

  // done: nothing was left to do
  std::optional<bool> was_finished;
};

// Reads one line. Throws Error, which quotes it, if it is no event.
TrainingEvent parse_training_event(std::string_view line);

// Runs the trainer to its end and gives each event to `on_event`, on the calling thread. Returns
// the last one, "done". The head is in `options.out` then, and the best one so far from the first
// evaluation on. An interrupt gives the trainer half a minute to write its checkpoint; what
// `on_event` throws, too. Makes the Python environment if it is missing. Throws Error: interrupted;
// what the trainer refuses; it failed; a line that is no event; no environment.
TrainingEvent train_head(const TrainingOptions& options,
                         const std::function<void(const TrainingEvent&)>& on_event);

}  // namespace outrider
