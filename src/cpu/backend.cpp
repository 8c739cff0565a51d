#include "cpu/backend.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/processor.h"
#include "base/threads.h"
#include "cache/cache.h"
#include "cpu/cache_memory.h"
#include "cpu/fast_choice.h"
#include "cpu/forward.h"
#include "cpu/kernels/kernels.h"
#include "cpu/pass_timer.h"
#include "cpu/prefetch_choice.h"
#include "cpu/weights.h"

namespace outrider {
namespace {

using Clock = std::chrono::steady_clock;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

LoadOptions filled_in(LoadOptions options) {
  if (options.n_slots == 0) options.n_slots = options.batch_rows;
  CHECK(options.context > 0 && options.n_sequences > 0 && options.batch_rows > 0 &&
        options.n_threads > 0);
  CHECK(std::ranges::adjacent_find(options.output_ids, std::greater_equal<>()) ==
        options.output_ids.end());
  CHECK(options.output_names.empty() ||
        (options.output_names.size() == options.output_ids.size() && options.output_room == 0));
  return options;
}

CacheLimits limits(const Model& model, const LoadOptions& options) {
  return {.context = options.context,
          .n_sequences = options.n_sequences,
          .n_slots = options.n_slots,
          .n_layers = model.spec.n_layers(),
          .n_pages = options.n_pages,
          .shares_texts = options.shares_texts};
}

// The tokens that a trimmed head has logits for.
class Outputs {
 public:
  Outputs(const LoadOptions& options, int vocabulary)
      : ids_(options.output_ids),
        places_(ids_.size()),
        n_first_(ids_.size()),
        n_max_(ids_.size() + static_cast<std::size_t>(options.output_room)),
        vocabulary_(vocabulary) {
    std::iota(places_.begin(), places_.end(), 0u);
    if (!options.output_names.empty()) {
      std::ranges::sort(places_, {},
                        [&](std::uint32_t place) { return options.output_names[place]; });
      for (std::size_t i = 0; i < places_.size(); ++i) ids_[i] = options.output_names[places_[i]];
    }
    ids_.reserve(n_max_);
    places_.reserve(n_max_);
  }

  bool empty() const { return ids_.empty(); }
  PlacedTokens tokens() const { return {ids_, places_}; }

  // Adds new tokens at the end of the head, as many as it can take, and returns them.
  std::vector<Token> add(std::span<const Token> tokens) {
    std::vector<Token> added;
    added.reserve(tokens.size());
    for (const Token token : tokens) {
      const auto at = std::ranges::lower_bound(ids_, token);
      const bool is_known = at != ids_.end() && *at == token;
      if (ids_.size() == n_max_ || token >= vocabulary_ || is_known) continue;
      places_.insert(places_.begin() + (at - ids_.begin()),
                     static_cast<std::uint32_t>(ids_.size()));
      ids_.insert(at, token);
      added.push_back(token);
    }
    return added;
  }

  // Whether any was added.
  bool remove_added() {
    if (ids_.size() == n_first_) return false;
    std::size_t kept = 0;
    for (std::size_t i = 0; i < ids_.size(); ++i) {
      if (places_[i] >= n_first_) continue;
      ids_[kept] = ids_[i];
      places_[kept++] = places_[i];
    }
    ids_.resize(kept);
    places_.resize(kept);
    return true;
  }

 private:
  std::vector<Token> ids_;             // ascending
  std::vector<std::uint32_t> places_;  // in the head
  std::size_t n_first_, n_max_;
  int vocabulary_;
};

// The scratch of a batch, which goes if the batch cannot be computed.
class ScratchOfBatch {
 public:
  ScratchOfBatch(Cache& cache, std::span<const Row> rows) : cache_(cache), rows_(rows) {}
  ~ScratchOfBatch() {
    if (is_kept_) return;
    for (const Row& row : rows_) cache_.discard(row.sequence);
  }
  ScratchOfBatch(const ScratchOfBatch&) = delete;
  ScratchOfBatch& operator=(const ScratchOfBatch&) = delete;

  void keep() { is_kept_ = true; }

 private:
  Cache& cache_;
  const std::span<const Row> rows_;
  bool is_kept_ = false;
};

std::string tuning_of(Isa isa, PrefetchPattern prefetch) {
  return fmt::format("{} prefetch={}", name(isa), name(prefetch));
}

// The pattern that LoadOptions::tuning says.
std::optional<PrefetchPattern> kept_prefetch(const std::string& tuning, Isa isa) {
  for (const PrefetchPattern prefetch : kPrefetchPatterns)
    if (tuning == tuning_of(isa, prefetch)) return prefetch;
  return std::nullopt;
}

class CpuBackend final : public Backend {
 public:
  CpuBackend(const Model& model, const LoadOptions& options, Isa isa, const LoadProgress& progress)
      : model_(model),
        options_(options),
        isa_(isa),
        forced_prefetch_(forced_prefetch()),
        team_(ThreadTeam::shared(options.n_threads)),
        weights_(model_, options_, *team_, progress),
        cache_(limits(model, options)),
        memory_(model.spec, options.cache_type, Cache::n_pages(limits(model, options))),
        forward_(model_.spec, weights_, memory_, kernels(isa), *team_, options_),
        outputs_(options_, model_.spec.vocabulary),
        choice_memories_(options_.n_threads),
        all_layers_(model.spec.n_layers()) {
    std::iota(all_layers_.begin(), all_layers_.end(), 0);
    if (forced_prefetch_ || kernels(isa).by_prefetch.empty()) return;
    const std::optional<PrefetchPattern> kept = kept_prefetch(options_.tuning, isa);
    prefetch_.emplace(kept.value_or(PrefetchPattern::processor));
    if (!kept) compare_prefetch_patterns();
  }

  const ModelSpec& spec() const override { return model_.spec; }
  const LoadOptions& options() const override { return options_; }

  std::string tuning() const override {
    return prefetch_ ? tuning_of(isa_, prefetch_->chosen()) : std::string();
  }

  Pass forward(std::span<const Row> rows, const ForwardOptions& options) override {
    if (!prefetch_) {
      return forward_with(forced_prefetch_.value_or(PrefetchPattern::processor), rows, options);
    }
    const PrefetchPattern prefetch = prefetch_->next(
        {.rows = rows.size(),
         .layers = options.layers ? options.layers->size() : all_layers_.size(),
         .logits = static_cast<std::size_t>(std::ranges::count_if(rows, &Row::wants_logits))});
    const Clock::time_point start = Clock::now();
    Pass pass = forward_with(prefetch, rows, options);
    prefetch_->took(ms_since(start));
    return pass;
  }

  std::vector<Choice> choose(const Pass& pass, std::span<const ChoiceRequest> requests) override {
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
    team_->run([&](int thread) {
      for (std::size_t i = thread; i < requests.size(); i += n_threads)
        answer(i, choice_memories_[thread]);
    });
    return choices;
  }

  std::vector<float> read_tap(const Pass& pass, int tap, int row) const override {
    CHECK(pass.number == pass_number_);
    const std::span<const float> values = forward_.tap(tap, row);
    return {values.begin(), values.end()};
  }

  void add_outputs(std::span<const Token> tokens) override {
    if (outputs_.empty()) return;
    const std::vector<Token> added = outputs_.add(tokens);
    if (added.empty()) return;
    weights_.add_to_head(added);
    ++pass_number_;  // the last pass has its logits in rows of the old width
  }

  void remove_added_outputs() override {
    if (!outputs_.remove_added()) return;
    weights_.cut_head(outputs_.tokens().ids.size());
    ++pass_number_;
  }

  SequenceId begin(CacheScope scope) override { return cache_.begin(scope); }
  void end(SequenceId sequence) override { cache_.end(sequence); }
  int reuse_prefix(SequenceId sequence, std::span<const Token> text) override {
    return cache_.reuse_prefix(sequence, text);
  }
  int free_pages() const override { return cache_.free_pages(); }
  int cached_pages() const override { return cache_.unused_cached_pages(); }
  int pages_wanted(SequenceId sequence, int n_rows, int n_committed) const override {
    return cache_.pages_wanted(sequence, n_rows, n_committed);
  }
  SequenceId fork(SequenceId sequence) override { return cache_.fork(sequence); }
  void commit(SequenceId sequence, std::span<const SlotId> path) override {
    memory_.copy(cache_.commit(sequence, path));
  }
  void discard(SequenceId sequence) override { cache_.discard(sequence); }
  void truncate(SequenceId sequence, int length) override { cache_.truncate(sequence, length); }
  int committed(SequenceId sequence) const override { return cache_.committed(sequence); }
  int free_slots(SequenceId sequence) const override { return cache_.free_slots(sequence); }

 private:
  Pass forward_with(PrefetchPattern prefetch, std::span<const Row> rows,
                    const ForwardOptions& options) {
    ScratchOfBatch scratch(cache_, rows);
    PassTimer timer(options.profile, team_->size(), weights_);
    CHECK(!rows.empty() && rows.size() <= static_cast<std::size_t>(options_.batch_rows));
    const std::vector<int>& layers = options.layers ? *options.layers : all_layers_;
    LayerSet written;
    for (int previous = -1; const int layer : layers) {
      CHECK(layer > previous && layer < model_.spec.n_layers());  // in layers' own order
      written.set(layer);
      previous = layer;
    }
    for (const int layer : options.taps)
      CHECK(layer >= 0 && layer < model_.spec.n_layers() && written[layer]);
    Pass pass{{}, ++pass_number_};
    pass.slots.reserve(rows.size());
    std::vector<ForwardRow> prepared(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Row& row = rows[i];
      CHECK(row.token >= 0 && row.token < model_.spec.vocabulary);
      const SlotId slot =
          cache_.add_slot(row.sequence, row.token, parent_slot(rows, i, pass.slots), written);
      CHECK(cache_.position(row.sequence, slot) == row.position);
      pass.slots.push_back(slot);
      prepared[i] = {.token = row.token,
                     .context = {.position = row.position,
                                 .committed = cache_.committed(row.sequence),
                                 .pages = cache_.pages(row.sequence),
                                 .path = cache_.path(row.sequence, slot)},
                     .wants_logits = row.wants_logits};
    }
    forward_.run(prepared, layers, options.taps, prefetch, timer);
    scratch.keep();
    timer.finish();
    return pass;
  }

  // Times passes of one row over some layers, with each pattern in turn, for at most 0.3 s. One
  // pass that something else delays takes a dozen rounds to outweigh: 16 rounds missed a pattern
  // that was faster by 17 % in two of seven starts. Half as many bytes per pass missed it in six of
  // eight, with twice the rounds. What fits into a processor's caches is not read from memory:
  // nothing is compared.
  void compare_prefetch_patterns() {
    constexpr std::size_t kLeastBytes = std::size_t{64} << 20, kPassBytes = std::size_t{128} << 20;
    constexpr int kRounds = 48;
    constexpr double kMostMs = 300;
    const std::size_t bytes = weight_bytes(model_, options_).matrices;
    if (bytes < kLeastBytes) return;
    const std::size_t n_layers = all_layers_.size();
    const std::size_t n = std::clamp<std::size_t>(n_layers * kPassBytes / bytes, 1, n_layers);
    const OwnedSequence text(*this);
    const Row row{.sequence = text.id(), .token = 0};
    const auto time = [&](int round, PrefetchPattern prefetch) {
      const auto first = all_layers_.begin() + round * n % (n_layers - n + 1);
      ForwardOptions options;
      options.layers.emplace(first, first + n);
      const Clock::time_point start = Clock::now();
      forward_with(prefetch, std::span(&row, 1), options);
      discard(text.id());
      return ms_since(start);
    };
    // The first pass touches working memory, which the next one would do otherwise.
    time(0, PrefetchPattern::processor);
    const Clock::time_point start = Clock::now();
    double longest = 0;
    for (int round = 0; round < kRounds && ms_since(start) + longest < kMostMs; ++round) {
      const Clock::time_point begin = Clock::now();
      std::array<double, kPrefetchPatterns.size()> ms;
      for (std::size_t turn = 0; turn < ms.size(); ++turn) {
        const std::size_t pattern = (round + turn) % ms.size();
        ms[pattern] = time(round, kPrefetchPatterns[pattern]);
      }
      longest = std::max(longest, ms_since(begin));
      for (const PrefetchPattern pattern : kPrefetchPatterns) {
        const PrefetchPattern chosen = prefetch_->chosen();
        if (pattern != chosen) prefetch_->compare(pattern, ms[index(pattern)], ms[index(chosen)]);
      }
    }
  }

  std::optional<SlotId> parent_slot(std::span<const Row> rows, std::size_t i,
                                    std::span<const SlotId> slots) const {
    if (const auto* earlier = std::get_if<EarlierRow>(&rows[i].parent)) {
      CHECK(earlier->row >= 0 && static_cast<std::size_t>(earlier->row) < i);
      CHECK(rows[earlier->row].sequence == rows[i].sequence);
      return slots[earlier->row];
    }
    if (const auto* slot = std::get_if<SlotId>(&rows[i].parent)) return *slot;
    return std::nullopt;
  }

  const Model model_;
  const LoadOptions options_;
  const Isa isa_;
  const std::optional<PrefetchPattern> forced_prefetch_;
  const std::shared_ptr<ThreadTeam> team_;
  Weights weights_;
  Cache cache_;
  CacheMemory memory_;
  Forward forward_;
  std::optional<PrefetchChoice> prefetch_;  // where there is a choice
  Outputs outputs_;
  std::vector<ChoiceMemory> choice_memories_;  // [n_threads]
  std::vector<int> all_layers_;
  std::uint64_t pass_number_ = 0;
};

class CpuBackendFactory final : public BackendFactory {
 public:
  std::string name() const override {
    forced_prefetch();  // throws if there is none of that name
    return std::string(outrider::name(chosen_isa()));
  }
  MemoryNeed memory_need(const Model& model, const LoadOptions& unfilled) const override {
    const LoadOptions options = filled_in(unfilled);
    // A row of every text, drafts and scored prompts.
    const std::size_t logit_rows = static_cast<std::size_t>(options.n_sequences) + 64;
    const std::size_t logits = logit_rows * model.spec.vocabulary * sizeof(float);
    const WeightBytes weights = weight_bytes(model, options);
    return {.weights = weights.matrices + weights.vectors,
            .cache = CacheMemory::page_bytes(model.spec, options.cache_type) *
                     Cache::n_pages(limits(model, options)),
            .working = Forward::working_bytes(model.spec, options) + logits};
  }
  std::unique_ptr<Backend> load(const Model& model, const LoadOptions& options,
                                const LoadProgress& progress) const override {
    return load_cpu(model, options, chosen_isa(), progress);
  }
};

}  // namespace

std::unique_ptr<Backend> load_cpu(const Model& model, const LoadOptions& options, Isa isa,
                                  const LoadProgress& progress) {
  return std::make_unique<CpuBackend>(model, filled_in(options), isa, progress);
}

const BackendFactory& cpu_backends() {
  static const CpuBackendFactory factory;
  return factory;
}

}  // namespace outrider
