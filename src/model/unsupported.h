// Recognizes by their metadata GGUF files that are no dense text decoders, so that errors say what
// they are.

#pragma once

#include <string_view>

#include "formats/checkpoint.h"

namespace outrider {

// Throws Error if the file is no model (an adapter, the part that sees images), or one whose
// computation this version lacks: experts, embeddings, attention in both directions, layers of
// several sizes.
void check_kind(const Metadata& metadata);

// What makes an architecture another one than the families here, as "recurrent layers"; empty if
// that is unknown.
std::string_view kind_of_architecture(std::string_view architecture);

}  // namespace outrider
