#include "text/template_conventions.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/error.h"
#include "formats/parse_json.h"
#include "text/answer_format.h"

namespace outrider {
namespace {

using Json = nlohmann::ordered_json;
using Tools = TemplateConventions::Tools;

constexpr std::string_view kProbeResult = "probe_result";

Json probe_tools() {
  return Json::array(
      {{{"type", "function"},
        {"function",
         {{"name", kProbeName},
          {"description", "Probes."},
          {"parameters",
           {{"type", "object"},
            {"properties", {{"probe_key", {{"type", "string"}, {"description", "A key."}}}}},
            {"required", Json::array({"probe_key"})}}}}}}});
}

// Nothing if the template fails.
std::optional<std::vector<TextPiece>> rendered(const ChatTemplate& chat_template,
                                               const TemplateConversation& conversation,
                                               bool add_generation_prompt) {
  try {
    return chat_template.render(conversation.messages, add_generation_prompt,
                                {.tools = conversation.tools});
  } catch (const Error&) {
    return std::nullopt;
  }
}

std::optional<std::string> joined(const std::optional<std::vector<TextPiece>>& pieces) {
  if (!pieces) return std::nullopt;
  std::string out;
  for (const TextPiece& piece : *pieces) out += piece.text;
  return out;
}

bool is_in(const std::optional<std::string>& text, std::string_view part) {
  return text && text->find(part) != text->npos;
}

// The key of the system message that some templates read; one is put in front if there is none.
void set_system_tools(std::vector<Message>& messages, const Json& tools) {
  if (messages.empty() || messages[0].role != "system")
    messages.insert(messages.begin(), {"system", ""});
  Message& system = messages[0];
  Json more = system.more.empty() ? Json::object() : parse_ordered_json(system.more, "message 1");
  more["tools"] = tools;
  system.more = dump_json(more);
}

// Where the template looks for tools, and how.
void give_tools(const TemplateConventions& conventions, TemplateConversation& conversation) {
  if (conversation.tools.empty() || conventions.tools == Tools::variable) return;
  const Json tools = parse_ordered_json(std::exchange(conversation.tools, {}), "tools");
  if (conventions.tools == Tools::system_list) set_system_tools(conversation.messages, tools);
  if (conventions.tools != Tools::system_text) return;
  Json functions = Json::array();
  for (const Json& tool : tools)
    functions.push_back(tool.is_object() && tool.contains("function") ? tool["function"] : tool);
  set_system_tools(conversation.messages, dump_json(functions));
}

Tools where_tools_go(const ChatTemplate& chat_template) {
  for (const Tools tools : {Tools::variable, Tools::system_list, Tools::system_text}) {
    TemplateConversation conversation{{{"user", "u"}}, probe_tools().dump()};
    give_tools({.tools = tools}, conversation);
    if (is_in(joined(rendered(chat_template, conversation, true)), kProbeName)) return tools;
  }
  return Tools::nowhere;
}

// A question, a call and its result, as OpenAI gives them.
TemplateConversation probe() {
  const Json call = {{"id", "call_1"},
                     {"type", "function"},
                     {"function", {{"name", kProbeName}, {"arguments", kProbeArguments}}}};
  return {{{"user", "u"},
           {"assistant", "", Json({{"tool_calls", Json::array({call})}}).dump()},
           {"tool", std::string(kProbeResult),
            Json({{"tool_call_id", "call_1"}, {"name", kProbeName}}).dump()}},
          probe_tools().dump()};
}

// As JSON or as tags, not as Python writes it or quoted once more. Only calls have the value.
bool shows_arguments(const std::string& text) {
  return is_in(text, "probe_value") && !is_in(text, R"(probe_value\")") &&
         !is_in(text, "probe_value'");
}

// The probe's first messages as the template is to get them.
TemplateConversation probe(const TemplateConventions& conventions, std::size_t n_messages) {
  TemplateConversation given = probe();
  given.messages.resize(n_messages);
  return template_conversation(conventions, nullptr, std::move(given.messages),
                               std::move(given.tools));
}

std::string nine_letters(std::size_t number) {
  return fmt::format("call{:05}", number);
}

// The content with calls as the syntax writes them.
std::string with_calls(const ToolSyntax& syntax, const std::string& content, const Json& calls) {
  const std::string open(syntax.opens.empty() ? "" : syntax.opens[0]);
  const std::string close(syntax.closes.empty() ? "" : syntax.closes[0]);
  std::vector<std::string> parts;
  if (!content.empty()) parts.push_back(content);
  Json list = Json::array();
  for (const Json& call : calls) {
    const Json& function = call["function"];
    const std::string name = function["name"], arguments = dump_json(function["arguments"]);
    const Json object = {{"name", name}, {"arguments", function["arguments"]}};
    if (syntax.shape == ToolSyntax::Shape::named)
      parts.push_back(fmt::format("{}{}{}{}{}", open, name, syntax.name_ends[0], arguments, close));
    else if (syntax.lists)
      list.push_back(object);
    else
      parts.push_back(fmt::format("{}\n{}\n{}", open, dump_json(object), close));
  }
  if (!list.empty()) parts.push_back(open + std::string(syntax.fence) + dump_json(list) + close);
  return fmt::format("{}", fmt::join(parts, "\n"));
}

// A call's arguments as an object. A text that is none, such as a client has of an answer that
// broke off, becomes the only member of one, which every template can write.
Json arguments_object(const Json& function, const std::string& where) {
  const auto found = function.find("arguments");
  if (found == function.end() || found->is_null()) return Json::object();
  if (found->is_string()) {
    const std::string& text = found->get_ref<const std::string&>();
    if (text.find_first_not_of(" \n\r\t") == text.npos) return Json::object();
    try {
      if (Json arguments = parse_ordered_json(text, where); arguments.is_object()) return arguments;
    } catch (const Error&) {
    }
    return {{"arguments", text}};
  }
  if (!found->is_object())
    throw Error("{}: expected a JSON object, not {}", where, json_type(*found));
  return *found;
}

}  // namespace

TemplateConversation template_conversation(const TemplateConventions& conventions,
                                           const ToolSyntax* syntax, std::vector<Message> messages,
                                           std::string tools) {
  std::map<std::string, std::string> short_ids;
  const auto shorten = [&](Json& object, const char* key) {
    if (!conventions.short_ids || !object.contains(key) || !object[key].is_string()) return;
    object[key] =
        short_ids.try_emplace(object[key], nine_letters(short_ids.size() + 1)).first->second;
  };
  for (std::size_t i = 0; i < messages.size(); ++i) {
    Message& message = messages[i];
    const std::string where = fmt::format("message {}", i + 1);
    if (message.role == "tool") message.role = conventions.result_role;
    if (message.more.empty()) continue;
    Json more = parse_ordered_json(message.more, where);
    shorten(more, "tool_call_id");
    if (const auto calls = more.find("tool_calls"); calls != more.end() && !calls->empty()) {
      if (!calls->is_array())
        throw Error("{}: tool_calls must be a list, not {}", where, json_type(*calls));
      for (std::size_t k = 0; k < calls->size(); ++k) {
        Json& call = (*calls)[k];
        const std::string here = fmt::format("{}: call {}", where, k + 1);
        if (!call.is_object() || !call.contains("function") || !call["function"].is_object() ||
            !call["function"].contains("name") || !call["function"]["name"].is_string())
          throw Error("{}: needs a function with a name", here);
        Json& function = call["function"];
        function["arguments"] = arguments_object(function, here + ": arguments");
        shorten(call, "id");
      }
      if (more.contains("content") && more["content"].is_string())
        message.content = more["content"];
      more.erase("content");
      if (conventions.renders_calls) {
        for (Json& call : *calls)
          if (Json& arguments = call["function"]["arguments"]; conventions.text_arguments)
            arguments = dump_json(arguments);
        if (message.content.empty() && conventions.null_content) more["content"] = nullptr;
      } else if (syntax != nullptr) {
        message.content = with_calls(*syntax, message.content, *calls);
        more.erase("tool_calls");
      }
    }
    message.more = dump_json(more);
  }
  TemplateConversation out{std::move(messages), std::move(tools)};
  give_tools(conventions, out);
  return out;
}

TemplateConventions template_conventions(const ChatTemplate& chat_template) {
  const char* const roles[] = {"tool", "observation", "user"};
  const auto shows_result = [&](const TemplateConventions& tried) {
    return is_in(joined(rendered(chat_template, probe(tried, 3), true)), kProbeResult);
  };
  TemplateConventions found{.tools = where_tools_go(chat_template)};
  for (const bool short_ids : {false, true})
    for (const bool text_arguments : {false, true})
      for (const bool null_content : {false, true}) {
        TemplateConventions tried = found;
        tried.renders_calls = true;
        tried.short_ids = short_ids;
        tried.text_arguments = text_arguments;
        tried.null_content = null_content;
        const auto call = rendered_call(chat_template, tried);
        if (!call || !shows_arguments(call->whole)) continue;
        for (const char* const role : roles) {
          tried.result_role = role;
          if (shows_result(tried)) return tried;
        }
      }
  for (const char* const role : roles) {
    found.result_role = role;
    if (shows_result(found)) break;
  }
  return found;
}

std::optional<RenderedCall> rendered_call(const ChatTemplate& chat_template,
                                          const TemplateConventions& conventions) {
  if (!conventions.renders_calls) return std::nullopt;
  const auto question = rendered(chat_template, probe(conventions, 1), true);
  const auto whole = joined(rendered(chat_template, probe(conventions, 2), false));
  if (!question || !whole) return std::nullopt;
  return RenderedCall{*question, *whole};
}

}  // namespace outrider
