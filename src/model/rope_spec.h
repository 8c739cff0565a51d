// The rope that a file's metadata and tensors of factors describe, as frequencies.

#pragma once

#include <string_view>

#include "model/family_file.h"
#include "model/spec.h"

namespace outrider {

// Rope over `dims` channels, even, from the keys "rope.*" and these tensors:
//
//   scaling.type    none; linear (Chen et al. 2023, arXiv:2306.15595); yarn (numerics/rope.h);
//                   longrope
//   tensors         rope_freqs.weight, [dims / 2]: frequencies are divided by it (the rule of Llama
//                   3.1 comes as such a tensor); rope_factors_short.weight and
//                   rope_factors_long.weight: the same, up to a context of
//                   scaling.original_context_length and beyond
//
// base_key names the base. Throws Error if a value is missing or absurd.
Rope scaled_rope(const FamilyFile& file, RopePairing pairing, int dims,
                 std::string_view base_key = "rope.freq_base");

// The same without any scaling, whatever the file says.
Rope plain_rope(const FamilyFile& file, RopePairing pairing, int dims, std::string_view base_key);

}  // namespace outrider
