// The table of model families: one line and one file in families/ each.

#pragma once

#include <span>
#include <string_view>

#include "formats/checkpoint.h"
#include "model/spec.h"

namespace outrider {

// How a family names the tensor of a role; "{}" stands for the layer.
struct TensorName {
  Role role;
  std::string_view pattern;
  bool optional = false;
};

struct Family {
  std::string_view architecture;  // general.architecture
  ModelSpec (*spec)(const Metadata&, const Checkpoint&);
  std::span<const TensorName> names;
};

std::span<const Family> families();

}  // namespace outrider
