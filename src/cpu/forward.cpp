#include "cpu/forward.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "cpu/product_pieces.h"

namespace outrider {
namespace {

std::size_t padded(std::size_t outputs) {
  return (outputs + kPanel - 1) / kPanel * kPanel;
}

// The widest rows that any layer asks for.
struct Widths {
  explicit Widths(const ModelSpec& spec) : embedding(spec.embedding) {
    for (const LayerSpec& layer : spec.layers) {
      for (const Operation& operation : layer.operations) {
        if (const auto* attention = std::get_if<Attention>(&operation.body)) {
          heads =
              std::max(heads, static_cast<std::size_t>(attention->n_heads) * attention->head_dim);
          kv_heads = std::max(
              kv_heads, static_cast<std::size_t>(attention->n_kv_heads) * attention->head_dim);
        } else {
          mlp = std::max(mlp, static_cast<std::size_t>(std::get<Mlp>(operation.body).width));
        }
      }
    }
  }

  // Floats of a row in all buffers together.
  std::size_t floats() const {
    return 3 * padded(embedding) + 2 * padded(heads) + 2 * padded(kv_heads) + padded(mlp);
  }

  std::size_t embedding, heads = 0, kv_heads = 0, mlp = 0;
};

bool same_table(const Rope& a, const Rope& b) {
  return a.dims == b.dims && a.base == b.base && a.position_scale == b.position_scale;
}

// The ropes of all layers, those with one table once.
std::vector<Rope> distinct_ropes(const ModelSpec& spec) {
  std::vector<Rope> ropes;
  for (const LayerSpec& layer : spec.layers) {
    for (const Operation& operation : layer.operations) {
      const auto* attention = std::get_if<Attention>(&operation.body);
      if (attention == nullptr) continue;
      const auto same = [&](const Rope& rope) { return same_table(rope, attention->rope); };
      if (std::none_of(ropes.begin(), ropes.end(), same)) ropes.push_back(attention->rope);
    }
  }
  return ropes;
}

// Columns of a row that are quantized together for a matrix of this type.
std::size_t group_columns(TensorType type) {
  switch (input_kind(type)) {
    case InputKind::floats: return 1;
    case InputKind::groups_of_32: return 32;
    case InputKind::groups_of_256: return 256;
  }
  return 1;
}

}  // namespace

void Forward::Quantized::resize(std::size_t group_size, std::size_t rows, std::size_t max_columns) {
  group = group_size;
  columns = (max_columns + group - 1) / group * group;
  q.resize(rows * columns);
  d.resize(rows * columns / group);
  sums16.resize(rows * columns / 16);
}

QuantizedRow Forward::Quantized::row(std::size_t index, std::size_t column) {
  const std::size_t at = index * columns + column;
  return {&q[at], &d[at / group], &sums16[at / 16]};
}

ProductInput::Quantized Forward::Quantized::view() const {
  return {q.data(), d.data(), sums16.data(), columns, columns / group, columns / 16};
}

void Forward::Forms::resize(std::size_t rows, std::size_t max_columns) {
  groups_of_32.resize(32, rows, max_columns);
  groups_of_256.resize(256, rows, max_columns);
}

ProductInput Forward::Forms::input(MatrixView<const float> floats) const {
  return {floats, groups_of_32.view(), groups_of_256.view()};
}

std::size_t Forward::working_bytes(const ModelSpec& spec, const LoadOptions& options) {
  const Widths widths(spec);
  const std::size_t columns = std::max(widths.embedding, widths.heads) + widths.mlp;
  const std::size_t quantized = columns * (2 * (1 + 2.0 / 16) + 4.0 / 32 + 4.0 / 256);
  std::size_t tables = 0;
  for (const Rope& rope : distinct_ropes(spec)) {
    tables += static_cast<std::size_t>(options.context) * rope.dims * sizeof(float);
  }
  return options.batch_rows * (widths.floats() * sizeof(float) + quantized) +
         options.n_threads * 2 * kChunkBytes + tables;
}

Forward::Forward(const ModelSpec& spec, const Weights& weights, CacheMemory& memory,
                 const Kernels& kernels, ThreadTeam& team, const LoadOptions& options)
    : spec_(spec),
      weights_(weights),
      memory_(memory),
      kernels_(kernels),
      team_(team),
      attention_(spec, kernels, memory, team.size()) {
  const Widths widths(spec);
  const std::size_t rows = options.batch_rows;
  buffers_ = HugeBuffer(rows * widths.floats() * sizeof(float));
  float* next = buffers_.as<float>().data();
  const auto buffer = [&](std::size_t width) {
    const MatrixView<float> view(next, rows, width, padded(width));
    next += rows * padded(width);
    return view;
  };
  stream_ = buffer(widths.embedding);
  normed_ = buffer(widths.embedding);
  projected_ = buffer(widths.embedding);
  q_ = buffer(widths.heads);
  attended_ = buffer(widths.heads);
  k_ = buffer(widths.kv_heads);
  v_ = buffer(widths.kv_heads);
  gate_ = buffer(widths.mlp);
  forms_.resize(rows, std::max(widths.embedding, widths.heads));
  gated_forms_.resize(rows, widths.mlp);
  gate_columns_ =
      std::vector<std::atomic<std::size_t>>((rows / kChunkGrain + 1) * (widths.mlp / 256 + 1));
  workrooms_.resize(static_cast<std::size_t>(team.size()));

  const std::vector<Rope> ropes = distinct_ropes(spec);
  for (const Rope& rope : ropes) {
    ropes_.push_back(
        std::make_unique<RopeTable>(options.context, rope.dims, rope.base, rope.position_scale));
  }
  for (const LayerSpec& layer : spec.layers) {
    rope_of_.push_back(nullptr);
    for (const Operation& operation : layer.operations) {
      const auto* attention = std::get_if<Attention>(&operation.body);
      if (attention == nullptr) continue;
      const auto table = std::find_if(ropes.begin(), ropes.end(), [&](const Rope& rope) {
        return same_table(rope, attention->rope);
      });
      rope_of_.back() = ropes_[table - ropes.begin()].get();
    }
  }
}

// A pass alternates between products, divided by outputs, and what stands between them, divided by
// rows. A barrier stands wherever the division changes; all that one thread can do on outputs of
// its own happens before it.
class Forward::Worker {
 public:
  Worker(Forward& forward, int thread, std::span<const ForwardRow> rows, std::span<const int> taps,
         PassTimer& timer)
      : f_(forward),
        kernels_(forward.kernels_.vectors),
        thread_(thread),
        rows_(rows),
        taps_(taps),
        timer_(timer),
        own_(share(rows.size(), thread, forward.team_.size())),
        room_(forward.workrooms_[static_cast<std::size_t>(thread)]) {}

  void run(std::span<const int> layers) {
    // The caller's thread prepared the pass; the others were not awake yet.
    thread_ == 0 ? done(PassPart::plan) : timer_.waited(thread_, PassPart::plan);
    for (const int layer : layers) {
      for (const Operation& operation : f_.spec_.layers[layer].operations) {
        if (const auto* attention = std::get_if<Attention>(&operation.body)) {
          run_attention(operation, *attention, layer);
          behind_ = PassPart::attention_out;
        } else {
          run_mlp(operation, std::get<Mlp>(operation.body), layer);
          behind_ = PassPart::down;
        }
        last_ = &operation;
        last_layer_ = layer;
      }
    }
    run_head();
  }

 private:
  // This thread's part of `part` is done; with a barrier, everybody's.
  void done(PassPart part) { timer_.worked(thread_, part); }
  void barrier(PassPart part) {
    done(part);
    f_.team_.barrier(soon_);
    timer_.waited(thread_, part);
  }

  // After everybody's part of `before`, f(row) for every row, before anybody goes on. A single row
  // is left to the thread that comes last: there is nothing to share, and a barrier is saved.
  template <typename F>
  void for_each_row(PassPart before, PassPart part, const F& f) {
    if (rows_.size() == 1) {
      done(before);
      f_.team_.barrier(
          [&] {
            f(0);
            done(part);
          },
          soon_);
      timer_.waited(thread_, before);
    } else {
      barrier(before);
      for (std::size_t row = own_.begin; row < own_.end; ++row) f(row);
      barrier(part);
    }
  }

  // The panels that this thread will read next, of which waiting brings some closer.
  void expect(const PackedMatrix& weights, Range panels) {
    constexpr std::size_t kMost = 256 << 10;
    soon_ = {weights.panel(panels.begin),
             std::min(kMost, (panels.end - panels.begin) * weights.panel_bytes)};
  }

  struct Heads {
    const PackedMatrix* weights;
    MatrixView<float> out;
  };

  void run_attention(const Operation& operation, const Attention& attention, int layer) {
    const PackedMatrix& q = matrix(Role::attention_q, layer);
    const PackedMatrix& k = matrix(Role::attention_k, layer);
    const PackedMatrix& v = matrix(Role::attention_v, layer);
    const PackedMatrix& output = matrix(Role::attention_output, layer);
    // By kind.
    const std::array<Heads, 3> heads = {{{&q, f_.q_}, {&k, f_.k_}, {&v, f_.v_}}};
    const HeadPieces pieces(attention.n_heads, attention.n_kv_heads, attention.head_dim);

    const std::size_t first = share(pieces.size(), thread_, f_.team_.size()).begin;
    if (first < pieces.size()) {
      const HeadPieces::Piece piece = pieces[first];
      const PackedMatrix& weights = *heads[static_cast<std::size_t>(piece.kind)].weights;
      expect(weights, {piece.panels.begin, weights.panels()});
    }
    enter(operation, layer, PassPart::attention_in, {&q, &k, &v});
    const ProductInput normed = f_.forms_.input(f_.normed_);
    share_out(q, rows_.size(), pieces.size(), 1, [&](Range rows, Range index) {
      const HeadPieces::Piece piece = pieces[index.begin];
      const auto& [weights, out] = heads[static_cast<std::size_t>(piece.kind)];
      multiply(*weights, arranged(*weights, normed, rows), piece.panels,
               out.from(rows.begin, piece.panels.begin * kPanel));
      done(PassPart::qkv);
      for (std::size_t row = rows.begin; row < rows.end; ++row)
        finish_heads(piece, out[row], row, attention, layer);
      done(PassPart::heads);
    });
    expect(output, share(output.panels(), thread_, f_.team_.size()));
    barrier(PassPart::heads);
    attend_all(attention, layer);
    for_each_row(PassPart::attention, PassPart::attention_out_in, [&](std::size_t row) {
      quantize(f_.attended_[row], row, {0, output.columns}, f_.forms_, {&output});
    });
    project(output, f_.forms_.input(f_.attended_), rows_.size(), f_.projected_);
  }

  void run_mlp(const Operation& operation, const Mlp& mlp, int layer) {
    const PackedMatrix& gate = matrix(Role::mlp_gate, layer);
    const PackedMatrix& up = matrix(Role::mlp_up, layer);
    const PackedMatrix& down = matrix(Role::mlp_down, layer);

    expect(gate, share(gate.panels(), thread_, f_.team_.size(), kPanelsAPart));
    enter(operation, layer, PassPart::mlp_in, {&gate, &up});
    const ProductInput normed = f_.forms_.input(f_.normed_);
    const auto activate =
        mlp.activation == Activation::silu ? kernels_.silu_times : kernels_.gelu_tanh_times;
    constexpr std::size_t kMostColumns = kMostParts * kPanelsAPart * kPanel;
    room_.up.resize(std::min(rows_.size(), rows_a_chunk(gate)) * kMostColumns);

    const auto multiply_and_activate = [&](Range rows, Range run) {
      const Range panels = {run.begin * kPanelsAPart,
                            std::min(run.end * kPanelsAPart, gate.panels())};
      const Range columns = {panels.begin * kPanel, std::min(panels.end * kPanel, gate.outputs)};
      const std::size_t n = columns.end - columns.begin;
      const MatrixView<float> up_part(room_.up.data(), rows.end - rows.begin, n, kMostColumns);
      multiply(gate, arranged(gate, normed, rows), panels,
               f_.gate_.from(rows.begin, columns.begin));
      multiply(up, arranged(up, normed, rows), panels, up_part);
      done(PassPart::gate_up);
      for (std::size_t row = rows.begin; row < rows.end; ++row) {
        const std::span<float> gated = f_.gate_[row].subspan(columns.begin, n);
        activate(gated, up_part[row - rows.begin], gated);
      }
      const Range whole = finished_groups(rows, columns, down);
      for (std::size_t row = rows.begin; row < rows.end && whole.begin < whole.end; ++row)
        quantize(f_.gate_[row], row, whole, f_.gated_forms_, {&down});
      done(PassPart::activation);
    };
    share_out(gate, rows_.size(), (gate.panels() + kPanelsAPart - 1) / kPanelsAPart, kMostParts,
              multiply_and_activate);
    expect(down, share(down.panels(), thread_, f_.team_.size()));
    barrier(PassPart::activation);
    project(down, f_.gated_forms_.input(f_.gate_), rows_.size(), f_.projected_);
  }

  // Brings every row to where `operation` begins, normed and in the forms that `readers` ask for.
  void enter(const Operation& operation, int layer, PassPart part,
             std::initializer_list<const PackedMatrix*> readers) {
    for_each_row(behind_, part, [&](std::size_t row) {
      finish_stream(row);
      norm(operation.pre_norm, layer, row);
      quantize(f_.normed_[row], row, {0, f_.stream_.columns()}, f_.forms_, readers);
    });
  }

  // The row of the stream with all that ran so far in it.
  void finish_stream(std::size_t row) {
    const std::span<float> stream = f_.stream_[row];
    if (last_ == nullptr) {
      f_.weights_.embed(rows_[row].token, stream);
      if (f_.spec_.embedding_scale != 1) kernels_.scale(f_.spec_.embedding_scale, stream);
      return;
    }
    const std::span<float> projected = f_.projected_[row];
    if (last_->post_norm) {
      kernels_.rms_norm(projected, f_.weights_.vector(*last_->post_norm, last_layer_),
                        f_.spec_.norm_eps, projected);
    }
    kernels_.add(projected, stream);
    if (last_ != &f_.spec_.layers[last_layer_].operations.back()) return;
    for (std::size_t tap = 0; tap < taps_.size(); ++tap) {
      if (taps_[tap] != last_layer_) continue;
      std::copy(stream.begin(), stream.end(),
                &f_.taps_[(tap * rows_.size() + row) * f_.spec_.embedding]);
    }
  }

  // A row of the stream into normed_.
  void norm(std::optional<Role> role, int layer, std::size_t row) {
    if (role) {
      kernels_.rms_norm(f_.stream_[row], f_.weights_.vector(*role, layer), f_.spec_.norm_eps,
                        f_.normed_[row]);
    } else {
      std::copy(f_.stream_[row].begin(), f_.stream_[row].end(), f_.normed_[row].begin());
    }
  }

  // Columns, whole groups of them, of x, which is row `row`, in the forms that the matrices ask
  // for.
  void quantize(std::span<const float> x, std::size_t row, Range columns, Forms& forms,
                std::initializer_list<const PackedMatrix*> readers) {
    bool groups_of_32 = false, groups_of_256 = false;
    for (const PackedMatrix* reader : readers) {
      groups_of_32 |= input_kind(reader->type) == InputKind::groups_of_32;
      groups_of_256 |= input_kind(reader->type) == InputKind::groups_of_256;
    }
    const auto into = [&](Quantized& quantized) {
      f_.kernels_.products.quantize(x.subspan(columns.begin, columns.end - columns.begin),
                                    quantized.group, quantized.row(row, columns.begin));
    };
    if (groups_of_32) into(forms.groups_of_32);
    if (groups_of_256) into(forms.groups_of_256);
  }

  // Rows of the input as products with `weights` read them. All products that are shared out
  // together have one input.
  const ArrangedRows& arranged(const PackedMatrix& weights, const ProductInput& input, Range rows) {
    const auto end = room_.forms.begin() + room_.n_forms;
    auto form = std::find_if(room_.forms.begin(), end,
                             [&](const Workroom::Form& each) { return each.type == weights.type; });
    if (form != end && form->rows.rows.begin == rows.begin) return form->rows;
    if (form == end && room_.n_forms < room_.forms.size()) ++room_.n_forms;
    if (form == room_.forms.end()) --form;
    form->type = weights.type;
    f_.kernels_.products.arrange(weights, input, rows, form->rows);
    return form->rows;
  }
  void multiply(const PackedMatrix& weights, const ArrangedRows& rows, Range panels,
                MatrixView<float> out) {
    f_.kernels_.products.product(weights, rows, panels, out);
  }

  // Calls f(rows, run) for every chunk of rows and runs of at most `most` items, which together are
  // [0, n_items), each on one thread. weights: what is multiplied, or the first of these.
  template <typename F>
  void share_out(const PackedMatrix& weights, std::size_t n_rows, std::size_t n_items,
                 std::size_t most, const F& f) {
    const std::size_t chunks = n_chunks(n_rows, weights);
    room_.n_forms = 0;
    f_.team_.share_out(thread_, chunks * n_items, most, [&](Range run) {
      while (run.begin < run.end) {
        const std::size_t chunk = run.begin / n_items, before = chunk * n_items;
        const std::size_t end = std::min(run.end, before + n_items);
        f(share(n_rows, chunk, chunks, kChunkGrain), Range{run.begin - before, end - before});
        run.begin = end;
      }
    });
  }

  // out = weights times the first rows of the input; then finish(rows, columns) on what is
  // computed.
  template <typename F>
  void project(const PackedMatrix& weights, const ProductInput& input, std::size_t n_rows,
               MatrixView<float> out, const F& finish) {
    const std::size_t most = panels_a_piece(weights);
    share_out(weights, n_rows, weights.panels(), most, [&](Range rows, Range panels) {
      const Range columns = {panels.begin * kPanel, std::min(panels.end * kPanel, weights.outputs)};
      multiply(weights, arranged(weights, input, rows), panels,
               out.from(rows.begin, columns.begin));
      finish(rows, columns);
    });
  }
  void project(const PackedMatrix& weights, const ProductInput& input, std::size_t n_rows,
               MatrixView<float> out) {
    project(weights, input, n_rows, out, [](Range, Range) {});
  }

  // This thread activated some columns of a chunk of rows: the groups, as `down` wants them
  // quantized, that are complete now.
  Range finished_groups(Range rows, Range columns, const PackedMatrix& down) {
    // They are one after another, for no more than two are touched.
    static_assert(kMostParts * kPanelsAPart * kPanel <= 256);
    const std::size_t group = group_columns(down.type);
    if (kPanelsAPart * kPanel % group == 0) return columns;
    const std::size_t n_groups = down.columns / group;
    Range finished;
    for (std::size_t i = columns.begin / group; i * group < columns.end; ++i) {
      const std::size_t here =
          std::min(columns.end, (i + 1) * group) - std::max(columns.begin, i * group);
      std::atomic<std::size_t>& done = f_.gate_columns_[rows.begin / kChunkGrain * n_groups + i];
      if (done.fetch_add(here, std::memory_order_acq_rel) + here < group) continue;
      done.store(0, std::memory_order_relaxed);
      if (finished.end == 0) finished.begin = i * group;
      finished.end = (i + 1) * group;
    }
    return finished;
  }

  // Bias, head norms and rope of some heads of one row; keys and values go to their place. all:
  // the row's heads of their kind.
  void finish_heads(const HeadPieces::Piece& piece, std::span<float> all, std::size_t row,
                    const Attention& attention, int layer) {
    const std::size_t head_dim = attention.head_dim;
    const RowContext& context = rows_[row].context;
    CacheRun place = context.path.back();
    place.offset += place.count - 1;
    const auto bias = [&](Role role, std::size_t head, std::span<float> x) {
      if (!attention.has_bias) return;
      kernels_.add(f_.weights_.vector(role, layer).subspan(head * head_dim, head_dim), x);
    };
    const auto norm_and_turn = [&](Role norm_role, std::span<float> x) {
      if (attention.has_qk_norm) {
        kernels_.rms_norm(x, f_.weights_.vector(norm_role, layer), f_.spec_.norm_eps, x);
      }
      const auto turn = attention.rope.pairing == RopePairing::halves ? kernels_.rope_halves
                                                                      : kernels_.rope_adjacent;
      turn(f_.rope_of_[layer]->cos(context.position), f_.rope_of_[layer]->sin(context.position), x);
    };
    for (std::size_t head = piece.heads.begin; head < piece.heads.end; ++head) {
      const std::span<float> x = all.subspan(head * head_dim, head_dim);
      switch (piece.kind) {
        case HeadPieces::Kind::query:
          bias(Role::attention_q_bias, head, x);
          norm_and_turn(Role::attention_q_norm, x);
          break;
        case HeadPieces::Kind::key:
          bias(Role::attention_k_bias, head, x);
          norm_and_turn(Role::attention_k_norm, x);
          f_.memory_.store_key(f_.kernels_.attention, place, layer, static_cast<int>(head), x);
          break;
        case HeadPieces::Kind::value:
          bias(Role::attention_v_bias, head, x);
          f_.memory_.store_value(f_.kernels_.attention, place, layer, static_cast<int>(head), x);
          break;
      }
    }
  }

  void attend_all(const Attention& attention, int layer) {
    f_.attention_.attend(attention, layer, thread_, f_.q_, f_.attended_);
  }

  // Logits of the rows that want them, packed together.
  void run_head() {
    const PackedMatrix& head = f_.weights_.head();
    const std::size_t n = f_.logit_rows_.size();
    expect(head, share(head.panels(), thread_, f_.team_.size()));
    for_each_row(behind_, PassPart::head_in, [&](std::size_t row) {
      finish_stream(row);
      if (!rows_[row].wants_logits) return;
      const std::size_t i = f_.logit_index(static_cast<int>(row));
      kernels_.rms_norm(f_.stream_[row], f_.weights_.vector(Role::output_norm), f_.spec_.norm_eps,
                        f_.normed_[i]);
      quantize(f_.normed_[i], i, {0, f_.normed_.columns()}, f_.forms_, {&head});
    });
    if (n == 0) return;
    const MatrixView<float> logits(f_.logits_.data(), n, padded(head.outputs));
    project(head, f_.forms_.input(f_.normed_), n, logits, [&](Range rows, Range columns) {
      for (std::size_t i = rows.begin; i < rows.end; ++i) {
        const std::span<float> part = logits[i].subspan(columns.begin, columns.end - columns.begin);
        if (f_.spec_.logit_softcap)
          kernels_.softcap(static_cast<float>(*f_.spec_.logit_softcap), part);
        for (float& logit : part) logit += 0.0f;  // a zero is positive from here on
      }
    });
    done(PassPart::head);
  }

  const PackedMatrix& matrix(Role role, int layer) const { return f_.weights_.matrix(role, layer); }

  Forward& f_;
  const VectorKernels& kernels_;
  const int thread_;
  const std::span<const ForwardRow> rows_;
  const std::span<const int> taps_;
  PassTimer& timer_;
  const Range own_;  // rows
  Workroom& room_;
  std::span<const std::byte> soon_;  // the weights that this thread will read next
  // The operation that ran last, whose output is still to be added to the stream, its layer and
  // its last part.
  const Operation* last_ = nullptr;
  int last_layer_ = 0;
  PassPart behind_ = PassPart::plan;
};

void Forward::run(std::span<const ForwardRow> rows, std::span<const int> layers,
                  std::span<const int> taps, PassTimer& timer) {
  CHECK(rows.size() <= stream_.rows());
  n_rows_ = rows.size();
  logit_rows_.clear();
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (rows[row].wants_logits) logit_rows_.push_back(static_cast<int>(row));
  }
  logits_.resize(std::max(logits_.size(), logit_rows_.size() * padded(weights_.head().outputs)));
  taps_.resize(taps.size() * rows.size() * spec_.embedding);
  std::vector<const RowContext*> contexts;
  for (const ForwardRow& row : rows) contexts.push_back(&row.context);
  attention_.begin_pass(std::move(contexts));
  team_.run([&](int thread) { Worker(*this, thread, rows, taps, timer).run(layers); });
}

std::size_t Forward::logit_index(int row) const {
  const auto at = std::lower_bound(logit_rows_.begin(), logit_rows_.end(), row);
  CHECK(at != logit_rows_.end() && *at == row);
  return static_cast<std::size_t>(at - logit_rows_.begin());
}

std::span<const float> Forward::logits(int row) const {
  return {&logits_[logit_index(row) * padded(weights_.head().outputs)], weights_.head().outputs};
}

std::span<const float> Forward::tap(int tap, int row) const {
  CHECK(tap >= 0 && row >= 0 && static_cast<std::size_t>(row) < n_rows_);
  CHECK((tap * n_rows_ + row + 1) * spec_.embedding <= taps_.size());
  return {&taps_[(tap * n_rows_ + row) * spec_.embedding],
          static_cast<std::size_t>(spec_.embedding)};
}

}  // namespace outrider
