#include "server/chat_prompt.h"

#include <fmt/format.h>

#include <optional>
#include <span>
#include <utility>

#include "formats/parse_json.h"
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
  if (!more.empty()) out.more = dump_json(more);
  return out;
}

// As the template and the parser of answers take them.
std::string tools_text(const Conversation& conversation) {
  return conversation.has_tools() ? dump_json(conversation.tools) : "";
}

// Of the answer.
bool begins_with_reasoning(const Conversation& conversation) {
  return conversation.continues && !conversation.messages.back().reasoning.empty();
}

// The template's variables for how much to reason.
Json variables_of(const ServedModel& model, const Conversation& conversation) {
  const ChatTemplate& chat_template = *model.chat_template;
  Json variables = conversation.variables;
  std::optional<bool> reasons = conversation.reasoning;
  const std::vector<std::string> switches = chat_template.reasoning_switches();
  if (const std::string& effort = conversation.reasoning_effort; !effort.empty()) {
    if (effort == "none" && !switches.empty())
      reasons = false;
    else if (chat_template.names("reasoning_effort"))
      variables.emplace("reasoning_effort", effort);
    else if (effort != "none" || model.format.reasoning)
      refuse_field("reasoning_effort", "this model's chat template knows none; leave it out");
  }
  // What is begun is no reasoning.
  if (conversation.continues && !begins_with_reasoning(conversation) && !reasons) reasons = false;
  if (reasons)
    for (const std::string& name : switches) variables.emplace(name, *reasons);
  return variables;
}

RequestError refusal(const Error& error) {
  const bool is_template = error.remedy() == Remedy::chat_template;
  return RequestError(
      400, "", "messages",
      fmt::format("{}{}", error.what(), is_template ? " (the server's --chat-template-file)" : ""));
}

// The conversation with these messages.
std::vector<TextPiece> render(const ServedModel& model, const Conversation& conversation,
                              std::span<const ChatMessage> messages, bool add_generation_prompt) {
  const ChatTemplate& chat_template = *model.chat_template;
  std::vector<Message> plain;
  for (const ChatMessage& message : messages)
    plain.push_back(template_message(chat_template, message));
  const Json variables = variables_of(model, conversation);
  try {
    const TemplateConversation given = template_conversation(
        model.format.conventions, model.format.tools, std::move(plain), tools_text(conversation));
    std::vector<TextPiece> pieces = chat_template.render(
        given.messages, add_generation_prompt,
        {.tools = given.tools, .variables = variables.empty() ? "" : dump_json(variables)});
    if (add_generation_prompt && !conversation.continues) check_written(pieces);
    return pieces;
  } catch (const Error& error) {
    throw refusal(error);
  }
}

// Results of calls that say which call they answer, if the template tells the model.
void check_call_ids(const ServedModel& model, const Conversation& conversation) {
  if (!model.chat_template->names("tool_call_id")) return;
  for (std::size_t i = 0; i < conversation.messages.size(); ++i) {
    const ChatMessage& message = conversation.messages[i];
    if (message.role == "tool" && message.call_id.empty())
      refuse_field(fmt::format("messages[{}].tool_call_id", i),
                   "is missing, and this model's chat template writes it");
  }
}

// Up to an answer that has not begun, or only with content.
ChatPrompt prompt_to_answer(const ServedModel& model, const Conversation& conversation) {
  std::span<const ChatMessage> messages = conversation.messages;
  if (conversation.continues) messages = messages.first(messages.size() - 1);
  const bool has_answer = conversation.continues || conversation.add_generation_prompt;
  ChatPrompt prompt{render(model, conversation, messages, has_answer), {}};
  if (has_answer) prompt.begun = begun_answer(model.format, prompt.pieces);
  if (conversation.continues) {
    prompt.pieces.push_back({*conversation.messages.back().content});
    prompt.begun += prompt.pieces.back().text;
  }
  return prompt;
}

// Up to the content of the last message, after its reasoning, as the template writes both: a word
// in place of the content shows where it stands, so that what follows it can be cut off.
ChatPrompt prompt_after_reasoning(const ServedModel& model, const Conversation& conversation) {
  constexpr std::string_view kWord = "outrider_content";
  std::vector<ChatMessage> messages = conversation.messages;
  const std::string content = std::exchange(*messages.back().content, kWord);
  ChatPrompt prompt{render(model, conversation, messages, false), {}};
  messages.back().reasoning.clear();
  const ChatPrompt without{render(model, conversation, messages, false), {}};
  const auto has_word = [&](const TextPiece& piece) {
    return !piece.parse_special && piece.text.find(kWord) != std::string::npos;
  };
  const bool has_reasoning = prompt.text() != without.text();
  while (!prompt.pieces.empty() && !has_word(prompt.pieces.back())) prompt.pieces.pop_back();
  if (!has_reasoning || prompt.pieces.empty())
    throw RequestError(400, "unsupported_value", "messages",
                       "messages: this model's chat template does not write the reasoning of the "
                       "last message, which the answer goes on with; leave the reasoning out");
  std::string& text = prompt.pieces.back().text;
  text.resize(text.rfind(kWord));
  if (const ReasoningSyntax* row = model.format.reasoning) {
    prompt.begun = fmt::format("{}{}", row->opens[0], row->closes[0]);
    const std::string before = prompt.text();
    for (const std::string_view mark : row->response_opens)
      if (before.ends_with(mark)) prompt.begun += mark;
  }
  text += content;
  prompt.begun += content;
  return prompt;
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

ChatPrompt chat_prompt(const ServedModel& model, const Conversation& conversation) {
  if (!model.chat_template)
    refuse_field("messages",
                 "this model has no chat template; use /v1/completions, or the server's "
                 "--chat-template-file "
                 "gives it one");
  try {
    model.chat_template->check_usable();
  } catch (const Error& error) {
    throw refusal(error);
  }
  if (conversation.has_tools())
    if (const auto why = why_no_calls(model.format))
      throw RequestError(400, "unsupported_value", "tools",
                         fmt::format("tools: not supported with this model: {}", *why));
  check_call_ids(model, conversation);
  return begins_with_reasoning(conversation) ? prompt_after_reasoning(model, conversation)
                                             : prompt_to_answer(model, conversation);
}

AnswerParserOptions parser_options(const Conversation& conversation, const ChatPrompt& prompt) {
  return {.tools = tools_text(conversation),
          .parallel_calls = conversation.parallel_calls,
          .begun = prompt.begun};
}

}  // namespace outrider
