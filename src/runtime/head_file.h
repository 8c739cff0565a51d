// A head's file, found and understood for a target.

#pragma once

#include <string>
#include <string_view>

#include "model/head.h"
#include "runtime/opened_model.h"

namespace outrider {

// Whether what somebody named as a draft model is a head: a folder, a file in safetensors or the
// index of several, a file of PyTorch's, which open_head() refuses with the command that converts
// it, or a GGUF file that says so. Throws nothing: what cannot be read is none. A whole model with
// a layer for multi-token prediction is none, though open_head() reads it as one.
bool names_head(std::string_view name);

// The drafter that runs it (drafter_of_head()). Of no head: empty.
std::string_view head_kind(std::string_view name);

// `name`: also that of the target's own file, where a layer for multi-token prediction follows the
// others. Throws Error.
Head open_head(const std::string& name, const Model& target);
// Also if the head names another vocabulary than the target's as the one that it was made for.
Head open_head(const std::string& name, const OpenedModel& target);

}  // namespace outrider
