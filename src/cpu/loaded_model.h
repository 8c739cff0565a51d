// A model in memory: its weights, its keys and values in the pages of a cache, and what passes over
// it leave behind. A backend has one of its target, and one of the target's head if there is one;
// both have the same pages.

#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/threads.h"
#include "cpu/cache_memory.h"
#include "cpu/forward.h"
#include "cpu/kernels/kernels.h"
#include "cpu/outputs.h"
#include "cpu/weights.h"
#include "model/backend.h"

namespace outrider {

class LoadedModel {
 public:
  // options: with defaults filled in. The team must outlive this object. Throws as
  // BackendFactory::load() does.
  LoadedModel(const Model& model, const LoadOptions& options, int n_pages, Isa isa,
              ThreadTeam& team, const LoadProgress& progress);
  LoadedModel(const LoadedModel&) = delete;
  LoadedModel& operator=(const LoadedModel&) = delete;

  static MemoryNeed memory_need(const Model& model, const LoadOptions& options, int n_pages);

  const ModelSpec& spec() const { return model_.spec; }
  const LoadOptions& options() const { return options_; }
  const Weights& weights() const { return weights_; }
  CacheMemory& memory() { return memory_; }

  // A pass over rows (Forward::run), which ends the one before.
  void run(std::span<const ForwardRow> rows, std::span<const int> layers, std::span<const int> taps,
           PrefetchPattern prefetch, PassTimer& timer);
  std::uint64_t pass_number() const { return pass_number_; }
  void end_pass() { ++pass_number_; }

  // Of the last pass, as Backend says.
  std::vector<Choice> choose(const Pass& pass, std::span<const ChoiceRequest> requests);
  std::span<const float> tap(int tap, int row) const { return forward_.tap(tap, row); }
  std::optional<float> confidence(int row) const { return forward_.confidence(row); }
  void add_outputs(std::span<const Token> tokens);
  void remove_added_outputs();

 private:
  const Model model_;
  const LoadOptions options_;
  const Isa isa_;
  ThreadTeam& team_;
  Weights weights_;
  CacheMemory memory_;
  Forward forward_;
  Outputs outputs_;
  std::vector<ChoiceMemory> choice_memories_;  // [n_threads]
  std::uint64_t pass_number_ = 0;
};

}  // namespace outrider
