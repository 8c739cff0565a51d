// The rope that a file's metadata and tensors of factors describe, as frequencies.

#pragma once

#include <string_view>

#include "formats/checkpoint.h"
#include "model/spec.h"

namespace outrider {

// Rope over `dims` channels, even, from the keys under "<architecture>.rope.": its base, and
//
//   scaling.type    none; linear (Chen et al. 2023, arXiv:2306.15595); yarn (numerics/rope.h);
//                   longrope
//   tensors         rope_freqs.weight, [dims / 2]: frequencies are divided by it (the rule of Llama
//                   3.1 comes as such a tensor); rope_factors_short.weight and
//                   rope_factors_long.weight: the same, up to a context of
//                   scaling.original_context_length and beyond
//
// Throws Error if a value is missing or absurd.
Rope scaled_rope(const Checkpoint& checkpoint, std::string_view architecture, RopePairing pairing,
                 int dims);

// The same without any scaling, whatever the file says.
Rope plain_rope(RopePairing pairing, int dims, double base);

// A base that the file names, checked; nothing if it does not.
std::optional<double> rope_base(const Metadata& metadata, std::string_view key);

}  // namespace outrider
