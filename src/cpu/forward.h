// One pass of a model over some rows, by all threads: the program behind Backend::forward.

#pragma once

#include <atomic>
#include <optional>
#include <span>
#include <vector>

#include "base/huge_buffer.h"
#include "base/threads.h"
#include "cpu/activations.h"
#include "cpu/cache_memory.h"
#include "cpu/kernels/kernels.h"
#include "cpu/paged_attention.h"
#include "cpu/pass_timer.h"
#include "cpu/rope_tables.h"
#include "cpu/weights.h"
#include "model/backend.h"

namespace outrider {

// A row as the forward needs it: what it may see, and where its own keys and values go.
struct ForwardRow {
  Token token = 0;
  RowContext context;  // its own place is the end of context.path
  bool wants_logits = false;
  // Of a head (EagleInput), what its stream begins with: its own state, [embedding], or features,
  // [taps] of [tap_width]. Of BlockInput: features of rows of the text, which all rows of a pass
  // are or none; the memory of a row that completes another, which may be empty.
  std::span<const float> state = {};
  std::vector<std::span<const float>> features = {};
  int medusa_head = 0;  // of MedusaHeads: which; features are the target's state
  // Of BlockInput: the row of the last pass over blocks that this one completes, which all rows of
  // a pass do or none.
  std::optional<int> completes = {};
};

class Forward {
 public:
  // All references must outlive this object. Throws Error or std::bad_alloc if there is not enough
  // memory.
  Forward(const ModelSpec& spec, const Weights& weights, CacheMemory& memory,
          const Kernels& kernels, ThreadTeam& team, const LoadOptions& options);

  // At most batch_rows rows, of MedusaHeads ordered by head and all with logits. layers: to run,
  // ascending. taps: what is kept (kEmbeddingTap in spec.h). prefetch: of weights, where the
  // products have a choice; no result depends on it. What depends on the rows is allocated before
  // the team starts: throws Error or std::bad_alloc if that cannot be had.
  void run(std::span<const ForwardRow> rows, std::span<const int> layers, std::span<const int> taps,
           PrefetchPattern prefetch, PassTimer& timer);

  // Of the last run, for row `row`: its logits, which it must have wanted, [outputs of the head];
  // what taps[tap] names, [embedding].
  std::span<const float> logits(int row) const;
  std::span<const float> tap(int tap, int row) const;
  // BlockInput::has_confidence: of a row that completes another, or, without a Markov head, of one
  // that wants logits.
  std::optional<float> confidence(int row) const;

  // Working memory for the largest batch and tables for every position; without logits.
  static std::size_t working_bytes(const ModelSpec& spec, const LoadOptions& options);

 private:
  class Worker;  // one thread's part of a run

  // Which of the rows that wanted logits, or, if it is one of them, that feature_fusion is for.
  std::size_t logit_index(int row) const;
  std::optional<std::size_t> fused_index(int row) const;

  const ModelSpec& spec_;
  const Weights& weights_;
  CacheMemory& memory_;
  const Kernels& kernels_;
  ThreadTeam& team_;
  const std::size_t batch_rows_;
  const RopeTables ropes_;

  HugeBuffer activations_buffer_;
  Activations x_;
  // How many columns of x_.gated are done, of each group that is quantized together: [chunks of
  // rows][groups].
  std::vector<std::atomic<std::size_t>> gated_columns_;
  std::vector<ThreadMemory> thread_memories_;
  PagedAttention attention_;

  std::vector<int> logit_rows_, fused_rows_;  // of the last run
  std::vector<float> logits_;                 // [logit_rows][padded vocabulary]
  std::vector<float> taps_;                   // [taps][rows][embedding]
  std::size_t n_rows_ = 0;

  // Of the last pass over blocks that tokens may complete.
  std::vector<int> block_rows_;      // that wanted logits
  std::vector<float> block_logits_;  // [block_rows][padded vocabulary]
  std::vector<float> block_states_;  // after the output norm: [block_rows][embedding]
  std::vector<float> confidences_;   // of the last pass that has some: [rows]
};

}  // namespace outrider
