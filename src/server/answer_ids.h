// What tells answers apart: ids, seeds, and the scope within which their texts share the cache.

#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "cache/ids.h"
#include "server/answer_form.h"
#include "server/generation_fields.h"
#include "server/served_model.h"

namespace outrider {

// Gives the request a seed if it has none.
void draw_seed(GenerationFields& fields);

// "chatcmpl-" and 24 random letters and digits.
std::string random_id(std::string_view prefix);
// Of an answer by this model, now. The request has a seed. RequestError (404) if it asks for
// another model.
AnswerHead answer_head(const ServedModel& model, const GenerationFields& fields,
                       std::string_view id_prefix);

// Texts of the same key and salt may share what was computed of them. `api_key` as in HttpRequest.
CacheScope cache_scope(std::optional<std::size_t> api_key, std::string_view salt);

}  // namespace outrider
