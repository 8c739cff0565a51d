// One pass of a model over some rows, by all threads: the program behind Backend::forward.

#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <span>
#include <vector>

#include "base/huge_buffer.h"
#include "base/threads.h"
#include "cpu/cache_memory.h"
#include "cpu/kernels/kernels.h"
#include "cpu/paged_attention.h"
#include "cpu/pass_timer.h"
#include "cpu/weights.h"
#include "model/backend.h"
#include "numerics/rope.h"

namespace outrider {

// A row as the forward needs it: what it may see, and where its own keys and values go.
struct ForwardRow {
  Token token = 0;
  RowContext context;  // its own place is the end of context.path
  bool wants_logits = false;
};

class Forward {
 public:
  // All references must outlive this object.
  Forward(const ModelSpec& spec, const Weights& weights, CacheMemory& memory,
          const Kernels& kernels, ThreadTeam& team, const LoadOptions& options);

  // At most batch_rows rows. layers: to run, ascending. taps: layers whose output is kept.
  void run(std::span<const ForwardRow> rows, std::span<const int> layers, std::span<const int> taps,
           PassTimer& timer);

  // Of the last run: the logits of row `row`, which must have wanted some, [outputs of the head]; a
  // tap of it, [embedding].
  std::span<const float> logits(int row) const;
  std::span<const float> tap(int tap, int row) const;

  // Working memory for the largest batch and tables for every position, logits aside.
  static std::size_t working_bytes(const ModelSpec& spec, const LoadOptions& options);

 private:
  class Worker;  // one thread's part of a run

  // Activations in int8, rows at one stride for the widest matrix.
  struct Quantized {
    std::size_t group = 0, columns = 0;
    std::vector<std::int8_t> q;
    std::vector<float> d;
    std::vector<std::int16_t> sums16;

    void resize(std::size_t group_size, std::size_t rows, std::size_t max_columns);
    QuantizedRow row(std::size_t index, std::size_t column);  // from a group's first column on
    ProductInput::Quantized view() const;
  };
  struct Forms {
    Quantized groups_of_32, groups_of_256;

    void resize(std::size_t rows, std::size_t max_columns);
    ProductInput input(MatrixView<const float> floats) const;
  };

  // What one thread needs for itself.
  struct Workroom {
    // Rows for products of two types at a time: gate and up, or q, k and v, may differ.
    struct Form {
      TensorType type = TensorType::f32;
      ArrangedRows rows;
    };
    std::array<Form, 2> forms;
    std::size_t n_forms = 0;  // of the products being shared out
    std::vector<float> up;    // a part of up's outputs, for a chunk of rows
  };

  std::size_t logit_index(int row) const;  // which of the rows that wanted logits

  const ModelSpec& spec_;
  const Weights& weights_;
  CacheMemory& memory_;
  const Kernels& kernels_;
  ThreadTeam& team_;
  std::vector<std::unique_ptr<RopeTable>> ropes_;
  std::vector<const RopeTable*> rope_of_;  // [n_layers], null without attention

  HugeBuffer buffers_;
  // [batch_rows][width, padded to whole panels]
  MatrixView<float> stream_;     // the residual stream, [embedding]
  MatrixView<float> normed_;     // input of a body or of the head, [embedding]
  MatrixView<float> q_, k_, v_;  // [n_heads * head_dim], [n_kv_heads * head_dim] twice
  MatrixView<float> attended_;   // [n_heads * head_dim]
  MatrixView<float> gate_;       // the gated activation, [width]
  MatrixView<float> projected_;  // output of a body, [embedding]
  Forms forms_;                  // of normed_ or attended_, never of both at a time
  Forms gated_forms_;  // of gate_; a thread writes its part while others still read forms_
  // Columns of gate_ that are done, of each group that is quantized at once: [chunks of rows][groups]
  std::vector<std::atomic<std::size_t>> gate_columns_;
  std::vector<Workroom> workrooms_;  // [threads]
  PagedAttention attention_;

  std::vector<int> logit_rows_;  // rows of the last run that wanted logits
  std::vector<float> logits_;    // [logit_rows][padded vocabulary]
  std::vector<float> taps_;      // [taps][rows][embedding]
  std::size_t n_rows_ = 0;
};

}  // namespace outrider
