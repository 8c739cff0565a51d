// Turns a request that was read into what is asked of the scheduler.

#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "base/token.h"
#include "engine/scheduler.h"
#include "server/generation_fields.h"
#include "server/served_model.h"

namespace outrider {

// What a request, which has a seed, asks for to this prompt. `api_key` as in HttpRequest.
// RequestError (400) as check_fields says (validation.h).
AnswerRequest answer_request(const ServedModel& model, const GenerationFields& fields,
                             std::vector<Token> prompt, std::optional<std::size_t> api_key);
// Adds n answers like `first` with different noise; the first one has the noise of a single answer.
void add_answers(std::vector<AnswerRequest>& answers, const AnswerRequest& first, int n);

}  // namespace outrider
