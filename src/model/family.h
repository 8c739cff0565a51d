// The table of model families: one line, and one file in families/, each.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "formats/checkpoint.h"
#include "model/spec.h"

namespace outrider {

// What a family is: how its files' metadata become a spec. The spec says which tensors a file must
// have (model/tensor_names.h); families name them alike.
struct Family {
  std::string_view architecture;  // general.architecture
  ModelSpec (*spec)(const Checkpoint&);
};

std::span<const Family> families();

// Pieces that families share. All read metadata under "<architecture>." and throw Error where a
// value is missing or absurd.

// A spec with everything that every decoder has, but for the layers.
ModelSpec common_spec(const Checkpoint& checkpoint, std::string_view architecture,
                      NormKind norm = NormKind::rms);
// Layers that compute text: without those that predict further tokens.
int layer_count(const Metadata& metadata, std::string_view architecture);
// Layers of this kind that predict further tokens (multi-token prediction), after the others.
int prediction_layer_count(const Metadata& metadata, std::string_view architecture);
// Heads, sizes, scale 1 / sqrt(key_dim), rope with the file's scaling, biases if the first layer
// has them; the window of all layers if the file names one.
Attention common_attention(const Checkpoint& checkpoint, std::string_view architecture,
                           RopePairing pairing);
// Biases if the first layer has them.
Mlp common_mlp(const Checkpoint& checkpoint, std::string_view architecture, Activation activation);

// attention.sliding_window; nothing if it is absent or 0.
std::optional<int> sliding_window(const Metadata& metadata, std::string_view architecture);
// Whether a layer is one of those with a window: as attention.sliding_window_pattern says, else all
// but each `period`-th.
bool has_window(const Metadata& metadata, std::string_view architecture, int layer, int period);
// A factor that the file may name; absent: 1.
double factor(const Metadata& metadata, std::string_view architecture, std::string_view name);

// A soft cap that the file may name, positive; absent or 0: none.
std::optional<double> softcap(const Metadata& metadata, std::string_view architecture,
                              std::string_view name);

// Norm, attention, norm, gated MLP, as most decoders are.
LayerSpec plain_layer(const Attention& attention, const Mlp& mlp);
// The same with a norm after each of the two as well.
LayerSpec sandwich_layer(const Attention& attention, const Mlp& mlp);
// Attention and MLP side by side behind one norm.
LayerSpec parallel_layer(const Attention& attention, const Mlp& mlp);

}  // namespace outrider
