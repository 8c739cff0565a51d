// How the weights of draft models and heads are loaded: in which type, and with which outputs. The
// flags that say it, as data.

#pragma once

#include <optional>
#include <vector>

#include "model/backend.h"
#include "speculation/drafter_kind.h"
#include "text/tokenizer.h"

namespace outrider {

// --draft-quantize and --draft-vocab.
std::vector<DrafterFlag> draft_weight_flags();

// The type that larger weights are encoded in; nothing: as in their file.
std::optional<TensorType> draft_type(const DrafterFlagValues& flags);

// Gives the options only the outputs of as many tokens as the flag says, of a vocabulary with this
// tokenizer and size; all if that are not fewer. Where the flag is not given and `usual` is above
// 0, so many. Throws Error if the flag's file cannot be read.
void limit_outputs(LoadOptions& options, const Tokenizer& tokenizer, int vocabulary,
                   const DrafterFlagValues& flags, int usual = 0);

}  // namespace outrider
