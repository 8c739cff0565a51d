#include "cpu/rope_tables.h"

#include <algorithm>
#include <variant>

namespace outrider {
namespace {

bool same_table(const Rope& a, const Rope& b) {
  return a.dims == b.dims && a.base == b.base && a.position_scale == b.position_scale;
}

const Rope* rope_of(const LayerSpec& layer) {
  for (const Operation& operation : layer.operations) {
    if (const auto* attention = std::get_if<Attention>(&operation.body)) return &attention->rope;
  }
  return nullptr;
}

// The ropes of all layers, those with the same table once.
std::vector<Rope> distinct_ropes(const ModelSpec& spec) {
  std::vector<Rope> ropes;
  for (const LayerSpec& layer : spec.layers) {
    const Rope* rope = rope_of(layer);
    if (rope == nullptr) continue;
    const auto same = [&](const Rope& other) { return same_table(other, *rope); };
    if (std::ranges::none_of(ropes, same)) ropes.push_back(*rope);
  }
  return ropes;
}

}  // namespace

RopeTables::RopeTables(const ModelSpec& spec, int context) {
  const std::vector<Rope> ropes = distinct_ropes(spec);
  for (const Rope& rope : ropes) {
    tables_.push_back(
        std::make_unique<RopeTable>(context, rope.dims, rope.base, rope.position_scale));
  }
  for (const LayerSpec& layer : spec.layers) {
    of_layer_.push_back(nullptr);
    const Rope* rope = rope_of(layer);
    if (rope == nullptr) continue;
    const auto same = [&](const Rope& other) { return same_table(other, *rope); };
    of_layer_.back() = tables_[std::ranges::find_if(ropes, same) - ropes.begin()].get();
  }
}

std::size_t RopeTables::bytes(const ModelSpec& spec, int context) {
  std::size_t bytes = 0;
  for (const Rope& rope : distinct_ropes(spec))
    bytes += static_cast<std::size_t>(context) * rope.dims * sizeof(float);
  return bytes;
}

}  // namespace outrider
