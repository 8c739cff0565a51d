#include "model/head_tensors.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "numerics/dequantize.h"

namespace outrider {

HeadTensors::HeadTensors(Head& head, const Checkpoint& file, const Model& target,
                         std::string_view kind)
    : head_(head), file_(file), target_(target), kind_(kind) {}

void HeadTensors::begin() {
  head_.model.weights.assign(head_.model.spec.layers.size() * kRoles, nullptr);
}

void HeadTensors::set(Role role, int layer, const TensorView* tensor) {
  head_.model.weights.at(static_cast<std::size_t>(layer) * kRoles +
                         static_cast<std::size_t>(role)) = tensor;
}

void HeadTensors::take(Role role, int layer, std::string_view name,
                       const std::vector<std::int64_t>& shape) {
  set(role, layer, checked(name, shape));
}

const TensorView* HeadTensors::checked(std::string_view name,
                                       const std::vector<std::int64_t>& shape) {
  const TensorView* const found = file_.find(name);
  if (!found)
    throw Error(
        "{}: tensor {} is missing; the head is incomplete, or of a kind that this version does not "
        "support",
        origin(), printable(name));
  const TensorView& tensor = *found;
  used_.insert(&tensor);
  if (tensor.shape != shape)
    throw Error(
        "{}: tensor {} is [{}], expected [{}]; the head is for another model, or its config.json "
        "is another head's",
        origin(), printable(name), fmt::join(tensor.shape, ", "), fmt::join(shape, ", "));
  if (!is_weight_type(tensor.type))
    throw Error("{}: tensor {} is {}, expected weights", origin(), printable(name),
                traits(tensor.type).name);
  check_finite(tensor);
  constexpr std::uintptr_t kAlignment = 4;  // of the numbers in files
  if (reinterpret_cast<std::uintptr_t>(tensor.bytes.data()) % kAlignment == 0) return &tensor;
  return keep(tensor, {tensor.bytes.begin(), tensor.bytes.end()});
}

const TensorView* HeadTensors::keep(TensorView view, std::vector<std::byte> bytes) {
  struct Owned {
    TensorView view;
    std::vector<std::byte> bytes;
  };
  auto owned = std::make_shared<Owned>(Owned{std::move(view), std::move(bytes)});
  owned->view.bytes = owned->bytes;
  head_.model.parts.push_back(std::shared_ptr<const TensorView>(owned, &owned->view));
  return head_.model.parts.back().get();
}

const TensorView* HeadTensors::of_target(Role role) {
  const TensorView* tensor = target_.weight(role);
  if (!tensor && role == Role::output) tensor = target_.weight(Role::token_embedding);
  head_.model.parts.push_back(std::shared_ptr<const TensorView>(target_.checkpoint, tensor));
  return tensor;
}

void HeadTensors::take_or_share(Role role, std::string_view name,
                                const std::vector<std::int64_t>& shape) {
  if (find(name))
    take(role, 0, name, shape);
  else
    set(role, 0, of_target(role));
}

void HeadTensors::check_finite(const TensorView& tensor) const {
  const std::size_t row_bytes = tensor.bytes.size() / static_cast<std::size_t>(tensor.rows());
  std::vector<float> values(static_cast<std::size_t>(tensor.columns()));
  std::vector<std::byte> aligned(row_bytes);
  for (std::int64_t row = 0; row < tensor.rows(); ++row) {
    const auto bytes = tensor.bytes.subspan(static_cast<std::size_t>(row) * row_bytes, row_bytes);
    std::ranges::copy(bytes, aligned.begin());
    dequantize(tensor.type, aligned, values);
    float sum = 0;
    for (const float value : values) sum += value * 0;  // NaN where the value is not finite
    if (sum != 0)
      throw Error("{}: tensor {} holds NaN or infinite numbers; the head is damaged", origin(),
                  printable(tensor.name));
  }
}

void HeadTensors::ignore(std::string_view name) {
  if (const TensorView* tensor = file_.find(name)) used_.insert(tensor);
}

void HeadTensors::ignore_frequencies() {
  for (const TensorView& tensor : file_.tensors)
    if (tensor.name.ends_with("rotary_emb.inv_freq")) used_.insert(&tensor);
}

void HeadTensors::check_nothing_else() const {
  for (const TensorView& tensor : file_.tensors)
    if (!used_.contains(&tensor))
      throw Error("{}: tensor {} has no place in {}; this variant is not supported in this version",
                  origin(), printable(tensor.name), kind_);
}

}  // namespace outrider
