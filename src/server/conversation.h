// Conversations with tools, and how OpenAI's API writes them.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/fields.h"
#include "server/generation_fields.h"

namespace outrider {

struct ToolCall {
  std::string id, name;
  std::string arguments = "{}";  // JSON, as the model wrote it
};

struct ChatMessage {
  std::string role;                         // system, developer, user, assistant or tool
  std::optional<std::string> content = {};  // nothing: null
  std::string reasoning = {};               // of an assistant, before the content
  std::vector<ToolCall> calls = {};         // of an assistant
  std::string call_id = {};                 // of a tool: the call that it answers
  std::string name = {};                    // of the participant
};

// What is to be answered, whichever API it came by.
struct Conversation {
  std::vector<ChatMessage> messages = {};
  Json tools = Json::array();          // as OpenAI writes them; empty: none
  bool uses_tools = true;              // false: the answer calls none of them
  bool parallel_calls = true;          // false: the answer calls one tool at most
  Json variables = Json::object();     // of the chat template
  std::optional<bool> reasoning = {};  // nothing: as the model does
  std::string reasoning_effort = {};   // empty: as the model does
  bool continues = false;              // the last message, an assistant's, begins the answer
  bool add_generation_prompt = true;

  bool has_tools() const { return uses_tools && !tools.empty(); }  // that an answer may call
};

// Fields of tables for requests that have Conversation as their base: OpenAI's messages, tools and
// what the chat template takes.
FieldTable<Conversation> conversation_fields(const GenerationLimits& limits);
// Of messages and tools, and of what is in them.
std::vector<PartRows> conversation_part_fields(const GenerationLimits& limits);

// Readers that routes share.
FieldReader<Conversation> variables_field();

// What no field alone can tell. Throws RequestError (400).
void check_conversation(const Conversation& conversation);

}  // namespace outrider
