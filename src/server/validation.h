// Whether a request that was read suits the model that is to answer it.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/token.h"
#include "server/generation_fields.h"
#include "server/served_model.h"

namespace outrider {

// RequestError (400) if the prompt is empty, has tokens that the model does not have, or leaves no
// room for an answer that may have so many tokens (context_length_exceeded). `field` is where it
// comes from.
void check_prompt(const ServedModel& model, const std::vector<Token>& prompt,
                  const std::string& field, std::optional<int> max_tokens);

// RequestError (400) for a bias of tokens that the model does not have, and for drafters that the
// server does not have.
void check_fields(const ServedModel& model, const GenerationFields& fields);

}  // namespace outrider
