#include "cpu/forward.h"

#include <algorithm>

#include "base/error.h"

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
    return 3 * padded(embedding) + 2 * padded(heads) + 2 * padded(kv_heads) + 2 * padded(mlp);
  }
  std::size_t widest() const { return std::max({embedding, heads, mlp}); }

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

}  // namespace

void Forward::Quantized::resize(std::size_t group_size, std::size_t rows, std::size_t max_columns) {
  group = group_size;
  columns = (max_columns + group - 1) / group * group;
  q.resize(rows * columns);
  d.resize(rows * columns / group);
  sums16.resize(rows * columns / 16);
}

QuantizedRow Forward::Quantized::row(std::size_t index) {
  return {&q[index * columns], &d[index * columns / group], &sums16[index * columns / 16]};
}

ProductInput::Quantized Forward::Quantized::view() const {
  return {q.data(), d.data(), sums16.data(), columns, columns / group, columns / 16};
}

std::size_t Forward::working_bytes(const ModelSpec& spec, const LoadOptions& options) {
  const Widths widths(spec);
  const std::size_t quantized =
      2 * widths.widest() * (1 + 2.0 / 16) + widths.widest() * (4.0 / 32 + 4.0 / 256);
  std::size_t tables = 0;
  for (const Rope& rope : distinct_ropes(spec)) {
    tables += static_cast<std::size_t>(options.context) * rope.dims * sizeof(float);
  }
  return options.batch_rows * (widths.floats() * sizeof(float) + quantized) + tables;
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
  up_ = buffer(widths.mlp);
  groups_of_32_.resize(32, rows, widths.widest());
  groups_of_256_.resize(256, rows, widths.widest());

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

// Phases alternate between two divisions of the work: by rows (norms, quantization, rope,
// residuals) and by outputs (products). A barrier stands wherever the division changes.
class Forward::Worker {
 public:
  Worker(Forward& forward, int thread, std::span<const ForwardRow> rows, PassTimer& timer)
      : f_(forward),
        kernels_(forward.kernels_.vectors),
        thread_(thread),
        rows_(rows),
        timer_(timer),
        own_(share(rows.size(), thread, forward.team_.size())) {}

  void run(std::span<const int> layers, std::span<const int> taps) {
    // The caller's thread prepared the pass; the others were not awake yet.
    thread_ == 0 ? done(PassPart::plan) : timer_.waited(thread_, PassPart::plan);
    embed();
    done(PassPart::embed);
    for (const int layer : layers) {
      for (const Operation& operation : f_.spec_.layers[layer].operations) {
        if (const auto* attention = std::get_if<Attention>(&operation.body)) {
          run_attention(operation, *attention, layer);
        } else {
          run_mlp(operation, std::get<Mlp>(operation.body), layer);
        }
      }
      keep_taps(layer, taps);
    }
    barrier(PassPart::residual);
    run_head();
  }

 private:
  // This thread's part of `part` is done; with a barrier, everybody's.
  void done(PassPart part) { timer_.worked(thread_, part); }
  void barrier(PassPart part) {
    done(part);
    f_.team_.barrier();
    timer_.waited(thread_, part);
  }

  void embed() {
    for (std::size_t row = own_.begin; row < own_.end; ++row) {
      f_.weights_.embed(rows_[row].token, f_.stream_[row]);
      if (f_.spec_.embedding_scale != 1) kernels_.scale(f_.spec_.embedding_scale, f_.stream_[row]);
    }
  }

  void run_attention(const Operation& operation, const Attention& attention, int layer) {
    const PackedMatrix& q = matrix(Role::attention_q, layer);
    const PackedMatrix& k = matrix(Role::attention_k, layer);
    const PackedMatrix& v = matrix(Role::attention_v, layer);
    const PackedMatrix& output = matrix(Role::attention_output, layer);

    norm(operation.pre_norm, layer);
    for (std::size_t row = own_.begin; row < own_.end; ++row)
      quantize(f_.normed_[row], row, {&q, &k, &v});
    barrier(PassPart::attention_in);
    project(f_.normed_, {{&q, f_.q_}, {&k, f_.k_}, {&v, f_.v_}});
    barrier(PassPart::qkv);
    for (std::size_t row = own_.begin; row < own_.end; ++row) finish_heads(row, attention, layer);
    barrier(PassPart::heads);
    attend_all(attention, layer);
    barrier(PassPart::attention);
    for (std::size_t row = own_.begin; row < own_.end; ++row)
      quantize(f_.attended_[row].first(output.columns), row, {&output});
    barrier(PassPart::attention_out_in);
    project(f_.attended_, {{&output, f_.projected_}});
    barrier(PassPart::attention_out);
    add_to_stream(operation.post_norm, layer);
  }

  void run_mlp(const Operation& operation, const Mlp& mlp, int layer) {
    const PackedMatrix& gate = matrix(Role::mlp_gate, layer);
    const PackedMatrix& up = matrix(Role::mlp_up, layer);
    const PackedMatrix& down = matrix(Role::mlp_down, layer);

    norm(operation.pre_norm, layer);
    for (std::size_t row = own_.begin; row < own_.end; ++row)
      quantize(f_.normed_[row], row, {&gate, &up});
    barrier(PassPart::mlp_in);
    // A thread takes the same outputs of both, so the activation needs no barrier.
    const Range panels = share(gate.panels(), thread_, f_.team_.size());
    product(gate, f_.normed_, panels, f_.gate_);
    product(up, f_.normed_, panels, f_.up_);
    done(PassPart::gate_up);
    const std::size_t begin = panels.begin * kPanel,
                      end = std::min(panels.end * kPanel, gate.outputs);
    const auto activate =
        mlp.activation == Activation::silu ? kernels_.silu_times : kernels_.gelu_tanh_times;
    for (std::size_t row = 0; row < rows_.size() && begin < end; ++row) {
      const std::span<float> gated = f_.gate_[row].subspan(begin, end - begin);
      activate(gated, f_.up_[row].subspan(begin, end - begin), gated);
    }
    barrier(PassPart::activation);
    for (std::size_t row = own_.begin; row < own_.end; ++row) {
      quantize(f_.gate_[row].first(down.columns), row, {&down});
    }
    barrier(PassPart::down_in);
    project(f_.gate_, {{&down, f_.projected_}});
    barrier(PassPart::down);
    add_to_stream(operation.post_norm, layer);
  }

  // Own rows of the stream into normed_.
  void norm(std::optional<Role> role, int layer) {
    for (std::size_t row = own_.begin; row < own_.end; ++row) {
      if (role) {
        kernels_.rms_norm(f_.stream_[row], f_.weights_.vector(*role, layer), f_.spec_.norm_eps,
                          f_.normed_[row]);
      } else {
        std::copy(f_.stream_[row].begin(), f_.stream_[row].end(), f_.normed_[row].begin());
      }
    }
  }

  // In the forms that the matrices ask for.
  void quantize(std::span<const float> x, std::size_t row,
                std::initializer_list<const PackedMatrix*> readers) {
    bool groups_of_32 = false, groups_of_256 = false;
    for (const PackedMatrix* reader : readers) {
      groups_of_32 |= input_kind(reader->type) == InputKind::groups_of_32;
      groups_of_256 |= input_kind(reader->type) == InputKind::groups_of_256;
    }
    const auto into = [&](Quantized& quantized) {
      f_.kernels_.products.quantize(x, quantized.group, quantized.row(row));
    };
    if (groups_of_32) into(f_.groups_of_32_);
    if (groups_of_256) into(f_.groups_of_256_);
  }

  void product(const PackedMatrix& weights, MatrixView<const float> input, Range panels,
               MatrixView<float> out) {
    product(weights, input, panels, out, rows_.size());
  }
  void product(const PackedMatrix& weights, MatrixView<const float> input, Range panels,
               MatrixView<float> out, std::size_t n_rows) {
    if (panels.begin == panels.end) return;
    f_.kernels_.products.product(weights,
                                 {input, f_.groups_of_32_.view(), f_.groups_of_256_.view()},
                                 {0, n_rows}, panels, out);
  }

  // Products with one input, their outputs divided as if they were one matrix.
  struct Projection {
    const PackedMatrix* weights;
    MatrixView<float> out;
  };
  void project(MatrixView<const float> input, std::initializer_list<Projection> projections) {
    std::size_t panels = 0;
    for (const Projection& projection : projections) panels += projection.weights->panels();
    const Range own = share(panels, thread_, f_.team_.size());
    std::size_t first = 0;
    for (const Projection& projection : projections) {
      const std::size_t n = projection.weights->panels();
      const std::size_t begin = std::clamp(own.begin, first, first + n) - first;
      const std::size_t end = std::clamp(own.end, first, first + n) - first;
      product(*projection.weights, input, {begin, end}, projection.out);
      first += n;
    }
  }

  // Bias, head norms and rope of one row, and its keys and values to their place.
  void finish_heads(std::size_t row, const Attention& attention, int layer) {
    const std::size_t head_dim = attention.head_dim;
    const RowContext& context = rows_[row].context;
    const std::span<float> q = f_.q_[row].first(attention.n_heads * head_dim);
    const std::span<float> k = f_.k_[row].first(attention.n_kv_heads * head_dim);
    const std::span<float> v = f_.v_[row].first(attention.n_kv_heads * head_dim);
    if (attention.has_bias) {
      kernels_.add(f_.weights_.vector(Role::attention_q_bias, layer), q);
      kernels_.add(f_.weights_.vector(Role::attention_k_bias, layer), k);
      kernels_.add(f_.weights_.vector(Role::attention_v_bias, layer), v);
    }
    const auto turn = attention.rope.pairing == RopePairing::halves ? kernels_.rope_halves
                                                                    : kernels_.rope_adjacent;
    const auto cos = f_.rope_of_[layer]->cos(context.position),
               sin = f_.rope_of_[layer]->sin(context.position);
    const auto finish = [&](std::span<float> heads, Role norm_role) {
      for (std::size_t at = 0; at < heads.size(); at += head_dim) {
        const std::span<float> head = heads.subspan(at, head_dim);
        if (attention.has_qk_norm) {
          kernels_.rms_norm(head, f_.weights_.vector(norm_role, layer), f_.spec_.norm_eps, head);
        }
        turn(cos, sin, head);
      }
    };
    finish(q, Role::attention_q_norm);
    finish(k, Role::attention_k_norm);

    CacheRun place = context.path.back();
    place.offset += place.count - 1;
    for (int head = 0; head < attention.n_kv_heads; ++head) {
      f_.memory_.store(f_.kernels_.attention, place, layer, head,
                       k.subspan(head * head_dim, head_dim), v.subspan(head * head_dim, head_dim));
    }
  }

  void attend_all(const Attention& attention, int layer) {
    f_.attention_.attend(attention, layer, thread_, f_.q_, f_.attended_);
  }

  // Own rows: stream += norm(projected).
  void add_to_stream(std::optional<Role> norm_role, int layer) {
    for (std::size_t row = own_.begin; row < own_.end; ++row) {
      if (norm_role) {
        kernels_.rms_norm(f_.projected_[row], f_.weights_.vector(*norm_role, layer),
                          f_.spec_.norm_eps, f_.projected_[row]);
      }
      kernels_.add(f_.projected_[row], f_.stream_[row]);
    }
    done(PassPart::residual);
  }

  void keep_taps(int layer, std::span<const int> taps) {
    for (std::size_t tap = 0; tap < taps.size(); ++tap) {
      if (taps[tap] != layer) continue;
      for (std::size_t row = own_.begin; row < own_.end; ++row) {
        std::copy(f_.stream_[row].begin(), f_.stream_[row].end(),
                  &f_.taps_[(tap * rows_.size() + row) * f_.spec_.embedding]);
      }
    }
  }

  // Logits of the rows that want them, packed together.
  void run_head() {
    const PackedMatrix& head = f_.weights_.head();
    const std::size_t n = f_.logit_rows_.size();
    const Range own = share(n, thread_, f_.team_.size());
    for (std::size_t i = own.begin; i < own.end; ++i) {
      kernels_.rms_norm(f_.stream_[f_.logit_rows_[i]], f_.weights_.vector(Role::output_norm),
                        f_.spec_.norm_eps, f_.normed_[i]);
      quantize(f_.normed_[i], i, {&head});
    }
    barrier(PassPart::head_in);
    if (n == 0) return;
    const MatrixView<float> logits(f_.logits_.data(), n, padded(head.outputs));
    const Range panels = share(head.panels(), thread_, f_.team_.size());
    product(head, f_.normed_, panels, logits, n);
    const std::size_t begin = panels.begin * kPanel,
                      end = std::min(panels.end * kPanel, head.outputs);
    for (std::size_t i = 0; i < n && begin < end; ++i) {
      const std::span<float> part = logits[i].subspan(begin, end - begin);
      if (f_.spec_.logit_softcap)
        kernels_.softcap(static_cast<float>(*f_.spec_.logit_softcap), part);
      for (float& logit : part) logit += 0.0f;  // a zero is positive from here on
    }
    done(PassPart::head);
  }

  const PackedMatrix& matrix(Role role, int layer) const { return f_.weights_.matrix(role, layer); }

  Forward& f_;
  const VectorKernels& kernels_;
  const int thread_;
  const std::span<const ForwardRow> rows_;
  PassTimer& timer_;
  const Range own_;
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
  team_.run([&](int thread) { Worker(*this, thread, rows, timer).run(layers, taps); });
}

std::span<const float> Forward::logits(int row) const {
  const auto at = std::lower_bound(logit_rows_.begin(), logit_rows_.end(), row);
  CHECK(at != logit_rows_.end() && *at == row);
  return {&logits_[(at - logit_rows_.begin()) * padded(weights_.head().outputs)],
          weights_.head().outputs};
}

std::span<const float> Forward::tap(int tap, int row) const {
  CHECK(tap >= 0 && row >= 0 && static_cast<std::size_t>(row) < n_rows_);
  CHECK((tap * n_rows_ + row + 1) * spec_.embedding <= taps_.size());
  return {&taps_[(tap * n_rows_ + row) * spec_.embedding],
          static_cast<std::size_t>(spec_.embedding)};
}

}  // namespace outrider
