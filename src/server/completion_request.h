// Requests to OpenAI's /v1/completions.

#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/token.h"
#include "server/generation_fields.h"

namespace outrider {

// A text, in which special tokens are recognised, or the tokens themselves.
using CompletionPrompt = std::variant<std::string, std::vector<Token>>;

struct CompletionRequest : GenerationFields {
  std::vector<CompletionPrompt> prompts = {};
  bool echo = false;                // the answer begins with the prompt
  bool adds_special_tokens = true;  // BOS before a text, where the model expects it
};

// Throws RequestError (400). `unknown` hears of what is ignored.
CompletionRequest read_completion_request(std::string_view body,
                                          const GenerationLimits& limits = {},
                                          const UnknownFieldListener& unknown = {});
std::vector<FieldRow> completion_request_fields(const GenerationLimits& limits = {});

}  // namespace outrider
