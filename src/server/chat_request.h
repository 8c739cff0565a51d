// Requests to OpenAI's /v1/chat/completions.

#pragma once

#include <string_view>
#include <vector>

#include "server/conversation.h"
#include "server/generation_fields.h"

namespace outrider {

struct ChatRequest : GenerationFields, Conversation {};

// Throws RequestError (400). `unknown` hears of what is ignored.
ChatRequest read_chat_request(std::string_view body, const GenerationLimits& limits = {},
                              const UnknownFieldListener& unknown = {});
std::vector<FieldRow> chat_request_fields(const GenerationLimits& limits = {});

}  // namespace outrider
