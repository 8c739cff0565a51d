#include "cpu/forward.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <variant>

#include "base/error.h"
#include "cpu/pass_thread.h"
#include "numerics/blocks.h"
#include "numerics/functions.h"

namespace outrider {
namespace {

Activations activations_in(HugeBuffer& buffer, const ModelSpec& spec, std::size_t rows) {
  BumpAllocator memory(buffer.as<std::byte>());
  return {spec, rows, memory};
}

// Where a row stands in an ascending list.
std::optional<std::size_t> place_of(int row, std::span<const int> rows) {
  const auto at = std::ranges::lower_bound(rows, row);
  if (at == rows.end() || *at != row) return {};
  return static_cast<std::size_t>(at - rows.begin());
}

}  // namespace

std::size_t Forward::working_bytes(const ModelSpec& spec, const LoadOptions& options) {
  return Activations::bytes(spec, options.batch_rows) + options.n_threads * 2 * kChunkBytes +
         RopeTables::bytes(spec, options.context);
}

Forward::Forward(const ModelSpec& spec, const Weights& weights, CacheMemory& memory,
                 const Kernels& kernels, ThreadTeam& team, const LoadOptions& options)
    : spec_(spec),
      weights_(weights),
      memory_(memory),
      kernels_(kernels),
      team_(team),
      batch_rows_(options.batch_rows),
      ropes_(spec, options.context),
      activations_buffer_(Activations::bytes(spec, batch_rows_), /*is_filled=*/false),
      x_(activations_in(activations_buffer_, spec, batch_rows_)),
      gated_columns_((batch_rows_ / kChunkGrain + 1) * (x_.gated.columns() / 128 + 1)),
      attention_(spec, kernels, memory, team.size()) {
  thread_memories_.reserve(team.size());
  for (int thread = 0; thread < team.size(); ++thread)
    thread_memories_.emplace_back(weights, kernels.products, batch_rows_);
}

// The layers at the top, what their operations do below, and threads in cpu/pass_thread.h.
//
// A pass alternates between products, which threads share out by outputs, and what stands between
// products, which they share out by rows. A barrier stands wherever this changes. What a thread can
// do alone with the outputs that it has just computed happens before the barrier. And what is to be
// done to rows waits until the next norm does it all, while the row is in the cache.
class Forward::Worker {
 public:
  Worker(Forward& forward, int thread, std::span<const ForwardRow> rows, std::span<const int> taps,
         PrefetchPattern prefetch, PassTimer& timer)
      : f_(forward),
        x_(forward.x_),
        vectors_(forward.kernels_.vectors),
        rows_(rows),
        taps_(taps),
        thread_(forward.team_, thread, rows.size(), forward.kernels_.products_by(prefetch),
                forward.thread_memories_[static_cast<std::size_t>(thread)], timer) {}

  void run(std::span<const int> layers) {
    if (f_.spec_.medusa) return run_medusa(*f_.spec_.medusa);
    if (f_.spec_.block && !f_.fused_rows_.empty()) return store_text(layers);
    if (rows_[0].completes) return complete_block();
    begin_streams();
    if (!f_.fused_rows_.empty()) fuse_features();
    for (const int layer : layers) {
      for (const Operation& operation : f_.spec_.layers[layer].operations) {
        if (const auto* attention = std::get_if<Attention>(&operation.body)) {
          run_attention(operation, *attention, layer);
        } else {
          run_mlp(operation, std::get<Mlp>(operation.body), layer);
        }
      }
    }
    run_head();
  }

 private:
  using Kind = HeadPieces::Kind;

  // One head of one row, as multiplied.
  struct Head {
    Kind kind;
    std::size_t row, index;
    std::span<float> x;  // [key_dim], of a value [value_dim]
  };

  void run_attention(const Operation& operation, const Attention& attention, int layer) {
    norm_for_heads(operation, attention, layer);
    multiply_heads(attention, layer, 0);
    if (attention.has_gate) multiply_gate(layer);
    if (attention.qk_norm == HeadNorm::all) norm_all_heads(attention, layer);
    attend(attention, layer);
    multiply_output(layer);
    add_to_stream(operation, layer);
  }

  void run_mlp(const Operation& operation, const Mlp& mlp, int layer) {
    norm_for_mlp(operation, mlp, layer);
    multiply_and_activate(mlp, layer);
    multiply_down(layer);
    add_to_stream(operation, layer);
  }

  void run_head() {
    norm_for_head();
    multiply_head({0, f_.logit_rows_.size()}, f_.weights_.head());
  }

  void run_medusa(const MedusaHeads& heads) {
    for (int block = 0; block < heads.n_blocks; ++block) {
      read_block_input(heads, block);
      for (int head = 0; head < heads.n_heads; ++head) multiply_block(heads, head, block);
    }
    read_block_input(heads, heads.n_blocks);
    if (f_.weights_.n_heads() == 1) return multiply_head({0, rows_.size()}, f_.weights_.head());
    for (int head = 0; head < heads.n_heads; ++head) {
      if (rows_of_head(head).begin == rows_of_head(head).end) return;  // nor of further ones
      if (head > 0) thread_.barrier();
      multiply_head(rows_of_head(head), f_.weights_.head(static_cast<std::size_t>(head)));
    }
  }

  // The keys and values of rows of the text, of which a head has nothing else (BlockInput).
  void store_text(std::span<const int> layers) {
    fuse_features();
    for (const int layer : layers) {
      const Attention& attention = *attention_of(f_.spec_.layers[layer]);
      thread_.for_each_row(PassPart::features, [&](std::size_t row) {
        const std::span<float> state = x_.normed[row].first(x_.output.columns());
        if (layer == layers.front()) norm(x_.output[row], Role::feature_norm, 0, state);
        quantize(state, row, {0, state.size()}, x_.input_forms,
                 {&weights_of(Kind::key, layer), &weights_of(Kind::value, layer)});
      });
      multiply_heads(attention, layer, HeadPieces(attention).first_key());
    }
  }

  // The streams of a head's rows that are fused begin with the product, which comes to x_.output.
  void fuse_features() {
    const PackedMatrix& fusion = matrix(Role::feature_fusion, 0);
    thread_.announce(fusion);
    thread_.for_each_row(PassPart::features, [&](std::size_t row) {
      const std::optional<std::size_t> i = f_.fused_index(static_cast<int>(row));
      if (!i) return;
      const std::span<float> joined = x_.normed[*i].first(fusion.columns);
      join_features(row, joined);
      quantize(joined, *i, {0, joined.size()}, x_.input_forms, {&fusion});
    });
    thread_.multiply_all(fusion, x_.input_forms.input(x_.normed), f_.fused_rows_.size(), x_.output);
    thread_.done(PassPart::features);
  }

  void join_features(std::size_t row, std::span<float> joined) {
    const ForwardRow& given = rows_[row];
    if (f_.spec_.block) {
      for (const std::span<const float> feature : given.features) {
        std::ranges::copy(feature, joined.begin());
        joined = joined.subspan(feature.size());
      }
      return;
    }
    const EagleInput& eagle = *f_.spec_.eagle;
    if (eagle.fused != EagleInput::Fused::features) {
      const std::size_t half = joined.size() / 2;
      const bool is_token_first = eagle.fused == EagleInput::Fused::token_and_state;
      const std::span<float> token = is_token_first ? joined.first(half) : joined.last(half);
      embed(row, token);
      if (!f_.weights_.vector(Role::token_norm, 0).empty()) norm(token, Role::token_norm, 0, token);
      joined = is_token_first ? joined.last(half) : joined.first(half);
    }
    const std::size_t width = eagle.tap_width;
    for (std::size_t tap = 0; tap < eagle.taps.size(); ++tap)
      std::ranges::copy(given.features.empty() ? given.state : given.features[tap],
                        joined.subspan(tap * width, width).begin());
    norm_features(joined, width);
  }

  void norm_features(std::span<float> joined, std::size_t tap_width) {
    const EagleInput::Norm kind = f_.spec_.eagle->feature_norm;
    if (kind == EagleInput::Norm::none) return;
    const std::size_t width = kind == EagleInput::Norm::whole ? joined.size() : tap_width;
    const std::span<const float> weights = f_.weights_.vector(Role::feature_norm, 0);
    for (std::size_t first = 0; first < joined.size(); first += width) {
      const std::span<float> part = joined.subspan(first, width);
      norm(part, weights.subspan(first, width), part);
    }
  }

  // What the stream does not have yet; the next norm adds it.
  void begin_streams() { missing_ = {}; }
  void add_to_stream(const Operation& operation, int layer) { missing_ = {&operation, layer}; }

  // --- norms: rows of x_.normed, in the forms that the products with it ask for

  void norm_for_heads(const Operation& operation, const Attention& attention, int layer) {
    const HeadPieces pieces(attention);
    const std::size_t first = thread_.share_of(pieces.size()).begin;
    if (first < pieces.size()) {
      const HeadPieces::Piece piece = pieces[first];
      const PackedMatrix& weights = weights_of(piece.kind, layer);
      thread_.announce(weights, {piece.panels.begin, weights.panels()});
    }
    const PackedMatrix& query = weights_of(Kind::query, layer);
    norm_rows(PassPart::attention_in, operation, layer,
              {&query, &weights_of(Kind::key, layer), &weights_of(Kind::value, layer),
               attention.has_gate ? &matrix(Role::attention_gate, layer) : &query});
  }

  void norm_for_mlp(const Operation& operation, const Mlp& mlp, int layer) {
    const PackedMatrix& up = matrix(Role::mlp_up, layer);
    const PackedMatrix& gate = mlp.is_gated ? matrix(Role::mlp_gate, layer) : up;
    thread_.announce(gate, kPanelsPerPart);
    norm_rows(PassPart::mlp_in, operation, layer, {&gate, &up});
  }

  void norm_rows(PassPart part, const Operation& operation, int layer,
                 std::initializer_list<const PackedMatrix*> readers) {
    thread_.for_each_row(part, [&](std::size_t row) {
      complete_stream(row);
      const std::span<float> input = x_.normed[row].first((*readers.begin())->columns);
      const std::span<float> normed = input.last(x_.stream.columns());
      if (operation.reads_token) norm_token(row, layer, input.first(input.size() - normed.size()));
      if (operation.pre_norm) {
        norm(x_.stream[row], *operation.pre_norm, layer, normed);
      } else if (!operation.shares_input) {
        std::copy(x_.stream[row].begin(), x_.stream[row].end(), normed.begin());
      }
      const EagleInput* const eagle = operation.reads_token ? &*f_.spec_.eagle : nullptr;
      if (eagle && eagle->residual_is_normed) std::ranges::copy(normed, x_.stream[row].begin());
      quantize(input, row, {0, input.size()}, x_.input_forms, readers);
    });
  }

  void norm_token(std::size_t row, int layer, std::span<float> out) {
    embed(row, out);
    norm(out, Role::token_norm, layer, out);
  }

  void embed(std::size_t row, std::span<float> out) {
    f_.weights_.embed(rows_[row].token, out);
    if (f_.spec_.embedding_scale != 1) vectors_.scale(f_.spec_.embedding_scale, out);
  }

  // Rows that want logits are packed together.
  void norm_for_head() {
    thread_.announce(f_.weights_.head());
    thread_.for_each_row(PassPart::head_in, [&](std::size_t row) {
      complete_stream(row);
      for_each_tap(f_.spec_.n_layers(), row,
                   [&](std::span<float> tap) { norm_output(x_.stream[row], tap); });
      if (!rows_[row].wants_logits) return;
      const std::size_t i = f_.logit_index(static_cast<int>(row));
      const std::span<float> normed = x_.normed[i].first(x_.stream.columns());
      // A head's state that no layer has changed may have been through the norm already.
      const bool is_normed =
          missing_.operation == nullptr && f_.spec_.eagle && f_.spec_.eagle->state_is_normed;
      if (is_normed)
        std::ranges::copy(x_.stream[row], normed.begin());
      else
        norm_output(x_.stream[row], normed);
      if (!f_.block_states_.empty())
        std::ranges::copy(
            normed, f_.block_states_.begin() + static_cast<std::ptrdiff_t>(i * normed.size()));
      // Of rows that nothing completes.
      if (f_.spec_.block && f_.spec_.block->has_confidence && f_.spec_.block->successor_rank == 0)
        f_.confidences_[row] = confidence_of(normed, {});
      quantize(normed, i, {0, normed.size()}, x_.input_forms, {&f_.weights_.head()});
    });
  }

  void norm_output(std::span<const float> x, std::span<float> y) {
    if (f_.spec_.has_output_norm)
      norm(x, Role::output_norm, 0, y);
    else
      std::ranges::copy(x, y.begin());
  }

  // keep(where a row's part of a tap goes), as often as the tap is asked for.
  template <typename F>
  void for_each_tap(int tap, std::size_t row, const F& keep) {
    const std::size_t width = f_.spec_.embedding;
    for (std::size_t i = 0; i < taps_.size(); ++i)
      if (taps_[i] == tap)
        keep(std::span(f_.taps_).subspan((i * rows_.size() + row) * width, width));
  }
  void keep_tap(int tap, std::size_t row) {
    for_each_tap(tap, row,
                 [&](std::span<float> kept) { std::ranges::copy(x_.stream[row], kept.begin()); });
  }

  // y = the norm of x with the weights of a role, and its bias if it has one. y may be x.
  void norm(std::span<const float> x, Role role, int layer, std::span<float> y) {
    norm(x, f_.weights_.vector(role, layer), y);
    if (role == Role::attention_norm) add_bias(Role::attention_norm_bias, layer, y);
    if (role == Role::mlp_norm) add_bias(Role::mlp_norm_bias, layer, y);
    if (role == Role::output_norm) add_bias(Role::output_norm_bias, layer, y);
  }
  void norm(std::span<const float> x, std::span<const float> weights, std::span<float> y) {
    const bool is_rms = f_.spec_.norm == NormKind::rms;
    (is_rms ? vectors_.rms_norm : vectors_.layer_norm)(x, weights, f_.spec_.norm_eps, y);
  }

  // Adds the bias of a role, from column `first` on, if the model has it.
  void add_bias(Role role, int layer, std::span<float> y, std::size_t first = 0) {
    const std::span<const float> bias = f_.weights_.vector(role, layer);
    if (!bias.empty()) vectors_.add(bias.subspan(first, y.size()), y);
  }

  // Adds to a row of the stream what it does not have yet.
  void complete_stream(std::size_t row) {
    const std::span<float> stream = x_.stream[row];
    const auto [operation, layer] = missing_;
    if (operation == nullptr) {
      begin_stream(row);
      return keep_tap(kEmbeddingTap, row);
    }
    const std::span<float> output = x_.output[row];
    const bool is_attention = std::holds_alternative<Attention>(operation->body);
    add_bias(is_attention ? Role::attention_output_bias : Role::mlp_down_bias, layer, output);
    if (operation->post_norm) norm(output, *operation->post_norm, layer, output);
    if (f_.spec_.output_scale != 1) vectors_.scale(f_.spec_.output_scale, output);
    vectors_.add(output, stream);
    if (operation == &f_.spec_.layers[layer].operations.back()) keep_tap(layer, row);
  }

  void begin_stream(std::size_t row) {
    const std::span<float> stream = x_.stream[row];
    if (!f_.spec_.eagle) return embed(row, stream);
    const std::optional<std::size_t> fused = f_.fused_index(static_cast<int>(row));
    const std::span<const float> state = fused ? x_.output[*fused] : rows_[row].state;
    std::ranges::copy(state.first(stream.size()), stream.begin());
    if (fused) add_bias(Role::feature_fusion_bias, 0, stream);
  }

  // Columns of x, whole groups of them, in the forms that the readers ask for. x: row `row`.
  void quantize(std::span<const float> x, std::size_t row, Range columns,
                const QuantizedForms& forms, std::initializer_list<const PackedMatrix*> readers) {
    const auto quantize_for = [&](InputKind kind, const QuantizedRows& form) {
      const auto asks = [&](const PackedMatrix* reader) {
        return input_kind(reader->type) == kind;
      };
      if (std::none_of(readers.begin(), readers.end(), asks)) return;
      f_.kernels_.products.quantize(x.subspan(columns.begin, columns.end - columns.begin),
                                    form.group(), form.row(row, columns.begin));
    };
    quantize_for(InputKind::groups_of_32, forms.groups_of_32);
    quantize_for(InputKind::groups_of_128, forms.groups_of_128);
    quantize_for(InputKind::groups_of_256, forms.groups_of_256);
  }

  // --- attention

  // q, k and v of x_.normed, each piece finished by the thread that has just multiplied it. first:
  // of the pieces; what comes before it is left out.
  void multiply_heads(const Attention& attention, int layer, std::size_t first) {
    const HeadPieces pieces(attention);
    const ProductInput normed = x_.input_forms.input(x_.normed);
    thread_.share_out(
        {&weights_of(Kind::query, layer), &weights_of(Kind::key, layer),
         &weights_of(Kind::value, layer)},
        rows_.size(), pieces.size() - first, 1, [&](Range rows, Range index) {
          const HeadPieces::Piece piece = pieces[first + index.begin];
          const MatrixView<float>& out = rows_of(piece.kind);
          const std::size_t head_dim = piece.head_dim;
          thread_.multiply(weights_of(piece.kind, layer), normed, rows, piece.panels,
                           out.from(rows.begin, piece.panels.begin * kPanel));
          thread_.done(PassPart::qkv);
          for (std::size_t row = rows.begin; row < rows.end; ++row) {
            for (std::size_t head = piece.heads.begin; head < piece.heads.end; ++head)
              finish_product({piece.kind, row, head, out[row].subspan(head * head_dim, head_dim)},
                             attention, layer);
          }
          thread_.done(PassPart::heads);
        });
    thread_.done(PassPart::heads);
  }

  void multiply_gate(int layer) {
    const PackedMatrix& gate = matrix(Role::attention_gate, layer);
    thread_.announce(gate);
    thread_.barrier();  // between two things that are shared out
    thread_.multiply_all(gate, x_.input_forms.input(x_.normed), rows_.size(), x_.gate);
    thread_.done(PassPart::qkv);
  }

  void finish_product(const Head& head, const Attention& attention, int layer) {
    add_bias(head, attention, layer);
    if (head.kind == Kind::value) return store(head, layer);
    // A norm over all heads waits until all of a row's are there.
    if (attention.qk_norm == HeadNorm::all) return;
    norm_head(head, attention, layer);
    finish_head(head, attention, layer);
  }

  void add_bias(const Head& head, const Attention& attention, int layer) {
    if (!attention.has_bias) return;
    const Role role =
        by_kind(head.kind, Role::attention_q_bias, Role::attention_k_bias, Role::attention_v_bias);
    add_bias(role, layer, head.x, head.index * head.x.size());
  }

  void norm_head(const Head& head, const Attention& attention, int layer) {
    if (attention.qk_norm == HeadNorm::none) return;
    const Role role = head.kind == Kind::query ? Role::attention_q_norm : Role::attention_k_norm;
    const std::size_t first = attention.qk_norm == HeadNorm::each ? head.index * head.x.size() : 0;
    norm(head.x, f_.weights_.vector(role, layer).subspan(first, head.x.size()), head.x);
  }

  void norm_all_heads(const Attention& attention, int layer) {
    thread_.for_each_row(PassPart::heads, [&](std::size_t row) {
      for (const Kind kind : {Kind::query, Kind::key}) {
        const bool is_query = kind == Kind::query;
        const std::size_t n = is_query ? attention.n_heads : attention.n_kv_heads;
        const std::size_t key_dim = attention.key_dim;
        const std::span<float> heads = rows_of(kind)[row].first(n * key_dim);
        const Role role = is_query ? Role::attention_q_norm : Role::attention_k_norm;
        norm(heads, f_.weights_.vector(role, layer), heads);
        for (std::size_t head = 0; head < n; ++head)
          finish_head({kind, row, head, heads.subspan(head * key_dim, key_dim)}, attention, layer);
      }
    });
  }

  // What is left of a query or key after its norm.
  void finish_head(const Head& head, const Attention& attention, int layer) {
    rope(head, attention, layer);
    if (head.kind == Kind::key) return store(head, layer);
    if (!attention.query_growth) return;
    const int position = rows_[head.row].context.position;
    vectors_.scale(query_factor(*attention.query_growth, position), head.x);
  }

  void rope(const Head& head, const Attention& attention, int layer) {
    if (!attention.rope) return;
    const RopeTable& table = f_.ropes_.of(layer);
    const int position = rows_[head.row].context.position;
    const bool halves = attention.rope->pairing == RopePairing::halves;
    (halves ? vectors_.rope_halves : vectors_.rope_adjacent)(table.cos(position),
                                                             table.sin(position), head.x);
  }

  // Puts a key or value into the cache, at the end of its row's path.
  void store(const Head& head, int layer) {
    CacheRun place = rows_[head.row].context.path.back();
    place.offset += place.count - 1;
    const AttentionKernels& kernels = f_.kernels_.attention;
    const int index = static_cast<int>(head.index);
    if (head.kind == Kind::key) {
      f_.memory_.store_key(kernels, place, layer, index, head.x);
    } else {
      f_.memory_.store_value(kernels, place, layer, index, head.x);
    }
  }

  // x_.attended, as the output matrix asks for it.
  void attend(const Attention& attention, int layer) {
    const PackedMatrix& output = matrix(Role::attention_output, layer);
    thread_.announce(output);
    thread_.barrier();
    f_.attention_.attend(attention, layer, thread_.index(), x_.q, x_.attended);
    thread_.done(PassPart::attention);
    thread_.for_each_row(PassPart::attention_out_in, [&](std::size_t row) {
      if (attention.has_gate)
        vectors_.sigmoid_times(x_.gate[row], x_.attended[row].first(output.columns));
      quantize(x_.attended[row], row, {0, output.columns}, x_.input_forms, {&output});
    });
  }

  void multiply_output(int layer) {
    thread_.multiply_all(matrix(Role::attention_output, layer), x_.input_forms.input(x_.attended),
                         rows_.size(), x_.output);
    thread_.done(PassPart::attention_out);
  }

  // --- mlp

  // x_.gated = activation(gate of x_.normed) * (up of x_.normed), as the down matrix asks for it.
  // Without a gate: activation(up of x_.normed) * 1.
  void multiply_and_activate(const Mlp& mlp, int layer) {
    const PackedMatrix& up = matrix(Role::mlp_up, layer);
    const PackedMatrix& gate = mlp.is_gated ? matrix(Role::mlp_gate, layer) : up;
    const PackedMatrix& down = matrix(Role::mlp_down, layer);
    const ProductInput normed = x_.input_forms.input(x_.normed);
    const auto activate =
        mlp.activation == Activation::silu ? vectors_.silu_times : vectors_.gelu_tanh_times;
    const std::size_t n_parts = (gate.panels() + kPanelsPerPart - 1) / kPanelsPerPart;
    const std::size_t parts_max = parts_per_piece(rows_.size());
    thread_.share_out({&gate, &up}, rows_.size(), n_parts, parts_max, [&](Range rows, Range parts) {
      const Range panels = {parts.begin * kPanelsPerPart,
                            std::min(parts.end * kPanelsPerPart, gate.panels())};
      const Range columns = {panels.begin * kPanel, std::min(panels.end * kPanel, gate.outputs)};
      const std::size_t n = columns.end - columns.begin;
      const auto [gate_rows, up_rows] =
          thread_.gate_and_up(rows.end - rows.begin, (panels.end - panels.begin) * kPanel);
      thread_.multiply(gate, normed, rows, panels, gate_rows);
      if (mlp.is_gated) thread_.multiply(up, normed, rows, panels, up_rows);
      thread_.done(PassPart::gate_up);
      for (std::size_t row = rows.begin; row < rows.end; ++row) {
        const std::size_t i = row - rows.begin;
        const std::span<float> gate_row = gate_rows[i].first(n), up_row = up_rows[i].first(n);
        if (!mlp.is_gated) std::ranges::fill(up_row, 1.0f);
        if (mlp.has_bias) {
          add_bias(mlp.is_gated ? Role::mlp_gate_bias : Role::mlp_up_bias, layer, gate_row,
                   columns.begin);
          if (mlp.is_gated) add_bias(Role::mlp_up_bias, layer, up_row, columns.begin);
        }
        activate(gate_row, up_row, x_.gated[row].subspan(columns.begin, n));
      }
      const Range whole = whole_groups(rows, columns, down);
      for (std::size_t row = rows.begin; row < rows.end && whole.begin < whole.end; ++row)
        quantize(x_.gated[row], row, whole, x_.gated_forms, {&down});
      thread_.done(PassPart::activation);
    });
    thread_.done(PassPart::activation);
  }

  // This thread has activated some columns of a chunk of rows. Columns are quantized in groups, as
  // `down` asks for them: returns those of the groups that are now complete. These are neighbours,
  // because other pieces share at most the first and the last group.
  Range whole_groups(Range rows, Range columns, const PackedMatrix& down) {
    const std::size_t group = std::max<std::size_t>(1, block_shape(down.type).elements);
    if (kPanelsPerPart * kPanel % group == 0) return columns;
    const std::size_t n_groups = down.columns / group;
    Range whole;
    for (std::size_t i = columns.begin / group; i * group < columns.end; ++i) {
      const std::size_t here =
          std::min(columns.end, (i + 1) * group) - std::max(columns.begin, i * group);
      std::atomic<std::size_t>& done = f_.gated_columns_[rows.begin / kChunkGrain * n_groups + i];
      if (done.fetch_add(here, std::memory_order_acq_rel) + here < group) continue;
      done.store(0, std::memory_order_relaxed);
      if (whole.end == 0) whole.begin = i * group;
      whole.end = (i + 1) * group;
    }
    return whole;
  }

  void multiply_down(int layer) {
    const PackedMatrix& down = matrix(Role::mlp_down, layer);
    thread_.announce(down);
    thread_.barrier();
    thread_.multiply_all(down, x_.gated_forms.input(x_.gated), rows_.size(), x_.output);
    thread_.done(PassPart::down);
  }

  // --- Medusa's heads

  Range rows_of_head(int head) const {
    const auto found = std::ranges::equal_range(rows_, head, {}, &ForwardRow::medusa_head);
    const auto begin = static_cast<std::size_t>(found.begin() - rows_.begin());
    return {begin, begin + found.size()};
  }
  static int block_layer(const MedusaHeads& heads, int head, int block) {
    return head * heads.n_blocks + block;
  }

  // x_.normed, in the form that the next block asks for or, after the last, the output matrix: the
  // features at first, then with what each block adds.
  void read_block_input(const MedusaHeads& heads, int block) {
    thread_.for_each_row(PassPart::features, [&](std::size_t row) {
      const int head = rows_[row].medusa_head;
      const std::span<float> x = x_.normed[row];
      if (block == 0) {
        std::ranges::copy(rows_[row].features[0], x.begin());
      } else {
        const std::span<float> added = x_.output[row], ones = x_.stream[row];
        add_bias(Role::medusa_block_bias, block_layer(heads, head, block - 1), added);
        std::ranges::fill(ones, 1.0f);
        vectors_.silu_times(added, ones, added);
        vectors_.add(added, x);
      }
      const PackedMatrix& reader = block < heads.n_blocks
                                       ? matrix(Role::medusa_block, block_layer(heads, head, block))
                                       : f_.weights_.head();
      quantize(x, row, {0, x.size()}, x_.input_forms, {&reader});
    });
  }

  void multiply_block(const MedusaHeads& heads, int head, int block) {
    const Range rows = rows_of_head(head);
    if (rows.begin == rows.end) return;
    if (head > 0) thread_.barrier();
    const PackedMatrix& weights = matrix(Role::medusa_block, block_layer(heads, head, block));
    thread_.multiply_rows(weights, x_.input_forms.input(x_.normed), rows, x_.output,
                          [](Range, Range) {});
    thread_.done(PassPart::features);
  }

  // --- blocks that tokens complete

  // Logits and confidences of rows of the last pass over blocks, by the tokens before what they
  // guess.
  void complete_block() {
    const BlockInput& block = *f_.spec_.block;
    const std::size_t rank = block.successor_rank, width = f_.spec_.embedding;
    const PackedMatrix& gate = matrix(Role::successor_gate, 0);
    const PackedMatrix& output = f_.weights_.head(1);
    const bool is_gated = gate.columns > 0;
    thread_.announce(is_gated ? gate : output);
    thread_.for_each_row(PassPart::features, [&](std::size_t row) {
      // [state; the token's vector] or [memory; the token's vector; state]
      const std::size_t n_memory = block.successors_remember ? rank : 0;
      const std::span<float> joined = x_.normed[row].first(n_memory + rank + width);
      const std::span<float> vector = joined.subspan(n_memory > 0 ? rank : width, rank);
      const std::span<float> state = n_memory > 0 ? joined.last(width) : joined.first(width);
      std::ranges::copy(block_state(row), state.begin());
      f_.weights_.successor(rows_[row].token, vector);
      const std::span<const float> memory = rows_[row].state;
      for (std::size_t i = 0; i < n_memory; ++i) joined[i] = memory.empty() ? 0 : memory[i];
      if (block.has_confidence) f_.confidences_[row] = confidence_of(state, vector);
      if (is_gated)
        quantize(joined, row, {0, joined.size()}, x_.input_forms, {&gate});
      else
        begin_completing(vector, row, output);
    });
    if (is_gated) {
      thread_.multiply_all(gate, x_.input_forms.input(x_.normed), rows_.size(), x_.output);
      thread_.done(PassPart::features);
      thread_.for_each_row(PassPart::features, [&](std::size_t row) {
        const std::span<float> gates = x_.output[row].first(gate.outputs);
        add_bias(Role::successor_gate_bias, 0, gates);
        if (block.successors_remember) {
          remember(row, gates.first(rank), gates.subspan(rank, rank));
          const std::span<float> vector = gates.last(rank);
          for (float& value : vector) value = tanh_f32(value);
          begin_completing(vector, row, output);
        } else {
          const std::span<float> vector = x_.normed[row].subspan(width, rank);
          vectors_.sigmoid_times(gates, vector);
          begin_completing(vector, row, output);
        }
      });
    }
    multiply_head({0, rows_.size()}, output);
  }

  // The memory of a row's path with its token.
  void remember(std::size_t row, std::span<const float> kept, std::span<const float> added) {
    const std::span<float> memory = x_.normed[row].first(kept.size());
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const float share = sigmoid_f32(kept[i]);
      memory[i] = share * memory[i] + (1 - share) * tanh_f32(added[i]);
    }
    for_each_tap(kMemoryTap, row,
                 [&](std::span<float> tap) { std::ranges::copy(memory, tap.begin()); });
  }

  // The product reads it from the row's begin.
  void begin_completing(std::span<const float> vector, std::size_t row,
                        const PackedMatrix& output) {
    const std::span<float> input = x_.normed[row].first(vector.size());
    std::copy(vector.begin(), vector.end(), input.begin());
    quantize(input, row, {0, input.size()}, x_.input_forms, {&output});
  }

  std::size_t block_index(std::size_t row) const {
    const std::optional<std::size_t> index = place_of(*rows_[row].completes, f_.block_rows_);
    CHECK(index);
    return *index;
  }
  std::span<const float> block_state(std::size_t row) const {
    const std::size_t width = f_.spec_.embedding;
    return std::span(f_.block_states_).subspan(block_index(row) * width, width);
  }
  float confidence_of(std::span<const float> state, std::span<const float> vector) const {
    const std::span<const float> weights = f_.weights_.vector(Role::confidence, 0);
    const std::span<const float> bias = f_.weights_.vector(Role::confidence_bias, 0);
    float sum = bias.empty() ? 0 : bias[0];
    for (std::size_t i = 0; i < weights.size(); ++i)
      sum += weights[i] * (i < state.size() ? state[i] : vector[i - state.size()]);
    return sigmoid_f32(sum);
  }

  // --- output matrix

  // Logits of those of x_.normed's rows.
  void multiply_head(Range of, const PackedMatrix& head) {
    const std::size_t n = f_.logit_rows_.size();
    if (n == 0) return;
    const MatrixView<float> logits(f_.logits_.data(), n, head.panels() * kPanel);
    const ProductInput normed = x_.input_forms.input(x_.normed);
    thread_.multiply_rows(head, normed, of, logits, [&](Range rows, Range columns) {
      for (std::size_t i = rows.begin; i < rows.end; ++i) {
        const std::span<float> part = logits[i].subspan(columns.begin, columns.end - columns.begin);
        if (rows_[0].completes) {
          const MatrixView<const float> said(f_.block_logits_.data(), f_.block_rows_.size(),
                                             head.panels() * kPanel);
          vectors_.add(said[block_index(i)].subspan(columns.begin, part.size()), part);
          continue;
        }
        if (f_.spec_.logit_scale != 1) vectors_.scale(f_.spec_.logit_scale, part);
        if (f_.spec_.logit_softcap)
          vectors_.softcap(static_cast<float>(*f_.spec_.logit_softcap), part);
        for (float& logit : part) logit += 0.0f;  // turns -0 into +0
      }
    });
    thread_.done(PassPart::head);
  }

  // --- what a layer has

  const PackedMatrix& matrix(Role role, int layer) const { return f_.weights_.matrix(role, layer); }

  template <typename T>
  static const T& by_kind(Kind kind, const T& query, const T& key, const T& value) {
    if (kind == Kind::query) return query;
    return kind == Kind::key ? key : value;
  }
  const PackedMatrix& weights_of(Kind kind, int layer) const {
    return matrix(by_kind(kind, Role::attention_q, Role::attention_k, Role::attention_v), layer);
  }
  const MatrixView<float>& rows_of(Kind kind) const { return by_kind(kind, x_.q, x_.k, x_.v); }

  // The output of an operation of a layer, or, without one, the embedding.
  struct Missing {
    const Operation* operation = nullptr;
    int layer = 0;
  };

  Forward& f_;
  const Activations& x_;
  const VectorKernels& vectors_;
  const std::span<const ForwardRow> rows_;
  const std::span<const int> taps_;
  PassThread thread_;
  Missing missing_;
};

void Forward::run(std::span<const ForwardRow> rows, std::span<const int> layers,
                  std::span<const int> taps, PrefetchPattern prefetch, PassTimer& timer) {
  CHECK(rows.size() <= batch_rows_);
  for (const ForwardRow& row : rows)
    CHECK(row.completes.has_value() == rows[0].completes.has_value());
  n_rows_ = rows.size();
  logit_rows_.clear();
  fused_rows_.clear();
  const bool fuses_states =
      spec_.eagle && spec_.eagle->fused != EagleInput::Fused::features && !layers.empty();
  for (std::size_t row = 0; row < rows.size(); ++row) {
    if (rows[row].wants_logits) logit_rows_.push_back(static_cast<int>(row));
    if (!rows[row].features.empty() || fuses_states) fused_rows_.push_back(static_cast<int>(row));
  }
  logits_.resize(std::max(logits_.size(), logit_rows_.size() * weights_.head().panels() * kPanel));
  taps_.resize(std::max(taps_.size(), taps.size() * rows.size() * spec_.embedding));
  std::vector<const RowContext*> contexts;
  for (const ForwardRow& row : rows) contexts.push_back(&row.context);
  const bool is_block = spec_.block && fused_rows_.empty() && !rows[0].completes;
  if (spec_.block) {
    const bool is_completed = spec_.block->successor_rank > 0;
    if (spec_.block->has_confidence && (rows[0].completes || !is_completed))
      confidences_.resize(rows.size());
    if (is_completed && is_block) block_states_.resize(logit_rows_.size() * spec_.embedding);
  }
  if (is_block || (!spec_.medusa && !spec_.block)) attention_.begin_pass(std::move(contexts));
  team_.run([&](int thread) { Worker(*this, thread, rows, taps, prefetch, timer).run(layers); });
  if (is_block && spec_.block->successor_rank > 0) {
    block_rows_ = logit_rows_;
    const std::size_t n = logit_rows_.size() * weights_.head().panels() * kPanel;
    block_logits_.assign(logits_.begin(), logits_.begin() + static_cast<std::ptrdiff_t>(n));
  }
}

std::size_t Forward::logit_index(int row) const {
  const std::optional<std::size_t> index = place_of(row, logit_rows_);
  CHECK(index);
  return *index;
}

std::optional<std::size_t> Forward::fused_index(int row) const {
  return place_of(row, fused_rows_);
}

std::span<const float> Forward::logits(int row) const {
  return {&logits_[logit_index(row) * weights_.head().panels() * kPanel], weights_.head().outputs};
}

std::optional<float> Forward::confidence(int row) const {
  if (!spec_.block || !spec_.block->has_confidence || confidences_.empty()) return {};
  const float confidence = confidences_.at(static_cast<std::size_t>(row));
  return std::isfinite(confidence) ? std::optional(confidence) : std::nullopt;
}

std::span<const float> Forward::tap(int tap, int row) const {
  CHECK(tap >= 0 && row >= 0 && static_cast<std::size_t>(row) < n_rows_);
  CHECK((tap * n_rows_ + row + 1) * spec_.embedding <= taps_.size());
  return {&taps_[(tap * n_rows_ + row) * spec_.embedding],
          static_cast<std::size_t>(spec_.embedding)};
}

}  // namespace outrider
