#include "server/chat_prompt.h"

#include <fmt/format.h>

#include "text/template_conventions.h"

namespace outrider {
namespace {

// As the templates of Hugging Face's models take it.
Json call_json(const ToolCall& call) {
  Json json = {{"type", "function"},
               {"function", {{"name", call.name}, {"arguments", call.arguments}}}};
  if (!call.id.empty()) json["id"] = call.id;
  return json;
}

Message template_message(const ChatTemplate& chat_template, const ChatMessage& message) {
  Message out{message.role, message.content.value_or("")};
  // Templates from before OpenAI's developer role know it as the system's.
  if (message.role == "developer" && !chat_template.names("developer")) out.role = "system";
  Json more = Json::object();
  if (!message.reasoning.empty()) more["reasoning_content"] = message.reasoning;
  for (const ToolCall& call : message.calls) more["tool_calls"].push_back(call_json(call));
  if (!message.call_id.empty()) more["tool_call_id"] = message.call_id;
  if (!message.name.empty()) more["name"] = message.name;
  if (!more.empty()) out.more = more.dump();
  return out;
}

// The template's variables for how much to reason.
Json variables_of(const ChatTemplate& chat_template, const Conversation& conversation) {
  Json variables = conversation.variables;
  std::optional<bool> reasons = conversation.reasoning;
  const std::vector<std::string> switches = chat_template.reasoning_switches();
  if (const std::string& effort = conversation.reasoning_effort; !effort.empty()) {
    if (effort == "none" && !switches.empty())
      reasons = false;
    else if (chat_template.names("reasoning_effort"))
      variables.emplace("reasoning_effort", effort);
    else
      refuse_field("reasoning_effort", "this model's chat template knows none; leave it out");
  }
  if (reasons)
    for (const std::string& name : switches) variables.emplace(name, *reasons);
  return variables;
}

std::vector<TextPiece> render(const ServedModel& model, const Conversation& conversation) {
  const ChatTemplate& chat_template = *model.chat_template;
  std::vector<Message> messages;
  for (const ChatMessage& message : conversation.messages)
    messages.push_back(template_message(chat_template, message));
  if (conversation.continues) messages.pop_back();
  const Json variables = variables_of(chat_template, conversation);
  const bool add_generation_prompt = conversation.continues || conversation.add_generation_prompt;
  try {
    const TemplateConversation given =
        template_conversation(model.format.conventions, model.format.tools, std::move(messages),
                              used_tools(conversation));
    return chat_template.render(
        given.messages, add_generation_prompt,
        {.tools = given.tools, .variables = variables.empty() ? "" : variables.dump()});
  } catch (const Error& error) {
    throw RequestError(400, "", "messages", error.what());
  }
}

}  // namespace

std::string ChatPrompt::text() const {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

std::vector<Token> ChatPrompt::tokens(const Tokenizer& tokenizer) const {
  return tokenizer.encode_whole(pieces);
}

std::string used_tools(const Conversation& conversation) {
  const bool has_tools = conversation.uses_tools && !conversation.tools.empty();
  return has_tools ? conversation.tools.dump() : "";
}

ChatPrompt chat_prompt(const ServedModel& model, const Conversation& conversation) {
  if (!model.chat_template)
    refuse_field("messages", "this model has no chat template; use /v1/completions");
  if (!used_tools(conversation).empty())
    if (const auto why = why_no_calls(model.format))
      throw RequestError(400, "unsupported_value", "tools",
                         fmt::format("tools: not supported with this model: {}", *why));
  ChatPrompt prompt{render(model, conversation), {}};
  if (conversation.continues || conversation.add_generation_prompt)
    prompt.begun = begun_answer(model.format, prompt.pieces);
  if (conversation.continues) {
    prompt.pieces.push_back({*conversation.messages.back().content});
    prompt.begun += prompt.pieces.back().text;
  }
  return prompt;
}

}  // namespace outrider
