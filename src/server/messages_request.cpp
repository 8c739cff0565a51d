#include "server/messages_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "formats/parse_json.h"
#include "server/other_fields.h"

namespace outrider {
namespace {

// With what other fields decide the meaning of.
struct MessagesFields : MessagesRequest {
  std::string system;
};

using MessagesReader = FieldReader<MessagesFields>;

// What a block begins with that changes from request to request and tells the model nothing: with
// it no prompt would be found in the cache.
constexpr std::string_view kBillingHeader = "x-anthropic-billing-header";

// Adds to the conversation what one block holds, or a whole content.
void add(std::vector<ChatMessage>& messages, ChatMessage part) {
  const bool joins = !messages.empty() && messages.back().role == part.role && part.role != "tool";
  if (!joins) {
    messages.push_back(std::move(part));
    return;
  }
  ChatMessage& message = messages.back();
  const auto add_line = [](std::string& text, const std::string& line) {
    if (!text.empty() && !line.empty()) text += '\n';
    text += line;
  };
  if (part.content) {
    if (!message.content) message.content.emplace();
    add_line(*message.content, *part.content);
  }
  add_line(message.reasoning, part.reasoning);
  for (ToolCall& call : part.calls) message.calls.push_back(std::move(call));
}

// A kind of block, and the message that one of it is a part of.
struct BlockKind {
  std::string type;
  std::vector<std::string> roles;  // of those who write such blocks
  std::vector<std::string> required;
  FieldTable<ChatMessage> fields;
};

FieldReader<ChatMessage> content_field() {
  return {"a string",
          [](const FieldValue& value, ChatMessage& message) { message.content = value.text(); }};
}

BlockKind text_block() {
  BlockKind kind{"text", {"user", "assistant", "system"}, {"text"}, {}};
  kind.fields.obeyed("text", content_field(), "required");
  kind.fields.refused("citations", {"[]"});
  return kind;
}

BlockKind thinking_block() {
  BlockKind kind{"thinking", {"assistant"}, {"thinking"}, {}};
  kind.fields.obeyed("thinking", text_field(&ChatMessage::reasoning), "required");
  kind.fields.harmless("signature");
  return kind;
}

BlockKind tool_use_block() {
  using Message = ChatMessage;
  BlockKind kind{"tool_use", {"assistant"}, {"id", "name", "input"}, {}};
  const auto call = [](Message& message) -> ToolCall& {
    if (message.calls.empty()) message.calls.emplace_back();
    return message.calls[0];
  };
  const auto text_of_call = [=](std::string ToolCall::*member) -> FieldReader<Message> {
    return {"a string", [=](const FieldValue& value, Message& message) {
              call(message).*member = value.text();
            }};
  };
  kind.fields.obeyed("id", text_of_call(&ToolCall::id), "required");
  kind.fields.obeyed("name", text_of_call(&ToolCall::name), "required");
  kind.fields.obeyed("input",
                     {"an object",
                      [=](const FieldValue& value, Message& message) {
                        value.check_object();
                        call(message).arguments = dump_json(value.json());
                      }},
                     "required");
  kind.fields.harmless("caller");
  kind.fields.harmless("toolset_name");
  return kind;
}

std::string text_of_blocks(const FieldValue& value, std::string_view except = {});

BlockKind tool_result_block() {
  BlockKind kind{"tool_result", {"user"}, {"tool_use_id"}, {}};
  kind.fields.obeyed("tool_use_id", text_field(&ChatMessage::call_id), "required");
  kind.fields.obeyed("content", {"a string, or a list of text blocks",
                                 [](const FieldValue& value, ChatMessage& message) {
                                   message.content = text_of_blocks(value);
                                 }});
  kind.fields.harmless("is_error");
  kind.fields.harmless("toolset_name");
  return kind;
}

const std::vector<BlockKind>& block_kinds() {
  static const std::vector<BlockKind> kinds = [] {
    std::vector<BlockKind> kinds = {text_block(), thinking_block(), tool_use_block(),
                                    tool_result_block()};
    for (BlockKind& kind : kinds) {
      kind.fields.obeyed("type", supported_word_field<ChatMessage>({kind.type}), "required");
      kind.fields.harmless("cache_control");
    }
    return kinds;
  }();
  return kinds;
}

ChatMessage read_block(const FieldValue& value, const std::string& role) {
  const FieldValue type = value.at("type");
  const auto kind = std::ranges::find(block_kinds(), type.text(), &BlockKind::type);
  if (kind == block_kinds().end()) type.unsupported("send text");
  if (std::ranges::find(kind->roles, role) == kind->roles.end())
    type.refuse(fmt::format("found {}, which has no place here", in_quotes(kind->type)));
  for (const std::string& field : kind->required) value.at(field);
  ChatMessage message{.role = kind->type == "tool_result" ? "tool" : role};
  kind->fields.read(value, message);
  return message;
}

// A string, or the texts of a list of text blocks, each in a line of its own, but those that begin
// with `except`.
std::string text_of_blocks(const FieldValue& value, std::string_view except) {
  if (value.json().is_string()) return value.text();
  if (!value.json().is_array()) value.expected("a string or a list of blocks");
  std::vector<ChatMessage> messages;
  value.each_item([&](const FieldValue& block) {
    ChatMessage message = read_block(block, "system");
    const bool is_wanted = except.empty() || !message.content->starts_with(except);
    if (is_wanted) add(messages, std::move(message));
  });
  return messages.empty() ? "" : *messages[0].content;
}

struct Turn {
  std::string role;
};

FieldTable<Turn> turn_fields() {
  FieldTable<Turn> table;
  table.obeyed("role", word_field(&Turn::role, {"user", "assistant", "system"}), "required");
  // Read when the role is known.
  table.obeyed("content", FieldReader<Turn>{"a string, or a list of blocks", nullptr}, "required");
  return table;
}

void read_turn(const FieldValue& value, std::vector<ChatMessage>& messages) {
  static const FieldTable<Turn> table = turn_fields();
  value.at("role");
  const FieldValue content = value.at("content");
  Turn turn;
  table.read(value, turn);
  if (content.json().is_string() || content.json().empty()) {
    add(messages, {.role = turn.role, .content = text_of_blocks(content)});
    return;
  }
  if (!content.json().is_array()) content.expected("a string or a list of blocks");
  content.each_item([&](const FieldValue& block) { add(messages, read_block(block, turn.role)); });
}

FieldReader<Conversation> messages_field(const GenerationLimits& limits) {
  return {fmt::format("a list of 1 to {} messages", limits.messages),
          [most = limits.messages](const FieldValue& value, Conversation& conversation) {
            value.each_item([&](const FieldValue& item) { read_turn(item, conversation.messages); },
                            1, most);
          }};
}

struct OwnTool {
  Json function = Json::object();
};

FieldTable<OwnTool> own_tool_fields() {
  FieldTable<OwnTool> table;
  table.obeyed("name",
               {"a string",
                [](const FieldValue& name, OwnTool& tool) {
                  if (name.text().empty()) name.refuse("is empty");
                  tool.function["name"] = name.text();
                }},
               "required");
  table.obeyed("description", {"a string", [](const FieldValue& text, OwnTool& tool) {
                                 tool.function["description"] = text.text();
                               }});
  table.obeyed("input_schema",
               {"an object",
                [](const FieldValue& schema, OwnTool& tool) {
                  schema.check_object();
                  tool.function["parameters"] = schema.json();
                }},
               "required");
  table.refused("type", {R"("custom")"});
  table.refused("strict", {"false"});
  table.refused("defer_loading", {"false"});
  table.refused("input_examples", {"[]"});
  table.refused("allowed_callers", {R"(["direct"])"});
  table.harmless("eager_input_streaming");
  table.harmless("cache_control");
  return table;
}

// As OpenAI has it.
Json read_own_tool(const FieldValue& value) {
  static const FieldTable<OwnTool> table = own_tool_fields();
  if (const auto type = value.find("type"); type && type->json() != "custom")
    type->unsupported("define the tool by name, description and input_schema");
  value.at("name");
  value.at("input_schema");
  OwnTool tool;
  table.read(value, tool);
  return {{"type", "function"}, {"function", tool.function}};
}

FieldReader<Conversation> tools_field(const GenerationLimits& limits) {
  return {fmt::format("a list of at most {} tools of one's own", limits.tools),
          [most = limits.tools](const FieldValue& value, Conversation& conversation) {
            value.each_item(
                [&](const FieldValue& tool) { conversation.tools.push_back(read_own_tool(tool)); },
                0, most);
          }};
}

struct ToolChoice {
  bool is_one = false;
};

FieldTable<ToolChoice> tool_choice_fields() {
  FieldTable<ToolChoice> table;
  table.obeyed("type", supported_word_field<ToolChoice>({"auto", "none"}), "required");
  table.obeyed("disable_parallel_tool_use", boolean_field(&ToolChoice::is_one),
               "the first call ends the answer");
  return table;
}

FieldReader<Conversation> tool_choice_field() {
  return {R"(an object with `type`, "auto" or "none", and `disable_parallel_tool_use`)",
          [table = tool_choice_fields()](const FieldValue& value, Conversation& conversation) {
            const FieldValue type = value.at("type");
            ToolChoice choice;
            table.read(value, choice);
            conversation.uses_tools = type.json() == "auto";
            conversation.parallel_calls = !choice.is_one;
          }};
}

struct Thinking {
  std::string type, display;
  std::optional<int> budget;
};

FieldTable<Thinking> thinking_fields() {
  constexpr int kLeastBudget = 1024;
  FieldTable<Thinking> table;
  table.obeyed("type", word_field(&Thinking::type, {"enabled", "adaptive", "disabled"}),
               "required");
  table.obeyed("budget_tokens", integer_field(&Thinking::budget, kLeastBudget, kIntMax),
               "required with \"enabled\"; at most `max_tokens`");
  table.obeyed("display", word_field(&Thinking::display, {"summarized", "omitted"}),
               "\"omitted\": blocks of thinking are empty");
  return table;
}

MessagesReader thinking_field() {
  return {R"(an object with `type`, "enabled", "adaptive" or "disabled"; `budget_tokens`; )"
          R"(`display`, "summarized" or "omitted")",
          [table = thinking_fields()](const FieldValue& value, MessagesFields& fields) {
            value.at("type");
            Thinking thinking;
            table.read(value, thinking);
            if (thinking.type == "enabled") value.at("budget_tokens");
            if (thinking.type != "adaptive") fields.reasoning = thinking.type == "enabled";
            fields.shows_thinking = thinking.display != "omitted";
            fields.thinking_budget = thinking.budget;
          }};
}

FieldTable<MessagesFields> output_config_fields() {
  FieldTable<MessagesFields> table;
  table.obeyed("effort", word_field(&MessagesFields::reasoning_effort,
                                    {"low", "medium", "high", "xhigh", "max"}));
  table.refused("format");
  table.refused("task_budget");
  return table;
}

MessagesReader output_config_field() {
  return {"an object with `effort`: low, medium, high, xhigh or max",
          [table = output_config_fields()](const FieldValue& value, MessagesFields& fields) {
            table.read(value, fields);
          }};
}

MessagesReader stop_sequences_field(const GenerationLimits& limits) {
  const FieldReader<GenerationFields> reader = stop_field(limits);
  return {fmt::format("a list of at most {} strings", limits.stops),
          [reader](const FieldValue& value, MessagesFields& fields) {
            if (!value.json().is_array()) value.expected("a list of strings");
            reader.read(value, fields);
          }};
}

MessagesReader system_field() {
  return {"a string, or a list of text blocks",
          [](const FieldValue& value, MessagesFields& fields) {
            fields.system = text_of_blocks(value, kBillingHeader);
          }};
}

FieldTable<MessagesFields> messages_table(const GenerationLimits& limits) {
  FieldTable<MessagesFields> table;
  table.obeyed("messages", messages_field(limits), "required");
  table.obeyed("system", system_field(),
               "without blocks that begin with `x-anthropic-billing-header`");
  table.obeyed("max_tokens", integer_field(&MessagesFields::max_tokens, 0, kIntMax), "required");
  table.add(served_fields());
  table.obeyed("stop_sequences", stop_sequences_field(limits),
               "end the answer; not part of it; may be special tokens, whose text is invisible");
  table.obeyed("temperature", temperature_field(1), "0: always the best token");
  table.obeyed("top_p", filter_field(&FilterSettings::top_p, 0, 1));
  table.obeyed("top_k", top_k_field(), "0 or -1: all");
  table.obeyed("thinking", thinking_field(),
               "whether to think, where the chat template has a switch; thinking that takes more "
               "than `budget_tokens` is ended");
  table.obeyed("output_config", output_config_field(), "where the chat template knows an effort");
  table.obeyed("tools", tools_field(limits), "refused where the model's format is not known");
  table.obeyed("tool_choice", tool_choice_field());
  table.obeyed("chat_template_kwargs", variables_field(), "variables of the chat template");
  table.fall_back_on(other_fields<MessagesFields>());
  return table;
}

void put_system(MessagesFields& fields) {
  if (fields.system.empty()) return;
  std::vector<ChatMessage> messages;
  add(messages, {.role = "system", .content = std::move(fields.system)});
  for (ChatMessage& message : fields.messages) add(messages, std::move(message));
  fields.messages = std::move(messages);
}

// An assistant's text at the end is the beginning of the answer. A conversation that is only
// counted may end with more: it is counted as it stands.
void find_beginning(MessagesFields& fields, bool wants_answer) {
  const ChatMessage& last = fields.messages.back();
  if (last.role != "assistant") return;
  const bool is_text = last.content && last.calls.empty();
  fields.continues = is_text && (wants_answer || last.reasoning.empty());
  fields.add_generation_prompt = fields.continues;
  if (wants_answer && !is_text)
    refuse_field("messages",
                 "the last one of an assistant must be a text that the answer goes on "
                 "with; results of its calls are missing");
}

MessagesRequest read(std::string_view body, const GenerationLimits& limits, bool wants_answer,
                     const UnknownFieldListener& unknown) {
  const Json json = parse_body(body);
  MessagesFields fields;
  messages_table(limits).read(FieldValue(json, unknown), fields);
  check_generation(fields);
  if (fields.messages.empty()) refuse_field("messages", "is missing");
  if (wants_answer && !fields.max_tokens) refuse_field("max_tokens", "is missing");
  if (fields.max_tokens && fields.thinking_budget.value_or(0) > *fields.max_tokens)
    refuse_field("thinking.budget_tokens", "must not be more than max_tokens");
  put_system(fields);
  find_beginning(fields, wants_answer);
  return fields;
}

}  // namespace

MessagesRequest read_messages_request(std::string_view body, const GenerationLimits& limits,
                                      const UnknownFieldListener& unknown) {
  return read(body, limits, true, unknown);
}

MessagesRequest read_count_request(std::string_view body, const GenerationLimits& limits,
                                   const UnknownFieldListener& unknown) {
  return read(body, limits, false, unknown);
}

std::vector<FieldRow> messages_request_fields(const GenerationLimits& limits) {
  return messages_table(limits).rows();
}

std::vector<PartRows> messages_part_fields() {
  std::vector<PartRows> parts = {{"Messages of `/v1/messages`", turn_fields().rows()}};
  for (const BlockKind& kind : block_kinds())
    parts.push_back({"Blocks of type `" + kind.type + "`", kind.fields.rows()});
  parts.push_back({"Tools of `/v1/messages`", own_tool_fields().rows()});
  parts.push_back({"`tool_choice` of `/v1/messages`", tool_choice_fields().rows()});
  parts.push_back({"`thinking`", thinking_fields().rows()});
  parts.push_back({"`output_config`", output_config_fields().rows()});
  return parts;
}

}  // namespace outrider
