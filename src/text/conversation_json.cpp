#include "text/conversation_json.h"

#include "base/error.h"
#include "formats/parse_json.h"

namespace outrider {
namespace {

using Json = nlohmann::ordered_json;

std::string text_of_part(const Json& part, const std::string& where) {
  if (!part.is_object() || !part.contains("type") || !part["type"].is_string())
    throw Error("{}: a part of a content must be an object with a type", where);
  const std::string type = part["type"];
  if (type != "text") throw Error("{}: content of type '{}'; only text is supported", where, type);
  if (!part.contains("text") || !part["text"].is_string())
    throw Error("{}: a part of type text needs the key 'text', a string", where);
  return part["text"];
}

Message message(const Json& json, const std::string& where) {
  if (!json.is_object()) throw Error("{}: expected an object with role and content", where);
  if (!json.contains("role") || !json["role"].is_string())
    throw Error("{}: needs the key 'role', a string", where);
  if (json.contains("function_call") && !json["function_call"].is_null())
    throw Error("{}: 'function_call' is not supported; write it as 'tool_calls'", where);
  Message out{json["role"], ""};
  const bool calls = json.contains("tool_calls") && !json["tool_calls"].is_null();
  if (calls && !json["tool_calls"].is_array())
    throw Error("{}: 'tool_calls' must be a list, not {}", where, json_type(json["tool_calls"]));
  if (!json.contains("content") && !calls) throw Error("{}: needs the key 'content'", where);
  const Json content = json.contains("content") ? json["content"] : Json();
  Json more = Json::object();
  for (const auto& [key, value] : json.items())
    if (key != "role" && key != "content") more[key] = value;
  if (content.is_null() && calls) more["content"] = nullptr;  // templates tell null from empty
  if (!more.empty()) out.more = dump_json(more);
  if (content.is_string()) {
    out.content = content;
  } else if (content.is_array()) {
    for (const Json& part : content) out.content += text_of_part(part, where);
  } else if (!content.is_null()) {
    throw Error("{}: 'content' must be a string or a list of parts, not {}", where,
                json_type(content));
  }
  return out;
}

}  // namespace

std::vector<Message> parse_conversation(std::string_view text, std::string_view origin) {
  const Json json = parse_ordered_json(text, origin);
  const bool is_wrapped = json.is_object() && json.contains("messages");
  const Json& list = is_wrapped ? json["messages"] : json;
  if (!list.is_array())
    throw Error("{}: expected a list of messages, or an object with the key 'messages'", origin);
  std::vector<Message> out;
  for (std::size_t i = 0; i < list.size(); ++i)
    out.push_back(message(list[i], fmt::format("{}: message {}", origin, i + 1)));
  return out;
}

}  // namespace outrider
