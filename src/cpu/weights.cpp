#include "cpu/weights.h"

#include <algorithm>
#include <atomic>

#include "base/error.h"
#include "cpu/panel.h"
#include "numerics/blocks.h"
#include "numerics/dequantize.h"
#include "numerics/encode.h"

namespace outrider {
namespace {

struct Packing {
  const TensorView* tensor;
  std::span<const Token> rows;  // of the tensor that are packed; empty: all
  PackedMatrix* matrix;
  std::size_t offset;
};

std::size_t weight_bits(TensorType type) {
  const TensorTypeTraits& t = traits(type);
  return t.block_elements == 1 ? 8 * t.block_bytes
                               : static_cast<std::size_t>(block_shape(type).bits);
}

// The type that a matrix is packed in.
TensorType packed_type(const TensorView& tensor, const LoadOptions& options) {
  const TensorType own = packed_as(tensor.type);
  if (!options.requantize) return own;
  const TensorType type = encodable_type(*options.requantize, tensor.columns());
  const bool fits = tensor.columns() % traits(type).block_elements == 0;
  return fits && weight_bits(type) < weight_bits(own) ? type : own;
}

PackedMatrix layout(const TensorView& tensor, const LoadOptions& options) {
  const TensorType type = packed_type(tensor, options);
  return {.type = type,
          .outputs = static_cast<std::size_t>(tensor.rows()),
          .columns = static_cast<std::size_t>(tensor.columns()),
          .panel_bytes = packed_panel_bytes(type, tensor.columns())};
}

bool is_encoded(const Packing& packing) {
  return packing.matrix->type != packed_as(packing.tensor->type);
}
// The type of the rows that panels are packed from.
TensorType row_type(const Packing& packing) {
  return is_encoded(packing) ? packing.matrix->type : packing.tensor->type;
}
// Whether the panels of a matrix can be packed from the file as it is.
bool is_packed_directly(const Packing& packing) {
  return !is_encoded(packing) && packing.rows.empty();
}

// Makes `memory` large enough for pack_rows().
void reserve(const Packing& packing, PackingMemory& memory) {
  if (is_packed_directly(packing)) return;
  const PackedMatrix& matrix = *packing.matrix;
  memory.row.resize(std::max(memory.row.size(), matrix.columns));
  memory.panel.resize(
      std::max(memory.panel.size(), kPanel * row_bytes(row_type(packing), matrix.columns)));
}

// Packs panels of the matrix: chosen rows are gathered, and rows that are packed in another type
// than the file's are encoded.
void pack_rows(const Packing& packing, Range panels, PackingMemory& memory, std::byte* out) {
  const TensorView& tensor = *packing.tensor;
  const PackedMatrix& matrix = *packing.matrix;
  if (is_packed_directly(packing)) return pack(tensor, panels, out);
  const std::size_t from_bytes = row_bytes(tensor.type, matrix.columns);
  const std::size_t into_bytes = row_bytes(row_type(packing), matrix.columns);
  const std::span<float> values = std::span(memory.row).first(matrix.columns);
  const std::span<std::byte> gathered = memory.panel;
  for (std::size_t panel = panels.begin; panel < panels.end; ++panel) {
    const std::size_t first = panel * kPanel, n = std::min(kPanel, matrix.outputs - first);
    for (std::size_t i = 0; i < n; ++i) {
      const std::size_t row = packing.rows.empty() ? first + i : packing.rows[first + i];
      const std::span<const std::byte> from = tensor.bytes.subspan(row * from_bytes, from_bytes);
      const std::span<std::byte> into = gathered.subspan(i * into_bytes, into_bytes);
      if (!is_encoded(packing)) {
        std::copy(from.begin(), from.end(), into.begin());
      } else {
        dequantize(tensor.type, from, values);
        encode(matrix.type, values, into);
      }
    }
    pack_panel(row_type(packing), matrix.columns, gathered.data(), n,
               out + panel * matrix.panel_bytes);
  }
}

// What a thread packs before it releases the file's pages that this came from. Were it a whole
// tensor, the head of a model of 1.5B would keep 180 MB of them.
constexpr std::size_t kSliceBytes = std::size_t{4} << 20;
// How much of the file Linux reads ahead of a thread that packs.
constexpr std::size_t kAheadBytes = std::size_t{32} << 20;
// What a team packs before others may use it, in whole matrices.
constexpr std::size_t kTurnBytes = std::size_t{8} << 20;

// Panels of a matrix that a thread packs at a time.
struct Slice {
  const Packing* packing;
  Range panels;
};

// What thread `thread` of `team_size` packs, in this order.
std::vector<Slice> slices(std::span<const Packing> packings, int thread, int team_size) {
  std::vector<Slice> all;
  for (const Packing& packing : packings) {
    const PackedMatrix& matrix = *packing.matrix;
    const Range own = share(matrix.panels(), thread, team_size);
    const std::size_t panels_a_slice =
        std::max<std::size_t>(1, kSliceBytes / std::max<std::size_t>(1, matrix.panel_bytes));
    for (std::size_t first = own.begin; first < own.end; first += panels_a_slice)
      all.push_back({&packing, {first, std::min(own.end, first + panels_a_slice)}});
  }
  return all;
}

// The part of the file that some panels were packed from.
std::span<const std::byte> file_bytes(const Packing& packing, Range panels) {
  const TensorView& tensor = *packing.tensor;
  const std::size_t row_bytes = tensor.bytes.size() / tensor.rows();
  const auto row_of = [&](std::size_t output) -> std::size_t {
    return packing.rows.empty() ? output : static_cast<std::size_t>(packing.rows[output]);
  };
  const std::size_t first = row_of(panels.begin * kPanel);
  const std::size_t last = row_of(std::min(panels.end * kPanel, packing.matrix->outputs) - 1);
  return tensor.bytes.subspan(first * row_bytes, (last + 1 - first) * row_bytes);
}

// What a thread has to pack and how far it is.
struct ThreadShare {
  std::vector<Slice> slices;              // of all matrices
  std::size_t packed = 0, requested = 0;  // how many of them
  std::size_t bytes_ahead = 0;            // requested and not packed
  PackingMemory memory;
};

// Called before a slice is packed: has Linux read what comes next. Rows that are chosen lie apart
// and are left out.
void prefetch(const Checkpoint& checkpoint, ThreadShare& own) {
  const auto bytes = [&](std::size_t slice) {
    const auto& [packing, panels] = own.slices[slice];
    return packing->rows.empty() ? file_bytes(*packing, panels) : std::span<const std::byte>();
  };
  if (own.packed > 0) own.bytes_ahead -= bytes(own.packed - 1).size();
  for (; own.requested < own.slices.size() && own.bytes_ahead < kAheadBytes; ++own.requested) {
    checkpoint.prefetch(bytes(own.requested));
    own.bytes_ahead += bytes(own.requested).size();
  }
}

// The matrices that give logits.
std::vector<const TensorView*> head_tensors(const Model& model) {
  const TensorView* output = model.weight(Role::output);
  std::vector<const TensorView*> tensors{output ? output : model.weight(Role::token_embedding)};
  for (int layer = 0; layer < model.spec.n_layers(); ++layer)
    if (const TensorView* own = model.weight(Role::medusa_output, layer)) tensors.push_back(own);
  if (const TensorView* own = model.weight(Role::successor_output)) tensors.push_back(own);
  return tensors;
}

bool is_output(Role role) {
  return role == Role::output || role == Role::medusa_output || role == Role::successor_output;
}

// Rows of it are read one by one.
bool is_table(Role role) {
  return role == Role::token_embedding || role == Role::successor_table;
}

PackedMatrix head_layout(const TensorView& tensor, const LoadOptions& options) {
  PackedMatrix head = layout(tensor, options);
  if (!options.output_ids.empty()) head.outputs = options.output_ids.size();
  return head;
}

// With what tokens that come later will take.
std::size_t head_bytes(PackedMatrix head, const LoadOptions& options) {
  head.outputs += static_cast<std::size_t>(options.output_room);
  return head.panels() * head.panel_bytes;
}

}  // namespace

WeightBytes weight_bytes(const Model& model, const LoadOptions& options) {
  const auto packed = [&](const TensorView& tensor) {
    const PackedMatrix matrix = layout(tensor, options);
    return matrix.panels() * matrix.panel_bytes;
  };
  WeightBytes bytes;
  for (const TensorView* tensor : head_tensors(model))
    bytes.matrices += head_bytes(head_layout(*tensor, options), options);
  for (int layer = 0; layer < model.spec.n_layers(); ++layer) {
    for (int r = 0; r < kRoles; ++r) {
      const Role role = static_cast<Role>(r);
      const TensorView* tensor = model.weights[layer * kRoles + r];
      if (tensor == nullptr || is_table(role) || is_output(role)) continue;
      if (is_matrix(role)) {
        bytes.matrices += packed(*tensor);
      } else {
        bytes.vectors += tensor->elements() * sizeof(float);
      }
    }
  }
  return bytes;
}

Weights::Weights(const Model& model, const LoadOptions& options, ThreadTeam& team,
                 const LoadProgress& progress)
    : embedding_(*model.weight(Role::token_embedding)),
      packed_(weight_bytes(model, options).matrices),
      matrices_(model.spec.layers.size() * kRoles),
      vectors_(model.spec.layers.size() * kRoles),
      head_tokens_(options.output_ids) {
  if (const TensorView* successors = model.weight(Role::successor_table)) successors_ = *successors;
  std::vector<Packing> packings;
  std::size_t offset = 0;
  const auto place = [&](const TensorView& tensor, PackedMatrix& matrix) {
    matrix = layout(tensor, options);
    matrix.first = packed_.begin() + offset;
    packings.push_back({&tensor, {}, &matrix, offset});
    offset += matrix.panels() * matrix.panel_bytes;
  };
  for (int layer = 0; layer < model.spec.n_layers(); ++layer) {
    for (int r = 0; r < kRoles; ++r) {
      const Role role = static_cast<Role>(r);
      const TensorView* tensor = model.weights[index(role, layer)];
      if (tensor == nullptr || is_table(role) || is_output(role)) continue;
      if (is_matrix(role)) {
        place(*tensor, matrices_[index(role, layer)]);
      } else {
        std::vector<float>& vector = vectors_[index(role, layer)];
        vector.resize(tensor->elements());
        dequantize(tensor->type, tensor->bytes, vector);
      }
    }
  }
  if (!head_tokens_.empty())
    head_tokens_.reserve(head_tokens_.size() + static_cast<std::size_t>(options.output_room));
  for (const TensorView* tensor : head_tensors(model))
    heads_.push_back({*tensor, head_layout(*tensor, options)});
  for (auto& [tensor, matrix] : heads_) {
    matrix.first = packed_.begin() + offset;
    packings.push_back({&tensor, head_tokens_, &matrix, offset});
    offset += head_bytes(matrix, options);
    reserve(packings.back(), head_memory_);
  }

  std::vector<ThreadShare> shares;
  for (int thread = 0; thread < team.size(); ++thread) {
    ThreadShare& own = shares.emplace_back();
    own.slices = slices(packings, thread, team.size());
    for (const Packing& packing : packings) reserve(packing, own.memory);
  }
  std::atomic<std::size_t> packed = 0;
  std::atomic<bool> is_interrupted = false;
  const auto pack = [&](const Packing* end, int thread) {
    ThreadShare& own = shares[static_cast<std::size_t>(thread)];
    for (; own.packed < own.slices.size(); ++own.packed) {
      const auto& [packing, panels] = own.slices[own.packed];
      if (packing >= end || is_interrupted) return;
      prefetch(*model.checkpoint, own);
      pack_rows(*packing, panels, own.memory, packed_.begin() + packing->offset);
      model.checkpoint->release(file_bytes(*packing, panels));
      packed += (panels.end - panels.begin) * packing->matrix->panel_bytes;
      if (thread == 0 && progress &&
          !progress(static_cast<double>(packed) / static_cast<double>(packed_.size())))
        is_interrupted = true;
    }
  };
  // In turns, so that another model on the team need not wait until all of it is packed.
  const Packing* const last = packings.data() + packings.size();
  for (const Packing* end = packings.data(); end < last;) {
    for (std::size_t bytes = 0; end < last && bytes < kTurnBytes; ++end)
      bytes += end->matrix->panels() * end->matrix->panel_bytes;
    team.run([&](int thread) { pack(end, thread); });
  }
  if (is_interrupted) throw Error("interrupted");
}

void Weights::add_to_head(std::span<const Token> tokens) {
  const std::size_t n = head_tokens_.size();
  head_tokens_.insert(head_tokens_.end(), tokens.begin(), tokens.end());
  for (auto& [tensor, matrix] : heads_) {
    matrix.outputs = head_tokens_.size();
    const std::size_t offset = static_cast<std::size_t>(matrix.first - packed_.begin());
    CHECK(offset + matrix.panels() * matrix.panel_bytes <= packed_.size());
    pack_rows({&tensor, head_tokens_, &matrix, offset}, {n / kPanel, matrix.panels()}, head_memory_,
              packed_.begin() + offset);
  }
}

void Weights::cut_head(std::size_t n) {
  CHECK(n <= head_tokens_.size());
  head_tokens_.resize(n);
  for (Head& head : heads_) head.matrix.outputs = n;
}

void Weights::copy_row(const TensorView& table, Token token, std::span<float> out) {
  const std::size_t row_bytes = table.bytes.size() / table.rows();
  dequantize(table.type, table.bytes.subspan(token * row_bytes, row_bytes), out);
}

}  // namespace outrider
