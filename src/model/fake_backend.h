// A backend for tests: a tiny deterministic "model" whose logits are a function of the token path
// and nothing else, behind a cache that enforces backend.h to the letter. Misuse aborts through
// CHECK.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/error.h"
#include "cache/cache.h"
#include "model/backend.h"

namespace outrider {

// What follows a path: a favourite and a runner-up named by the last two tokens, so that texts
// repeat themselves and lookups can be right, and a little of everything named by the whole path,
// so that a wrong position, ancestor or committed token anywhere shows.
struct FakeModel {
  int vocabulary = 23;
  float peak = 6;          // the favourite's lead
  float whole_path = 2;    // spread of what the whole path decides
  float disagreement = 0;  // share of paths with other favourites, which `opinion` chooses
  std::uint64_t opinion = 0;
  float layer_disagreement = 0.3f;  // disagreement where layers are left out
  std::function<bool(std::span<const Token> path)> unusable = nullptr;  // its logits are NaN
  // What a path is followed by, instead of the favourites.
  std::function<Token(std::span<const Token> path)> says = nullptr;

  std::vector<float> logits(std::span<const Token> path) const {
    std::uint64_t whole = 0;
    for (Token token : path) whole = hash(whole, token);
    std::uint64_t recent = hash(1, path.back());
    if (uniform(hash(whole, 77 + opinion)) < disagreement) recent = hash(recent, 99 + opinion);
    std::vector<float> logits(vocabulary);
    for (int token = 0; token < vocabulary; ++token)
      logits[token] = whole_path * uniform(hash(whole, token)) + uniform(hash(recent, token));
    logits[hash(recent, 1000) % kFavourites] += peak;
    logits[hash(recent, 1001) % kFavourites] += peak / 2;
    if (says) logits[says(path)] += 3 * peak;
    if (unusable && unusable(path))
      logits.assign(vocabulary, std::numeric_limits<float>::quiet_NaN());
    return logits;
  }

 private:
  static constexpr int kFavourites = 10;                                 // the least vocabulary
  static std::uint64_t hash(std::uint64_t state, std::uint64_t value) {  // SplitMix64
    state = (state ^ (value + 1)) * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u;
    state = (state ^ (state >> 30)) * 0xbf58476d1ce4e5b9u;
    state = (state ^ (state >> 27)) * 0x94d049bb133111ebu;
    return state ^ (state >> 31);
  }
  static float uniform(std::uint64_t hash) { return static_cast<float>(hash >> 40) / (1 << 24); }
};

class FakeBackend : public Backend {
 public:
  FakeBackend(FakeModel model, LoadOptions options, int n_layers = 2)
      : model_(std::move(model)), options_(std::move(options)) {
    if (options_.n_slots == 0) options_.n_slots = options_.batch_rows;
    spec_.family = "fake";
    spec_.vocabulary = model_.vocabulary;
    spec_.embedding = 1;
    spec_.context_trained = options_.context;
    spec_.layers.resize(n_layers,
                        {.operations = {{.pre_norm = {}, .body = Attention{}, .post_norm = {}}}});
    cache_.emplace(CacheLimits{.context = options_.context,
                               .n_sequences = options_.n_sequences,
                               .n_slots = options_.n_slots,
                               .n_layers = spec_.n_layers(),
                               .n_pages = options_.n_pages,
                               .shares_texts = options_.shares_texts});
  }

  struct Counts {
    long forwards = 0, rows = 0, logit_rows = 0, rows_max = 0;
  };
  Counts counts;

  const FakeModel& model() const { return model_; }
  std::span<const Token> text(SequenceId sequence) const { return at(sequence).committed; }
  int n_alive() const { return static_cast<int>(sequences_.size()); }

  const ModelSpec& spec() const override { return spec_; }
  const LoadOptions& options() const override { return options_; }

  std::function<void()> before_forward = nullptr, before_commit = nullptr;  // may throw

  Pass forward(std::span<const Row> rows, const ForwardOptions& options) override {
    if (before_forward) before_forward();
    CHECK(!rows.empty() && static_cast<int>(rows.size()) <= options_.batch_rows);
    std::vector<int> layers(spec_.n_layers());
    std::iota(layers.begin(), layers.end(), 0);
    if (options.layers) layers = *options.layers;
    CHECK(!layers.empty() && std::ranges::is_sorted(layers));
    CHECK(layers.front() >= 0 && layers.back() < spec_.n_layers());
    taps_ = options.taps;

    Pass pass{{}, ++pass_number_};
    rows_.clear();
    for (const Row& row : rows) {
      Sequence& sequence = at(row.sequence);
      CHECK(row.token >= 0 && row.token < spec_.vocabulary);
      CHECK(free_slots(row.sequence) > 0);
      Slot slot{row.token, std::nullopt, static_cast<int>(sequence.committed.size()), layers};
      if (const auto* earlier = std::get_if<EarlierRow>(&row.parent)) {
        CHECK(earlier->row >= 0 && earlier->row < static_cast<int>(rows_.size()));
        CHECK(rows[earlier->row].sequence == row.sequence);
        slot.parent = pass.slots[earlier->row].value;
      } else if (const auto* scratch = std::get_if<SlotId>(&row.parent)) {
        slot.parent = scratch->value;
      }
      if (slot.parent) {
        CHECK(sequence.slots.contains(*slot.parent));
        const Slot& parent = sequence.slots.at(*slot.parent);
        CHECK(std::ranges::includes(parent.layers, layers));
        slot.position = parent.position + 1;
      }
      CHECK(row.position == slot.position && row.position < options_.context);

      std::vector<Token> path{row.token};
      for (auto node = slot.parent; node; node = sequence.slots.at(*node).parent)
        path.push_back(sequence.slots.at(*node).token);
      path.insert(path.end(), sequence.committed.rbegin(), sequence.committed.rend());
      std::ranges::reverse(path);
      rows_.push_back({row.wants_logits ? model(layers).logits(path) : std::vector<float>{}, path});

      std::optional<SlotId> above;
      if (slot.parent) above = sequence.slots.at(*slot.parent).in_cache;
      LayerSet written;
      for (const int layer : layers) written.set(layer);
      slot.in_cache = cache_->add_slot(row.sequence, row.token, above, written);
      pass.slots.push_back({next_slot_});
      sequence.slots.emplace(next_slot_++, std::move(slot));
      counts.logit_rows += row.wants_logits;
    }
    ++counts.forwards;
    counts.rows += static_cast<long>(rows.size());
    counts.rows_max = std::max(counts.rows_max, static_cast<long>(rows.size()));
    return pass;
  }

  std::vector<Choice> choose(const Pass& pass, std::span<const ChoiceRequest> requests) override {
    CHECK(pass.number == pass_number_);
    std::vector<Choice> choices;
    for (const ChoiceRequest& request : requests) {
      CHECK(request.row >= 0 && request.row < static_cast<int>(rows_.size()));
      CHECK(!rows_[request.row].logits.empty());
      choices.push_back(choose_reference(named(rows_[request.row].logits), request));
    }
    return choices;
  }

  std::vector<float> read_tap(const Pass& pass, int tap, int row) const override {
    CHECK(pass.number == pass_number_);
    CHECK(tap >= 0 && tap < static_cast<int>(taps_.size()));
    return {static_cast<float>(rows_.at(row).path.size() + 1000 * taps_[tap])};
  }

  void add_outputs(std::span<const Token> tokens) override {
    outputs_added_.insert(tokens.begin(), tokens.end());
  }
  void remove_added_outputs() override { outputs_added_.clear(); }
  const std::set<Token>& outputs_added() const { return outputs_added_; }

  SequenceId begin(CacheScope scope) override {
    CHECK(n_alive() < options_.n_sequences);
    const SequenceId begun = cache_->begin(scope);
    sequences_.emplace(begun.value, Sequence{});
    return begun;
  }
  void end(SequenceId sequence) override {
    CHECK(sequences_.erase(sequence.value) == 1);
    cache_->end(sequence);
    cache_->check_integrity();
  }
  SequenceId fork(SequenceId sequence) override {
    CHECK(n_alive() < options_.n_sequences);
    const SequenceId forked = cache_->fork(sequence);
    sequences_.emplace(forked.value, Sequence{.committed = at(sequence).committed, .slots = {}});
    return forked;
  }
  int reuse_prefix(SequenceId id, std::span<const Token> tokens) override {
    Sequence& sequence = at(id);
    const auto reused = tokens.first(cache_->reuse_prefix(id, tokens));
    sequence.committed.assign(reused.begin(), reused.end());
    sequence.slots.clear();
    return cache_->committed(id);
  }
  int free_pages() const override { return cache_->free_pages(); }
  int cached_pages() const override { return cache_->unused_cached_pages(); }
  int pages_wanted(SequenceId sequence, int n_rows, int n_committed) const override {
    return cache_->pages_wanted(sequence, n_rows, n_committed);
  }
  void commit(SequenceId id, std::span<const SlotId> path) override {
    if (before_commit) before_commit();
    Sequence& sequence = at(id);
    std::optional<int> parent;
    std::vector<SlotId> in_cache;
    for (SlotId slot : path) {
      CHECK(sequence.slots.contains(slot.value));
      const Slot& written = sequence.slots.at(slot.value);
      CHECK(written.parent == parent);
      CHECK(static_cast<int>(written.layers.size()) == spec_.n_layers());
      sequence.committed.push_back(written.token);
      in_cache.push_back(written.in_cache);
      parent = slot.value;
    }
    sequence.slots.clear();
    cache_->commit(id, in_cache);
    cache_->check_integrity();
  }
  void discard(SequenceId sequence) override {
    at(sequence).slots.clear();
    cache_->discard(sequence);
  }
  void truncate(SequenceId id, int length) override {
    Sequence& sequence = at(id);
    CHECK(length >= 0 && length <= static_cast<int>(sequence.committed.size()));
    sequence.committed.resize(length);
    sequence.slots.clear();
    cache_->truncate(id, length);
  }
  int committed(SequenceId sequence) const override {
    return static_cast<int>(at(sequence).committed.size());
  }
  int free_slots(SequenceId sequence) const override {
    return options_.n_slots - static_cast<int>(at(sequence).slots.size());
  }

 private:
  struct Slot {
    Token token;
    std::optional<int> parent;
    int position;
    std::vector<int> layers;
    SlotId in_cache = {};
  };
  struct Sequence {
    std::vector<Token> committed;
    std::map<int, Slot> slots;
  };
  struct Computed {
    std::vector<float> logits;  // empty if not wanted
    std::vector<Token> path;
  };

  FakeModel model(const std::vector<int>& layers) const {
    FakeModel model = model_;
    if (std::ssize(layers) < spec_.n_layers()) model.disagreement = model_.layer_disagreement;
    return model;
  }

  std::vector<float> named(const std::vector<float>& logits) const {
    if (options_.output_names.empty()) return logits;
    std::vector<float> named(options_.n_names, -std::numeric_limits<float>::infinity());
    for (std::size_t i = 0; i < options_.output_names.size(); ++i)
      named[options_.output_names[i]] = logits[options_.output_ids[i]];
    return named;
  }

  Sequence& at(SequenceId id) {
    CHECK(sequences_.contains(id.value));
    return sequences_.at(id.value);
  }
  const Sequence& at(SequenceId id) const {
    CHECK(sequences_.contains(id.value));
    return sequences_.at(id.value);
  }

  FakeModel model_;
  LoadOptions options_;
  ModelSpec spec_;
  std::map<int, Sequence> sequences_;
  std::vector<Computed> rows_;  // of the last forward
  std::vector<int> taps_;
  std::set<Token> outputs_added_;
  std::uint64_t pass_number_ = 0;
  std::optional<Cache> cache_;  // the same sequences and rows, without contents
  int next_slot_ = 0;
};

}  // namespace outrider
