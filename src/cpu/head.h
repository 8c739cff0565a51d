// A head beside its target (Backend::head): a model whose keys and values lie in memory of its own
// in the same pages, and the features of the target that it goes on from.
//
// Features are views into the target's last pass. Those of each page's last row and of each
// sequence's last committed row are kept, because the next row of the text needs them; but not for
// a head whose rows of the text need their own alone (BlockInput).

#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/huge_buffer.h"
#include "cache/cache.h"
#include "cpu/loaded_model.h"
#include "model/backend.h"

namespace outrider {

class CpuHead final : public Backend {
 public:
  // What it shares with its target's backend. References outlive it.
  struct Target {
    Backend& backend;
    Cache& cache;
    const LoadedModel& model;
    std::function<PrefetchPattern()> prefetch;
  };
  CpuHead(const HeadToLoad& head, const LoadOptions& options, Target target, int n_pages, Isa isa,
          ThreadTeam& team, const LoadProgress& progress);

  // As it is loaded beside a target with these options.
  static LoadOptions options_beside(const LoadOptions& target, const HeadToLoad& head);
  static MemoryNeed memory_need(const HeadToLoad& head, const LoadOptions& target, int n_pages);
  // Layers of its own that a text's rows have in the cache.
  // Medusa's heads have none, but pages that their features are kept with, which count as written
  // by one.
  static int layers_in_cache(const ModelSpec& head) { return head.medusa ? 1 : head.n_layers(); }

  // --- what the target's backend says

  bool is_used_by(SequenceId sequence) const { return of(sequence).is_used; }
  void use(SequenceId sequence, bool uses);
  // What each pass of the target has to keep behind its own taps.
  std::span<const int> taps() const { return taps_; }
  // A pass of the target is over or has begun: features end.
  void forget_pass() { rows_.clear(); }
  // A pass over all layers of the target. Its taps from first_tap on are this head's.
  void computed(std::span<const Row> rows, int first_tap, Pass& pass);
  // `path` has become history from position `first` on, by these copies.
  void committed(SequenceId sequence, std::span<const SlotId> path, int first,
                 std::span<const CacheCopy> copies);
  // To how many positions the cache shall be truncated so that `length` are kept.
  int length_kept(SequenceId sequence, int length);
  void reused(SequenceId sequence);
  void forked(SequenceId from, SequenceId to);
  void ended(SequenceId sequence) { of(sequence) = {}; }

  // --- Backend

  const ModelSpec& spec() const override { return model_.spec(); }
  const LoadOptions& options() const override { return model_.options(); }
  Pass forward(std::span<const Row> rows, const ForwardOptions& options) override;
  std::vector<Choice> choose(const Pass& pass, std::span<const ChoiceRequest> requests) override {
    return model_.choose(pass, requests);
  }
  std::vector<float> read_tap(const Pass& pass, int tap, int row) const override;
  std::optional<float> read_confidence(const Pass& pass, int row) const override;
  void add_outputs(std::span<const Token> tokens) override { model_.add_outputs(tokens); }
  void remove_added_outputs() override { model_.remove_added_outputs(); }

  SequenceId begin(CacheScope scope) override;
  void end(SequenceId sequence) override { target_.backend.end(sequence); }
  int reuse_prefix(SequenceId sequence, std::span<const Token> tokens) override {
    return target_.backend.reuse_prefix(sequence, tokens);
  }
  int free_pages() const override { return target_.backend.free_pages(); }
  int cached_pages() const override { return target_.backend.cached_pages(); }
  int pages_wanted(SequenceId sequence, int n_rows, int n_committed) const override {
    return target_.backend.pages_wanted(sequence, n_rows, n_committed);
  }
  SequenceId fork(SequenceId sequence) override { return target_.backend.fork(sequence); }
  void commit(SequenceId sequence, std::span<const SlotId> path) override {
    target_.backend.commit(sequence, path);
  }
  void discard(SequenceId sequence) override { target_.backend.discard(sequence); }
  void truncate(SequenceId sequence, int length) override {
    target_.backend.truncate(sequence, length);
  }
  int committed(SequenceId sequence) const override { return target_.backend.committed(sequence); }
  int free_slots(SequenceId sequence) const override {
    return target_.backend.free_slots(sequence);
  }

 private:
  struct Sequence {
    bool is_used = false;
    // Whether those of the last committed position are in own_features(), as they are unless it is
    // the last of its page or a cut has lost them.
    bool has_features = false;
    // Where the keys and values of the next position lie, which the target alone has to compute
    // again.
    struct Place {
      int page, offset;
    };
    std::optional<Place> completed = {};
  };

  Sequence& of(SequenceId sequence) { return sequences_[sequence.value]; }
  const Sequence& of(SequenceId sequence) const { return sequences_[sequence.value]; }
  std::span<float> page_features(int page);
  std::span<float> own_features(SequenceId sequence);
  std::span<const float> kept_features(SequenceId sequence);
  void read_features(int row, std::span<float> out) const;
  void set_state(const Row& row, ForwardRow& prepared);
  void set_blocks(std::span<const Row> rows, std::span<ForwardRow> prepared) const;
  SlotId slot_of(std::span<const Row> rows, std::size_t row, std::span<const SlotId> slots,
                 const LayerSet& layers);

  const Target target_;
  LoadedModel model_;
  const int first_layer_;  // the number that its first layer has in the cache
  const std::vector<int> taps_;
  const std::size_t tap_width_, n_features_;  // of those that are kept
  std::vector<int> all_layers_;               // of those in the cache
  // Allocated at the beginning, so that no commit has to.
  HugeBuffer page_features_;         // [pages][n_features]; untouched ones take no memory
  std::vector<float> own_features_;  // [sequences][n_features]
  const std::vector<float> no_features_;
  std::vector<Sequence> sequences_;
  struct RowOfPass {
    SequenceId sequence;
    SlotId slot;
  };
  std::vector<RowOfPass> rows_;  // of the target's last pass; empty: its features are gone
  int first_tap_ = 0;
};

}  // namespace outrider
