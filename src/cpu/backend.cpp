#include "cpu/backend.h"

#include <algorithm>
#include <chrono>
#include <functional>
#include <numeric>

#include "base/error.h"
#include "base/processor.h"
#include "base/threads.h"
#include "cache/cache.h"
#include "cpu/batch.h"
#include "cpu/head.h"
#include "cpu/kernels/kernels.h"
#include "cpu/loaded_model.h"
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
          .n_layers = model.spec.n_layers() +
                      (options.head ? CpuHead::layers_in_cache(options.head->model.spec) : 0),
          .n_pages = options.n_pages,
          .shares_texts = options.shares_texts};
}

int n_pages(const Model& model, const LoadOptions& options) {
  return Cache::n_pages(limits(model, options));
}

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
      : isa_(isa),
        forced_prefetch_(forced_prefetch()),
        team_(ThreadTeam::shared(options.n_threads)),
        cache_(limits(model, options)),
        model_(model, options, n_pages(model, options), isa, *team_, progress),
        all_layers_(model.spec.n_layers()) {
    std::iota(all_layers_.begin(), all_layers_.end(), 0);
    if (options.head) load_head(*options.head, progress);
    if (forced_prefetch_ || kernels(isa).by_prefetch.empty()) return;
    const std::optional<PrefetchPattern> kept = kept_prefetch(options.tuning, isa);
    prefetch_.emplace(kept.value_or(PrefetchPattern::processor));
    if (!kept) compare_prefetch_patterns(model);
  }

  const ModelSpec& spec() const override { return model_.spec(); }
  const LoadOptions& options() const override { return model_.options(); }

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
    return model_.choose(pass, requests);
  }

  std::vector<float> read_tap(const Pass& pass, int tap, int row) const override {
    CHECK(pass.number == model_.pass_number());
    const std::span<const float> values = model_.tap(tap, row);
    return {values.begin(), values.end()};
  }

  void add_outputs(std::span<const Token> tokens) override { model_.add_outputs(tokens); }
  void remove_added_outputs() override { model_.remove_added_outputs(); }

  Backend* head() override { return head_.get(); }
  void replace_head(const HeadToLoad& head) override {
    CHECK(head_ &&
          CpuHead::layers_in_cache(head.model.spec) == CpuHead::layers_in_cache(head_->spec()));
    head_.reset();          // before memory for the other one is taken
    cache_.forget_texts();  // cached pages lack what the other head would have written
    load_head(head, {});
  }
  void use_head(SequenceId sequence, bool uses) override {
    CHECK(head_ || !uses);
    if (head_) head_->use(sequence, uses);
  }

  SequenceId begin(CacheScope scope) override {
    const SequenceId sequence = cache_.begin(scope);
    use_head(sequence, false);
    return sequence;
  }
  void end(SequenceId sequence) override {
    cache_.end(sequence);
    if (head_) head_->ended(sequence);
  }
  int reuse_prefix(SequenceId sequence, std::span<const Token> text) override {
    const int before = cache_.committed(sequence), length = cache_.reuse_prefix(sequence, text);
    if (head_ && length > before) head_->reused(sequence);
    return length;
  }
  int free_pages() const override { return cache_.free_pages(); }
  int cached_pages() const override { return cache_.unused_cached_pages(); }
  int pages_wanted(SequenceId sequence, int n_rows, int n_committed) const override {
    return cache_.pages_wanted(sequence, n_rows, n_committed);
  }
  SequenceId fork(SequenceId sequence) override {
    const SequenceId copy = cache_.fork(sequence);
    if (head_) head_->forked(sequence, copy);
    return copy;
  }
  void commit(SequenceId sequence, std::span<const SlotId> path) override {
    const int first = cache_.committed(sequence);
    const std::vector<CacheCopy> copies = cache_.commit(sequence, path);
    model_.memory().copy(copies);
    if (uses_head(sequence)) head_->committed(sequence, path, first, copies);
  }
  void discard(SequenceId sequence) override { cache_.discard(sequence); }
  void truncate(SequenceId sequence, int length) override {
    if (uses_head(sequence)) length = head_->length_kept(sequence, length);
    cache_.truncate(sequence, length);
  }
  int committed(SequenceId sequence) const override { return cache_.committed(sequence); }
  int free_slots(SequenceId sequence) const override { return cache_.free_slots(sequence); }

 private:
  void load_head(const HeadToLoad& head, const LoadProgress& progress) {
    const auto prefetch = [this] {
      return prefetch_ ? prefetch_->chosen()
                       : forced_prefetch_.value_or(PrefetchPattern::processor);
    };
    head_ =
        std::make_unique<CpuHead>(head, options(), CpuHead::Target{*this, cache_, model_, prefetch},
                                  cache_.n_pages(), isa_, *team_, progress);
  }
  bool uses_head(SequenceId sequence) const { return head_ && head_->is_used_by(sequence); }

  Pass forward_with(PrefetchPattern prefetch, std::span<const Row> rows,
                    const ForwardOptions& options) {
    ScratchOfBatch scratch(cache_, rows);
    PassTimer timer(options.profile, team_->size(), model_.weights());
    CHECK(!rows.empty() && rows.size() <= static_cast<std::size_t>(this->options().batch_rows));
    const std::vector<int>& layers = options.layers ? *options.layers : all_layers_;
    LayerSet written;
    for (int previous = -1; const int layer : layers) {
      CHECK(layer > previous && layer < spec().n_layers());  // in layers' own order
      written.set(layer);
      previous = layer;
    }
    for (const int tap : options.taps)
      CHECK(tap == kEmbeddingTap || tap == spec().n_layers() || written[tap]);
    if (head_) head_->forget_pass();
    const bool has_features =
        layers.size() == all_layers_.size() &&
        std::ranges::any_of(rows, [&](const Row& row) { return uses_head(row.sequence); });
    std::vector<int> taps = options.taps;
    if (has_features) taps.insert(taps.end(), head_->taps().begin(), head_->taps().end());
    Pass pass{.slots = {}, .number = model_.pass_number() + 1};
    pass.slots.reserve(rows.size());
    std::vector<ForwardRow> prepared(rows.size());
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const Row& row = rows[i];
      CHECK(row.token >= 0 && row.token < spec().vocabulary);
      const SlotId slot =
          cache_.add_slot(row.sequence, row.token, parent_slot(rows, i, pass.slots), written);
      CHECK(cache_.position(row.sequence, slot) == row.position);
      pass.slots.push_back(slot);
      prepared[i] = {.token = row.token,
                     .context = context_of(cache_, row.sequence, slot),
                     .wants_logits = row.wants_logits};
    }
    model_.run(prepared, layers, taps, prefetch, timer);
    if (has_features) head_->computed(rows, static_cast<int>(options.taps.size()), pass);
    scratch.keep();
    timer.finish();
    return pass;
  }

  // Times passes of one row over some layers, with each pattern in turn, for at most 0.3 s. One
  // pass that something else delays takes a dozen rounds to outweigh: 16 rounds missed a pattern
  // that was faster by 17 % in two of seven starts. Half as many bytes per pass missed it in six of
  // eight, with twice the rounds. What fits into a processor's caches is not read from memory:
  // nothing is compared.
  void compare_prefetch_patterns(const Model& model) {
    constexpr std::size_t kLeastBytes = std::size_t{64} << 20, kPassBytes = std::size_t{128} << 20;
    constexpr int kRounds = 48;
    constexpr double kMostMs = 300;
    const std::size_t bytes = weight_bytes(model, options()).matrices;
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

  const Isa isa_;
  const std::optional<PrefetchPattern> forced_prefetch_;
  const std::shared_ptr<ThreadTeam> team_;
  Cache cache_;
  LoadedModel model_;
  std::vector<int> all_layers_;
  std::optional<PrefetchChoice> prefetch_;  // where there is a choice
  std::unique_ptr<CpuHead> head_;
};

class CpuBackendFactory final : public BackendFactory {
 public:
  std::string name() const override {
    forced_prefetch();  // throws if there is none of that name
    return std::string(outrider::name(chosen_isa()));
  }
  MemoryNeed memory_need(const Model& model, const LoadOptions& unfilled) const override {
    const LoadOptions options = filled_in(unfilled);
    MemoryNeed need = LoadedModel::memory_need(model, options, n_pages(model, options));
    if (!options.head) return need;
    const MemoryNeed head = CpuHead::memory_need(*options.head, options, n_pages(model, options));
    need.weights += head.weights;
    need.cache += head.cache;
    need.working += head.working;
    return need;
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
