// Conversations as OpenAI's API writes them.

#pragma once

#include <string_view>
#include <vector>

#include "text/chat_template.h"

namespace outrider {

// `json` is an array of messages or an object with a key "messages"; a message has "role" (a
// string) and "content" (a string, null for empty, or a list of {"type": "text", "text": ...},
// whose texts are joined). Of other keys, such as "tool_calls" (which may stand for a content),
// "tool_call_id", "name" and "reasoning_content", the template sees all; images and "function_call"
// are refused. `origin` names the source in messages. Throws Error.
std::vector<Message> parse_conversation(std::string_view json, std::string_view origin);

}  // namespace outrider
