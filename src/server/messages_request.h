// Requests to Anthropic's /v1/messages and /v1/messages/count_tokens.

#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "server/conversation.h"
#include "server/generation_fields.h"

namespace outrider {

// Blocks become messages as OpenAI's API has them: calls belong to an assistant's message, their
// results are messages of their own, and neighbours of one role are one message, its texts in lines
// of their own. The conversation continues an assistant's last text.
struct MessagesRequest : GenerationFields, Conversation {
  bool shows_thinking = true;
  std::optional<int> thinking_budget = {};  // tokens
};

// Both throw RequestError (400); `unknown` hears of what is ignored. The second's needs no
// max_tokens and may end with a call.
MessagesRequest read_messages_request(std::string_view body, const GenerationLimits& limits = {},
                                      const UnknownFieldListener& unknown = {});
MessagesRequest read_count_request(std::string_view body, const GenerationLimits& limits = {},
                                   const UnknownFieldListener& unknown = {});
std::vector<FieldRow> messages_request_fields(const GenerationLimits& limits = {});
// Of messages, blocks, tools and other objects in them.
std::vector<PartRows> messages_part_fields();

}  // namespace outrider
