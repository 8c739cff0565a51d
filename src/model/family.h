// The table of model families: one line, and one file in families/, each.

#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "model/family_file.h"
#include "model/spec.h"

namespace outrider {

// What a family is: how its files' metadata become a spec. The spec says which tensors a file must
// have (model/tensor_names.h); families name them alike.
struct Family {
  std::string_view architecture;  // general.architecture
  ModelSpec (*spec)(const FamilyFile&);
  std::span<const MetadataKey> own_keys = {};  // besides common_keys()
};

std::span<const Family> families();

// Pieces that families share. All read keys of the family's list and throw Error where a value is
// missing or absurd.

// A spec with everything that every decoder has, but for the layers.
ModelSpec common_spec(const FamilyFile& file, NormKind norm = NormKind::rms);
// Layers that compute text: without those that predict further tokens.
int layer_count(const FamilyFile& file);
// Layers that predict further tokens (multi-token prediction); they follow the others.
int prediction_layer_count(const FamilyFile& file);
// Heads, sizes, scale 1 / sqrt(key_dim), rope with the file's scaling, biases if the first layer
// has them; the window of all layers if the file names one.
Attention common_attention(const FamilyFile& file, RopePairing pairing);
// Biases if the first layer has them.
Mlp common_mlp(const FamilyFile& file, Activation activation);

// attention.sliding_window; nothing if it is 0.
std::optional<int> sliding_window(const FamilyFile& file);
// Whether a layer is one of those with a window: as attention.sliding_window_pattern says, else all
// but each `period`-th.
bool has_window(const FamilyFile& file, int layer, int period);
// A factor; 1 if it is 0, which says that there is none.
double factor(const FamilyFile& file, std::string_view name);
// A factor; throws Error if it is 0.
double required_factor(const FamilyFile& file, std::string_view name);
// A soft cap, positive; nothing if it is 0.
std::optional<double> softcap(const FamilyFile& file, std::string_view name);

// Rows of families' lists.
// For families with layer norms, in place of common_keys()'s epsilon of RMS norms.
inline constexpr MetadataKey kLayerNormEpsilon = {.name = "attention.layer_norm_epsilon"};
inline constexpr MetadataKey kNoRmsNormEpsilon = {
    .name = "attention.layer_norm_rms_epsilon",
    .use = KeyUse::harmless,
    .why = "of RMS norms; the family has layer norms"};
// For families in which only some layers have a window.
inline constexpr MetadataKey kWindowPattern = {
    .name = "attention.sliding_window_pattern",
    .otherwise = Computed{"all layers but each n-th, with the family's n"}};

// Norm, attention, norm, gated MLP, as most decoders are.
LayerSpec plain_layer(const Attention& attention, const Mlp& mlp);
// The same with a norm after each of the two as well.
LayerSpec sandwich_layer(const Attention& attention, const Mlp& mlp);
// Attention and MLP side by side behind one norm.
LayerSpec parallel_layer(const Attention& attention, const Mlp& mlp);

}  // namespace outrider
