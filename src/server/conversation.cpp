#include "server/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <string>
#include <string_view>

#include "formats/parse_json.h"

namespace outrider {
namespace {

using ConversationReader = FieldReader<Conversation>;

// Most clients send a text with JSON; some send the object itself.
void read_arguments(const FieldValue& value, ToolCall& call) {
  if (!value.json().is_string() && !value.json().is_object())
    value.expected("an object, as JSON in a string");
  call.arguments = value.json().is_string() ? value.text() : dump_json(value.json());
}

FieldTable<ToolCall> call_function_fields() {
  FieldTable<ToolCall> table;
  table.obeyed("name", text_field(&ToolCall::name), "required");
  table.obeyed("arguments", {"an object, as JSON in a string", read_arguments});
  table.harmless("parsed_arguments");  // OpenAI's client sends back what it made of `arguments`
  return table;
}

FieldTable<ToolCall> call_fields() {
  FieldTable<ToolCall> table;
  table.obeyed("id", text_field(&ToolCall::id));
  table.refused("type", {R"("function")"});
  table.obeyed("function",
               {"an object with `name` and `arguments`",
                [function = call_function_fields()](const FieldValue& value, ToolCall& call) {
                  function.read(value, call);
                }},
               "required");
  table.harmless("index");
  table.harmless("provider_specific_fields");
  return table;
}

ToolCall read_call(const FieldValue& value) {
  static const FieldTable<ToolCall> table = call_fields();
  value.at("function").at("name");
  ToolCall call;
  table.read(value, call);
  return call;
}

FieldTable<ChatMessage> message_fields(const GenerationLimits& limits) {
  FieldTable<ChatMessage> table;
  table.obeyed("role",
               word_field(&ChatMessage::role, {"system", "developer", "user", "assistant", "tool"}),
               "required");
  table.obeyed("content", {"a string, or a list of parts of type text",
                           [](const FieldValue& value, ChatMessage& message) {
                             message.content = text_of_parts(value);
                           }});
  table.obeyed("reasoning_content", text_field(&ChatMessage::reasoning));
  table.obeyed("reasoning", text_field(&ChatMessage::reasoning), "the same");
  table.obeyed("tool_calls",
               {"a list of calls of type function",
                [most = limits.tools](const FieldValue& value, ChatMessage& message) {
                  value.each_item(
                      [&](const FieldValue& item) { message.calls.push_back(read_call(item)); }, 0,
                      most);
                }},
               "of an assistant");
  table.obeyed("tool_call_id", text_field(&ChatMessage::call_id),
               "of a tool; required where the chat template writes it");
  table.obeyed("name", text_field(&ChatMessage::name));
  for (const char* name : {"cache_control", "parsed", "provider_specific_fields"})
    table.harmless(name);
  table.refused("refusal");
  table.refused("annotations", {"[]"});
  table.refused("audio");
  table.refused("images", {"[]"});
  table.refused("thinking", {R"("")"}, "write it as `reasoning_content`");
  table.refused("prefix", {"false"}, "send `continue_final_message`");
  table.refused("function_call", {}, "write it as `tool_calls`");
  return table;
}

ChatMessage read_message(const FieldValue& value, const FieldTable<ChatMessage>& table) {
  value.at("role");
  ChatMessage message;
  table.read(value, message);
  const bool needs_content = message.role != "assistant" && message.role != "tool";
  if (needs_content && !message.content) value.at("content");
  if (message.role != "assistant" && !message.calls.empty())
    value.at("tool_calls").refuse("only an assistant calls tools");
  return message;
}

ConversationReader chat_messages_field(const GenerationLimits& limits) {
  return {fmt::format("a list of 1 to {} messages", limits.messages),
          [most = limits.messages, table = message_fields(limits)](const FieldValue& value,
                                                                   Conversation& conversation) {
            value.each_item(
                [&](const FieldValue& item) {
                  conversation.messages.push_back(read_message(item, table));
                },
                1, most);
          }};
}

struct ChatTool {};  // whose JSON goes to the chat template

FieldTable<ChatTool> tool_function_fields() {
  FieldTable<ChatTool> table;
  table.obeyed("name",
               {"a string",
                [](const FieldValue& name, ChatTool&) {
                  if (name.text().empty()) name.refuse("is empty");
                }},
               "required");
  table.obeyed("description", {"a string", [](const FieldValue& text, ChatTool&) { text.text(); }});
  table.obeyed("parameters",
               {"an object", [](const FieldValue& schema, ChatTool&) { schema.check_object(); }});
  table.refused("strict", {"false"});
  return table;
}

FieldTable<ChatTool> tool_fields() {
  FieldTable<ChatTool> table;
  table.obeyed("type", supported_word_field<ChatTool>({"function"}), "required");
  table.obeyed("function",
               {"an object with `name`, `description` and `parameters`",
                [function = tool_function_fields()](const FieldValue& value, ChatTool& tool) {
                  value.at("name");
                  function.read(value, tool);
                }},
               "required");
  table.harmless("cache_control");
  return table;
}

// The members of these names, in the order that they came in.
Json members(const Json& object, std::initializer_list<std::string_view> names) {
  Json kept = Json::object();
  for (const auto& [key, value] : object.items())
    if (!value.is_null() && std::ranges::find(names, key) != names.end()) kept[key] = value;
  return kept;
}

// As it goes to the chat template, which writes all that it is given: only what tells the model
// something.
Json read_chat_tool(const FieldValue& value) {
  static const FieldTable<ChatTool> table = tool_fields();
  if (value.at("type").json() == "function") value.at("function");
  ChatTool tool;
  table.read(value, tool);
  Json json = members(value.json(), {"type", "function"});
  json["function"] = members(json["function"], {"name", "description", "parameters"});
  return json;
}

ConversationReader chat_tools_field(const GenerationLimits& limits) {
  return {fmt::format("a list of at most {} tools of type function", limits.tools),
          [most = limits.tools](const FieldValue& value, Conversation& conversation) {
            value.each_item(
                [&](const FieldValue& tool) { conversation.tools.push_back(read_chat_tool(tool)); },
                0, most);
          }};
}

ConversationReader chat_tool_choice_field() {
  return {R"("auto" or "none")", [](const FieldValue& value, Conversation& conversation) {
            const bool is_word = value.json() == "auto" || value.json() == "none";
            if (!is_word) value.unsupported(R"(send "auto" or "none")");
            conversation.uses_tools = value.json() == "auto";
          }};
}

}  // namespace

FieldReader<Conversation> variables_field() {
  static constexpr std::size_t kVariablesMax = 64;
  return {fmt::format("an object of at most {} variables", kVariablesMax),
          [](const FieldValue& value, Conversation& conversation) {
            value.check_object(kVariablesMax);
            conversation.variables = value.json();
          }};
}

std::vector<PartRows> conversation_part_fields(const GenerationLimits& limits) {
  return {{"Messages of a chat", message_fields(limits).rows()},
          {"Calls of a message", call_fields().rows()},
          {"Functions of calls", call_function_fields().rows()},
          {"Tools of a chat", tool_fields().rows()},
          {"Functions of tools", tool_function_fields().rows()}};
}

FieldTable<Conversation> conversation_fields(const GenerationLimits& limits) {
  FieldTable<Conversation> table;
  table.obeyed("messages", chat_messages_field(limits));
  table.obeyed("tools", chat_tools_field(limits), "refused where the model's format is not known");
  table.obeyed("tool_choice", chat_tool_choice_field());
  table.obeyed("parallel_tool_calls", boolean_field(&Conversation::parallel_calls));
  table.obeyed(
      "reasoning_effort",
      word_field(&Conversation::reasoning_effort,
                 {"none", "minimal", "low", "medium", "high", "xhigh", "max"}),
      "refused where the chat template knows none, except \"none\" for a model that does not "
      "reason");
  table.obeyed("chat_template_kwargs", variables_field(), "variables of the chat template");
  table.obeyed("add_generation_prompt", boolean_field(&Conversation::add_generation_prompt));
  table.obeyed("continue_final_message", boolean_field(&Conversation::continues),
               "the last message is the beginning of the answer");
  table.refused("functions", {"[]"}, "write them as `tools`");
  table.refused("function_call", {R"("none")", R"("auto")"}, "write it as `tool_choice`");
  table.refused("chat_template");
  table.refused("documents", {"[]"});
  return table;
}

void check_conversation(const Conversation& conversation) {
  if (conversation.messages.empty()) refuse_field("messages", "is missing");
  if (!conversation.continues) return;
  const ChatMessage& last = conversation.messages.back();
  if (last.role != "assistant" || !last.content || !last.calls.empty())
    refuse_field("continue_final_message", "the last message must be an assistant's text");
}

}  // namespace outrider
