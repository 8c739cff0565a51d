// The table of model families: one line, and one file in families/, each.

#pragma once

#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/checkpoint.h"
#include "model/spec.h"

namespace outrider {

// How a family names the tensor of a role; "{}" stands for the layer.
struct TensorName {
  Role role;
  std::string_view pattern;
  bool optional = false;  // a file may lack it
};

struct Family {
  std::string_view architecture;  // general.architecture
  ModelSpec (*spec)(const Checkpoint&);
  std::vector<TensorName> names;
};

std::span<const Family> families();

// The tensors that every decoder so far has, as converters name them, and `more`.
std::vector<TensorName> decoder_names(std::initializer_list<TensorName> more = {});

// Pieces that families share. All read metadata under "<architecture>." and throw Error where a
// value is missing or absurd.

// A spec with everything that every decoder has, but for the layers.
ModelSpec common_spec(const Checkpoint& checkpoint, std::string_view architecture);
int layer_count(const Metadata& metadata, std::string_view architecture);
// Heads, sizes, scale 1 / sqrt(head_dim), rope with the file's base and linear scaling.
Attention common_attention(const Checkpoint& checkpoint, std::string_view architecture,
                           RopePairing pairing);
Mlp common_mlp(const Metadata& metadata, std::string_view architecture, Activation activation);

}  // namespace outrider
