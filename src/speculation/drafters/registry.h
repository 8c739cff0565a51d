// The table of drafters, and the words of --draft. A drafter is one file in drafters/ and one line
// here.

#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/backend.h"
#include "speculation/drafter.h"
#include "text/tokenizer.h"

namespace outrider {

// One drafter as asked for.
struct DraftChoice {
  std::string name;
  std::string value;  // what stood after '='; empty if nothing did
  friend bool operator==(const DraftChoice&, const DraftChoice&) = default;
};

// Reads off | auto | NAME[=VALUE][+NAME[=VALUE]…]: no drafters; all that need no file, with the
// draft model if one is given; or those named, in order. '+' separates only before a known name,
// the first
// '=' ends a name, so values may hold both. `model_draft` is --model-draft or empty: the value of a
// plain `model`. Throws Error (the text is a flag's) for anything else, with a hint where one
// helps.
std::vector<DraftChoice> parse_draft(std::string_view text, std::string_view model_draft);

// What drafters are made from.
struct DraftModel {
  std::shared_ptr<Backend> backend;
  std::unique_ptr<Tokenizer> tokenizer;
};
struct DraftContext {
  const Tokenizer* tokenizer = nullptr;  // the target's; needed while drafters are made
  int vocabulary = 0;                    // of the target's logits
  std::size_t memory_bytes = 0;          // --draft-memory, shared by the texts in progress
  int n_sequences = 1;                   // of these
  std::function<DraftModel(const std::string& model)> load_model;
};

// In the order of the choices. Throws Error if a draft model's vocabulary disagrees with the
// target's.
std::vector<std::unique_ptr<Drafter>> make_drafters(const std::vector<DraftChoice>& choices,
                                                    const DraftContext& context);

}  // namespace outrider
