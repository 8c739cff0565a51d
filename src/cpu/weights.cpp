#include "cpu/weights.h"

#include <atomic>
#include <cstring>

#include "base/error.h"
#include "numerics/dequantize.h"

namespace outrider {
namespace {

struct Packing {
  const TensorView* tensor;
  PackedMatrix* matrix;
  std::size_t offset;
};

PackedMatrix layout(const TensorView& tensor) {
  return {.type = tensor.type,
          .outputs = static_cast<std::size_t>(tensor.rows()),
          .columns = static_cast<std::size_t>(tensor.columns()),
          .panel_bytes = packed_panel_bytes(tensor.type, tensor.columns())};
}

// The matrix that gives the logits.
const TensorView& head_tensor(const Model& model) {
  const TensorView* output = model.weight(Role::output);
  return output != nullptr ? *output : *model.weight(Role::token_embedding);
}

}  // namespace

WeightBytes weight_bytes(const Model& model) {
  const auto packed = [](const TensorView& tensor) {
    const PackedMatrix matrix = layout(tensor);
    return matrix.panels() * matrix.panel_bytes;
  };
  WeightBytes bytes = {.matrices = packed(head_tensor(model))};
  for (int layer = 0; layer < model.spec.n_layers(); ++layer) {
    for (int r = 0; r < kRoles; ++r) {
      const Role role = static_cast<Role>(r);
      const TensorView* tensor = model.weights[layer * kRoles + r];
      if (tensor == nullptr || role == Role::token_embedding || role == Role::output) continue;
      if (is_matrix(role)) {
        bytes.matrices += packed(*tensor);
      } else {
        bytes.vectors += tensor->elements() * sizeof(float);
      }
    }
  }
  return bytes;
}

Weights::Weights(const Model& model, ThreadTeam& team, const LoadProgress& progress)
    : embedding_(*model.weight(Role::token_embedding)),
      packed_(weight_bytes(model).matrices),
      matrices_(model.spec.layers.size() * kRoles),
      vectors_(model.spec.layers.size() * kRoles) {
  std::vector<Packing> packings;
  std::size_t offset = 0;
  const auto place = [&](const TensorView& tensor, PackedMatrix& matrix) {
    matrix = layout(tensor);
    matrix.first = packed_.begin() + offset;
    packings.push_back({&tensor, &matrix, offset});
    offset += matrix.panels() * matrix.panel_bytes;
  };
  for (int layer = 0; layer < model.spec.n_layers(); ++layer) {
    for (int r = 0; r < kRoles; ++r) {
      const Role role = static_cast<Role>(r);
      const TensorView* tensor = model.weights[index(role, layer)];
      if (tensor == nullptr || role == Role::token_embedding || role == Role::output) continue;
      if (is_matrix(role)) {
        place(*tensor, matrices_[index(role, layer)]);
      } else {
        std::vector<float>& vector = vectors_[index(role, layer)];
        vector.resize(tensor->elements());
        dequantize(tensor->type, tensor->bytes, vector);
      }
    }
  }
  place(head_tensor(model), head_);

  const bool is_mapped = !model.checkpoint->file.bytes().empty();  // or in memory
  std::atomic<std::size_t> packed = 0;
  team.run([&](int thread) {
    for (const Packing& packing : packings) {
      const Range panels = share(packing.matrix->panels(), thread, team.size());
      pack(*packing.tensor, panels, packed_.begin() + packing.offset);
      packed += (panels.end - panels.begin) * packing.matrix->panel_bytes;
      if (thread == 0 && progress)
        progress(static_cast<double>(packed) / static_cast<double>(packed_.size()));
      team.barrier();
      if (thread == 0 && is_mapped) model.checkpoint->file.release(packing.tensor->bytes);
    }
  });
}

void Weights::embed(Token token, std::span<float> out) const {
  const std::size_t row_bytes = embedding_.bytes.size() / embedding_.rows();
  dequantize(embedding_.type, embedding_.bytes.subspan(token * row_bytes, row_bytes), out);
}

}  // namespace outrider
