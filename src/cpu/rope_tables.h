// The rope tables of a model: one for each rope that its layers have.

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

  // The layer must have attention.
  const RopeTable& of(int layer) const { return tables_[of_layer_[layer]]; }

 private:
  std::vector<RopeTable> tables_;
  std::vector<std::size_t> of_layer_;  // [n_layers], past the last table without attention
};

}  // namespace outrider
