// Speculative decoding over any number of sequences: who owns the target, the drafters and the
// planner, and how sequences begin, restart and are preempted. What a step does is in step.h.

#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/generation.h"
#include "engine/step_report.h"
#include "model/backend.h"
#include "speculation/drafter.h"
#include "speculation/planner.h"

namespace outrider {

struct EngineOptions {
  PlannerOptions planner = {};
  int prompt_chunk = 0;  // prompt rows of a sequence in one pass at most; 0: as many as fit
  // measure_costs() times the target even if no draft depends on it.
  bool always_times_passes = false;
};

// Not thread-safe.
class Engine {
 public:
  // Several engines may share a target, on one thread at a time: together they have as many
  // generations as the target has sequences. Drafters are asked in order.
  Engine(std::shared_ptr<Backend> target, std::vector<std::unique_ptr<Drafter>> drafters,
         EngineOptions options);
  ~Engine();  // CHECKs that its generations are gone
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Throws Error if begin() would for such a prompt and prediction, where the answer may have
  // n_left tokens; nothing: no limit. Any thread.
  void check(std::span<const Token> prompt, std::span<const Token> prediction,
             std::optional<int> n_left) const;

  // Begins a sequence with this prompt. The part of a prediction that is longer than the context is
  // ignored. The target must have a sequence left.
  // Throws Error if the prompt is empty or leaves no room in the context for an answer, unless no
  // token of one is wanted; if prompt or prediction hold tokens that the model does not have; or as
  // check_sampling().
  std::unique_ptr<Generation> begin(std::span<const Token> prompt, SamplingParams sampling,
                                    StopRules stop, AnswerOptions options = {});

  // Gives the sequence another prompt; its scope stays. Of the longest common prefix of its tokens
  // and the prompt, without the prompt's last token, the cache keeps what it has. Throws like
  // begin(), and then leaves the generation as it was. If a drafter fails for want of memory, the
  // generation ends with an error, and can be restarted again.
  void restart(Generation& generation, std::span<const Token> prompt, SamplingParams sampling,
               StopRules stop, AnswerOptions options = {});

  // Preempts the sequence: its pages go back to the pools of the target and the drafters. Its next
  // steps compute again what is no longer in the caches; the answer is the same.
  void suspend(Generation& generation);

  // Tokens of the sequence that have to be computed before its last one, which is a row of every
  // step. Cached pages of these tokens are reused first, so they do not count.
  int n_to_prefill(Generation& generation);
  int draft_rows_max(const Generation& generation) const;  // of a step
  // Drafters that draw for it: of those that may propose and can draw, if its verifier wants that
  // and it is sampled.
  int drawers(const Generation& generation) const;
  // Shows the drafters the tokens that they have not seen, and with a prompt the prediction.
  void show(Generation& generation);
  // The most pages of the target that steps take which compute n_prefill of the n_to_prefill()
  // tokens.
  int pages_wanted(const Generation& generation, int n_prefill) const;

  // One sequence's part of a step.
  struct Part {
    Generation* generation;
    int n_prefill;  // how many of its n_to_prefill() tokens the step may compute
  };
  // The rows of a pass that prefills, given to sequences in turn. Few are of scored prompts, whose
  // logits take memory.
  static constexpr int kScoredRows = 32;
  class PrefillRoom {
   public:
    explicit PrefillRoom(int n_rows) : n_left_(n_rows) {}
    // How many tokens of the sequence the pass computes before its last one, at most n_to_prefill.
    int take(const Generation& generation, int n_to_prefill);

   private:
    int n_left_, n_scored_left_ = kScoredRows;
  };

  // One pass for all given generations, none of them ended, each at most once and no more than the
  // target's batch_rows: for each a chunk of its prompt, or draft and verify. Where the target has
  // fewer pages than all sequences need, pages_wanted() of all must be free. A failure ends
  // generations with an error, and the engine stays usable: a sequence whose logits cannot be used
  // (NaN) ends alone; if a stage fails (memory), all sequences of the step end with the tokens that
  // they had before it. n_waiting: sequences that wait for the end of the step without a part in
  // it; drafts have to be worth their time, too.
  void step(std::span<const Part> parts, int n_waiting = 0);
  // Each with as much of its prompt as EngineOptions allow, in turn.
  void step(std::span<Generation* const> generations);

  // The milliseconds that a pass of these parts, at least one, is expected to take without drafts;
  // nothing: not known yet.
  std::optional<double> pass_ms(std::span<const Part> parts) const;

  // Times what is not known yet. With an automatic planner and drafters: the drafters, and passes
  // of the target over as many rows as a step of one sequence may have. With always_times_passes:
  // passes over up to 96 rows, whatever the planner. They run behind the tokens of a living
  // generation, which stays as it is, or without one on a sequence of their own.
  void measure_costs();

  // What this engine knows of costs and acceptance. restore() takes what another engine with such a
  // target and such drafters knew, in place of measure_costs(); false if it does not fit these
  // drafters, and then nothing has changed.
  Learned learned() const;
  bool restore(const Learned& learned);

  // Other drafters from now on; they are shown the tokens of the living generations, whose counters
  // begin anew.
  void set_drafters(std::vector<std::unique_ptr<Drafter>> drafters);

  // Drafters forget what ended sequences taught them (Drafter::forget), so that no answer makes
  // another one faster. The planner forgets nothing.
  void forget_ended_sequences();

  // Called at the end of every step; what it throws leaves step() after the step is complete.
  void on_step(std::function<void(const StepReport&)> observe) { observe_ = std::move(observe); }

  // Passes keep these taps (ForwardOptions::taps). `watch` is called before what a pass computed of
  // texts becomes history, so that it can read them; what it throws ends the step's texts like a
  // failed pass. What a text shares with cached pages is never computed, so it is not seen. No
  // taps and an empty `watch` end it.
  using WatchComputed = std::function<void(const Pass& pass, std::span<const ComputedText> texts)>;
  void watch_computed(std::vector<int> taps, WatchComputed watch) {
    watched_taps_ = std::move(taps);
    watch_computed_ = std::move(watch);
  }

  // Of the planner, since the drafters were set.
  Planner::Report planner_report() const { return planner_->report(); }

  // Since the engine began.
  const DraftWork& draft_work() const { return draft_work_; }

  const EngineOptions& options() const { return options_; }
  const Backend& target() const { return *target_; }
  std::span<const std::unique_ptr<Drafter>> drafters() const { return drafters_; }

 private:
  friend struct Generation;
  friend class Step;
  bool uses_head() const;  // whether a drafter does
  void start(Generation& generation, std::span<const Token> prompt, AnswerOptions options);

  std::shared_ptr<Backend> target_;
  std::vector<std::unique_ptr<Drafter>> drafters_;
  EngineOptions options_;
  CostCurve passes_;  // of the target
  std::unique_ptr<Planner> planner_;
  DraftWork draft_work_;
  std::vector<Generation*> living_;
  int next_draft_sequence_ = 0;
  long n_steps_ = 0;
  std::function<void(const StepReport&)> observe_;
  std::vector<int> watched_taps_;
  WatchComputed watch_computed_;
};

}  // namespace outrider
