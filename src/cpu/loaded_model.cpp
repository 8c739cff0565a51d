#include "cpu/loaded_model.h"

#include "base/error.h"
#include "base/processor.h"
#include "cpu/fast_choice.h"

namespace outrider {

LoadedModel::LoadedModel(const Model& model, const LoadOptions& options, int n_pages, Isa isa,
                         ThreadTeam& team, const LoadProgress& progress)
    : model_(model),
      options_(options),
      isa_(isa),
      team_(team),
      weights_(model_, options_, team_, progress),
      memory_(model_.spec, options_.cache_type, n_pages),
      forward_(model_.spec, weights_, memory_, kernels(isa), team_, options_),
      outputs_(options_, model_.spec.vocabulary),
      choice_memories_(options_.n_threads) {}

MemoryNeed LoadedModel::memory_need(const Model& model, const LoadOptions& options, int n_pages) {
  // A row of every text, drafts and scored prompts; or all of a head's blocks, kept for completion.
  const std::size_t n_sequences = static_cast<std::size_t>(options.n_sequences);
  std::size_t logit_rows = n_sequences + 64;
  if (const auto& block = model.spec.block)
    logit_rows =
        n_sequences * static_cast<std::size_t>(block->n_rows) * (block->successor_rank > 0 ? 2 : 1);
  const std::size_t n_outputs =
      options.output_ids.empty()
          ? static_cast<std::size_t>(model.spec.vocabulary)
          : options.output_ids.size() + static_cast<std::size_t>(options.output_room);
  const std::size_t logits = logit_rows * n_outputs * sizeof(float);
  const WeightBytes weights = weight_bytes(model, options);
  return {.weights = weights.matrices + weights.vectors,
          .cache = CacheMemory::page_bytes(model.spec, options.cache_type) * n_pages,
          .working = Forward::working_bytes(model.spec, options) + logits};
}

void LoadedModel::run(std::span<const ForwardRow> rows, std::span<const int> layers,
                      std::span<const int> taps, PrefetchPattern prefetch, PassTimer& timer) {
  end_pass();
  forward_.run(rows, layers, taps, prefetch, timer);
}

std::vector<Choice> LoadedModel::choose(const Pass& pass, std::span<const ChoiceRequest> requests) {
  CHECK(pass.number == pass_number_);
  std::vector<Choice> choices(requests.size());
  const auto n_tokens = static_cast<std::size_t>(
      options_.output_names.empty() ? model_.spec.vocabulary : options_.n_names);
  const auto answer = [&](std::size_t i, ChoiceMemory& memory) {
    const std::span<const float> logits = forward_.logits(requests[i].row);
    if (outputs_.empty()) {
      outrider::choose(logits, requests[i], isa_, memory, choices[i]);
    } else {
      choose_among(outputs_.tokens(), logits, n_tokens, requests[i], isa_, memory, choices[i]);
    }
  };
  if (!has_fast_choice(isa_)) {
    // The reference allocates as it goes, which a team's threads must not.
    const IeeeFloats floats;
    for (std::size_t i = 0; i < requests.size(); ++i) answer(i, choice_memories_.front());
    return choices;
  }
  const std::size_t n_threads = choice_memories_.size();
  for (std::size_t i = 0; i < requests.size(); ++i)
    reserve(requests[i], n_tokens, choice_memories_[i % n_threads], choices[i]);
  // A single one, too: the team's threads round as they must, the caller's may not.
  team_.run([&](int thread) {
    for (std::size_t i = thread; i < requests.size(); i += n_threads)
      answer(i, choice_memories_[thread]);
  });
  return choices;
}

void LoadedModel::add_outputs(std::span<const Token> tokens) {
  if (outputs_.empty()) return;
  const std::vector<Token> added = outputs_.add(tokens);
  if (added.empty()) return;
  weights_.add_to_head(added);
  end_pass();  // the last pass has its logits in rows of the old width
}

void LoadedModel::remove_added_outputs() {
  if (!outputs_.remove_added()) return;
  weights_.cut_head(outputs_.tokens().ids.size());
  end_pass();
}

}  // namespace outrider
