#include "cpu/rope_tables.h"

#include <algorithm>
#include <cstdint>
#include <span>

namespace outrider {
namespace {

// With a context of this length.
std::span<const double> frequencies_of(const Rope& rope, int context) {
  return rope.longer && context > rope.longer->length ? rope.longer->frequencies : rope.frequencies;
}

bool same_table(const Rope& a, const Rope& b, int context) {
  return a.magnitude == b.magnitude &&
         std::ranges::equal(frequencies_of(a, context), frequencies_of(b, context));
}

// The ropes of all layers, those with the same table once.
struct DistinctRopes {
  DistinctRopes(const ModelSpec& spec, int context) {
    for (const LayerSpec& layer : spec.layers) {
      const Attention* attention = attention_of(layer);
      const Rope* rope = attention && attention->rope ? &*attention->rope : nullptr;
      const auto same = [&](const Rope* other) {
        return rope != nullptr && same_table(*other, *rope, context);
      };
      const auto found = std::ranges::find_if(ropes, same);
      of_layer.push_back(rope ? static_cast<std::size_t>(found - ropes.begin()) : SIZE_MAX);
      if (rope && found == ropes.end()) ropes.push_back(rope);
    }
  }

  std::vector<const Rope*> ropes;
  std::vector<std::size_t> of_layer;  // [n_layers], of ropes; SIZE_MAX without rope
};

}  // namespace

RopeTables::RopeTables(const ModelSpec& spec, int context) {
  DistinctRopes distinct(spec, context);
  for (const Rope* rope : distinct.ropes)
    tables_.emplace_back(context, frequencies_of(*rope, context), rope->magnitude);
  of_layer_ = std::move(distinct.of_layer);
}

std::size_t RopeTables::bytes(const ModelSpec& spec, int context) {
  std::size_t bytes = 0;
  for (const Rope* rope : DistinctRopes(spec, context).ropes)
    bytes += static_cast<std::size_t>(context) * rope->dims() * sizeof(float);
  return bytes;
}

float query_factor(const QueryGrowth& growth, int position) {
  return static_cast<float>(1 + growth.beta * log_f64(1.0 + position / growth.length));
}

}  // namespace outrider
