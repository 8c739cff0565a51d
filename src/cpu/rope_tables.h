// What depends on a row's position alone: the rope tables of a model, one for each rope that its
// layers have, and the factor of its queries.

#pragma once

#include <cstddef>
#include <vector>

#include "model/spec.h"
#include "numerics/rope.h"

namespace outrider {

class RopeTables {
 public:
  RopeTables(const ModelSpec& spec, int context);
  static std::size_t bytes(const ModelSpec& spec, int context);

  // The layer must have rope.
  const RopeTable& of(int layer) const { return tables_[of_layer_[layer]]; }

 private:
  std::vector<RopeTable> tables_;
  std::vector<std::size_t> of_layer_;  // [n_layers], any value without rope
};

// What a query at this position is multiplied by.
float query_factor(const QueryGrowth& growth, int position);

}  // namespace outrider
