#include "cpu/rope_tables.h"

#include <algorithm>
#include <span>

namespace outrider {
namespace {

bool same_table(const Rope& a, const Rope& b) {
  return a.dims == b.dims && a.base == b.base && a.position_scale == b.position_scale;
}

// The first of `ropes` that has the same table, or their end.
std::size_t place_of(const Rope& rope, std::span<const Rope> ropes) {
  const auto same = [&](const Rope& other) { return same_table(other, rope); };
  return static_cast<std::size_t>(std::ranges::find_if(ropes, same) - ropes.begin());
}

// The ropes of all layers, those with the same table once.
std::vector<Rope> distinct_ropes(const ModelSpec& spec) {
  std::vector<Rope> ropes;
  for (const LayerSpec& layer : spec.layers) {
    const Attention* attention = attention_of(layer);
    if (attention != nullptr && place_of(attention->rope, ropes) == ropes.size())
      ropes.push_back(attention->rope);
  }
  return ropes;
}

}  // namespace

RopeTables::RopeTables(const ModelSpec& spec, int context) {
  const std::vector<Rope> ropes = distinct_ropes(spec);
  for (const Rope& rope : ropes)
    tables_.emplace_back(context, rope.dims, rope.base, rope.position_scale);
  for (const LayerSpec& layer : spec.layers) {
    const Attention* attention = attention_of(layer);
    of_layer_.push_back(attention != nullptr ? place_of(attention->rope, ropes) : ropes.size());
  }
}

std::size_t RopeTables::bytes(const ModelSpec& spec, int context) {
  std::size_t bytes = 0;
  for (const Rope& rope : distinct_ropes(spec))
    bytes += static_cast<std::size_t>(context) * rope.dims * sizeof(float);
  return bytes;
}

}  // namespace outrider
