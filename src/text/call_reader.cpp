#include "text/call_reader.h"

#include <algorithm>
#include <array>
#include <set>

#include "base/error.h"
#include "formats/parse_json.h"

namespace outrider {
namespace {

using Kind = AnswerDelta::Kind;

constexpr std::size_t kNameBytesMax = 256;

bool is_of_name(char byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'a' && byte <= 'z') ||
         (byte >= 'A' && byte <= 'Z') || byte == '_' || byte == '-' || byte == '.' || byte == ':' ||
         byte == '/';
}

std::string quoted(const std::string& text) {
  return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// Of a string that JsonScanner took.
std::string unquoted(const std::string& json) {
  return nlohmann::json::parse(json, nullptr, false).get<std::string>();
}

void collect_types(const nlohmann::json& schema, std::vector<std::string>& out, int depth = 0) {
  constexpr int kDepthMax = 4;  // of alternatives within alternatives
  if (!schema.is_object() || depth > kDepthMax) return;
  if (const auto type = schema.find("type"); type != schema.end()) {
    for (const nlohmann::json& one : type->is_array() ? *type : nlohmann::json::array({*type}))
      if (one.is_string()) out.push_back(one);
  }
  for (const char* key : {"anyOf", "oneOf"}) {
    const auto list = schema.find(key);
    if (list == schema.end() || !list->is_array()) continue;
    for (const nlohmann::json& one : *list) collect_types(one, out, depth + 1);
  }
}

bool is_of_type(const std::string& json, std::string_view type) {
  switch (json.front()) {
    case '{': return type == "object";
    case '[': return type == "array";
    case '"': return type == "string";
    case 't':
    case 'f': return type == "boolean";
    case 'n': return type == "null";
    default: return type == "number" || type == "integer";
  }
}

}  // namespace

void AnswerDeltas::add(Kind kind, std::string_view text) {
  const bool is_text = kind == Kind::content || kind == Kind::reasoning || kind == Kind::arguments;
  if (is_text && text.empty()) return;
  const bool is_of_call = kind != Kind::content && kind != Kind::reasoning;
  if (is_text && !deltas_.empty() && deltas_.back().kind == kind)
    deltas_.back().text += text;
  else
    deltas_.push_back({kind, std::string(text), is_of_call ? call_ : 0});
  if (kind == Kind::call_end || kind == Kind::call_void) ++call_;
  if (kind == Kind::call_end) ++n_complete_;
}

GivenTools::GivenTools(const std::string& json) {
  if (json.empty()) return;
  const nlohmann::json list = parse_json(json, "tools");
  if (!list.is_array()) throw Error("tools: expected a list, not {}", json_type(list));
  for (std::size_t i = 0; i < list.size(); ++i) {
    const nlohmann::json& tool = list[i];
    const nlohmann::json& function =
        tool.is_object() && tool.contains("function") ? tool["function"] : tool;
    if (!function.is_object() || !function.contains("name") || !function["name"].is_string())
      throw Error("tools: item {}: needs a function with a name", i + 1);
    auto& parameters = types_[function["name"]];
    const nlohmann::json properties = function.value(
        nlohmann::json::json_pointer("/parameters/properties"), nlohmann::json::object());
    for (const auto& [name, schema] : properties.items()) collect_types(schema, parameters[name]);
  }
}

std::string GivenTools::argument(const std::string& tool, const std::string& parameter,
                                 const std::string& value) const {
  std::vector<std::string> types;
  if (const auto found = types_.find(tool); found != types_.end())
    if (const auto at = found->second.find(parameter); at != found->second.end())
      types = at->second;
  const bool may_be_text = std::ranges::find(types, "string") != types.end();
  if (may_be_text && types.size() == 1) return quoted(value);
  // Templates write Python's own words.
  static const std::map<std::string, std::string, std::less<>> kPython = {
      {"True", "true"}, {"False", "false"}, {"None", "null"}};
  const auto word = kPython.find(value);
  const std::optional<std::string> json =
      word == kPython.end() ? scanned_json(value) : word->second;
  if (!json) return quoted(value);
  const bool fits =
      std::ranges::any_of(types, [&](const std::string& type) { return is_of_type(*json, type); });
  return may_be_text && !fits ? quoted(value) : *json;
}

CallReader::CallReader(const ToolSyntax& syntax, std::string_view open, bool given_only,
                       const GivenTools& tools, AnswerDeltas& out)
    : syntax_(syntax), given_only_(given_only), tools_(tools), out_(out) {
  switch (syntax.shape) {
    case ToolSyntax::Shape::json:
      state_ = syntax.fence.empty() ? &CallReader::calls : &CallReader::fence;
      break;
    case ToolSyntax::Shape::named: state_ = &CallReader::name; break;
    case ToolSyntax::Shape::tagged:
      state_ = open.ends_with('=') ? &CallReader::function_name : &CallReader::function_tag;
      break;
  }
}

bool CallReader::may_begin(const ToolSyntax& syntax, char byte) {
  return syntax.shape == ToolSyntax::Shape::json ? byte == '{' || byte == '[' : is_of_name(byte);
}

CallReader::Outcome CallReader::go(State state) {
  state_ = state;
  return Outcome::more;
}

CallReader::Match CallReader::match(char byte, std::span<const std::string_view> texts) {
  matched_ += byte;
  Match best = Match::wrong;
  for (const std::string_view text : texts) {
    if (text == matched_) return Match::whole;
    if (text.starts_with(matched_)) best = Match::more;
  }
  return best;
}

bool CallReader::is_name_known() const {
  return !name_.empty() && (!given_only_ || tools_.has(name_));
}

void CallReader::begin() {
  begun_ = true;
  out_.add(Kind::call, name_);
}

void CallReader::complete() {
  begun_ = false;
  complete_ = true;
  out_.add(Kind::call_end);
}

// JSON

CallReader::Outcome CallReader::fence(char byte) {
  if (matched_.empty() && is_white(byte)) return Outcome::more;
  switch (match(byte, {&syntax_.fence, 1})) {
    case Match::more: return Outcome::more;
    case Match::whole: return go(&CallReader::calls);
    default: return Outcome::wrong;
  }
}

CallReader::Outcome CallReader::calls(char byte) {
  if (byte != '[') return item(byte);
  in_list_ = true;
  return go(&CallReader::item);
}

CallReader::Outcome CallReader::item(char byte) {
  if (is_white(byte)) return Outcome::more;
  if (byte != '{') return Outcome::wrong;
  complete_ = false;
  name_.clear();
  collected_.clear();
  return go(&CallReader::key_or_end);
}

CallReader::Outcome CallReader::key_or_end(char byte) {
  return byte == '}' ? object_end() : key_begin(byte);
}

CallReader::Outcome CallReader::key_begin(char byte) {
  if (is_white(byte)) return Outcome::more;
  if (byte != '"') return Outcome::wrong;
  scanner_ = {};
  key_.clear();
  state_ = &CallReader::key;
  return key(byte);
}

CallReader::Outcome CallReader::key(char byte) {
  switch (scanner_.push(byte, key_)) {
    case JsonScanner::Outcome::more: return Outcome::more;
    case JsonScanner::Outcome::last: key_ = unquoted(key_); break;
    default: return Outcome::wrong;
  }
  // Whatever else an answer in JSON has does not wait for its end.
  static const std::set<std::string, std::less<>> kKeys = {
      "name", "tool_name", "arguments", "parameters", "type", "id", "tool_call_id"};
  return given_only_ && !kKeys.contains(key_) ? Outcome::wrong : go(&CallReader::colon);
}

CallReader::Outcome CallReader::colon(char byte) {
  if (is_white(byte)) return Outcome::more;
  return byte == ':' ? go(&CallReader::value_begin) : Outcome::wrong;
}

CallReader::Outcome CallReader::value_begin(char byte) {
  if (is_white(byte)) return Outcome::more;
  role_ = Role::other;
  if ((key_ == "name" || key_ == "tool_name") && name_.empty()) {
    if (byte != '"') return Outcome::wrong;
    role_ = Role::name;
  } else if ((key_ == "arguments" || key_ == "parameters") && !complete_ && byte != 'n') {
    if ((byte != '{' && byte != '"') || !collected_.empty()) return Outcome::wrong;
    role_ = byte == '{' ? Role::arguments : Role::quoted_arguments;
    if (byte == '{' && !name_.empty()) begin();
  }
  scanner_ = {};
  state_ = &CallReader::value;
  return value(byte);
}

CallReader::Outcome CallReader::value(char byte) {
  std::string piece;
  const JsonScanner::Outcome outcome = scanner_.push(byte, piece);
  if (outcome == JsonScanner::Outcome::wrong) return Outcome::wrong;
  if (role_ == Role::name) name_ += piece;
  if (begun_)
    out_.add(Kind::arguments, piece);
  else if (role_ == Role::arguments || role_ == Role::quoted_arguments)
    collected_ += piece;
  if (outcome == JsonScanner::Outcome::more) return Outcome::more;

  state_ = &CallReader::after_value;
  if (outcome == JsonScanner::Outcome::beyond) return after_value(byte);
  if (begun_) {
    complete();
    return Outcome::more;
  }
  if (role_ == Role::name) {
    name_ = unquoted(name_);
    if (!is_name_known()) return Outcome::wrong;
  } else if (role_ == Role::quoted_arguments) {
    const std::optional<std::string> json = scanned_json(unquoted(collected_));
    if (!json || !json->starts_with('{')) return Outcome::wrong;
    collected_ = *json;
  }
  if (!complete_ && !name_.empty() && !collected_.empty()) {
    begin();
    out_.add(Kind::arguments, collected_);
    complete();
  }
  return Outcome::more;
}

CallReader::Outcome CallReader::after_value(char byte) {
  if (is_white(byte)) return Outcome::more;
  if (byte == ',') return go(&CallReader::key_begin);
  return byte == '}' ? object_end() : Outcome::wrong;
}

CallReader::Outcome CallReader::object_end() {
  if (!complete_) {
    // A function without parameters.
    if (name_.empty() || !collected_.empty() || given_only_) return Outcome::wrong;
    begin();
    out_.add(Kind::arguments, "{}");
    complete();
  }
  return in_list_ ? go(&CallReader::after_item) : Outcome::last;
}

CallReader::Outcome CallReader::after_item(char byte) {
  if (is_white(byte)) return Outcome::more;
  if (byte == ',') return go(&CallReader::item);
  return byte == ']' ? Outcome::last : Outcome::wrong;
}

// A name, then JSON

CallReader::Outcome CallReader::name(char byte) {
  if (is_of_name(byte)) {
    name_ += byte;
    return name_.size() <= kNameBytesMax ? Outcome::more : Outcome::wrong;
  }
  if (name_.empty()) return is_white(byte) ? Outcome::more : Outcome::wrong;
  if (!syntax_.answer_name.empty() && name_ == syntax_.answer_name)
    state_ = &CallReader::answer_end;
  else if (!is_name_known())
    return Outcome::wrong;
  else
    state_ = &CallReader::name_end;
  return push(byte);
}

CallReader::Outcome CallReader::name_end(char byte) {
  if (matched_.empty() && byte == ' ') return Outcome::more;
  std::vector<std::string_view> texts = syntax_.name_ends;
  if (!syntax_.id_begin.empty()) texts.push_back(syntax_.id_begin);
  switch (match(byte, texts)) {
    case Match::more: return Outcome::more;
    case Match::whole: break;
    default: return Outcome::wrong;
  }
  const bool is_id = std::exchange(matched_, {}) == syntax_.id_begin;
  return go(is_id ? &CallReader::id : &CallReader::arguments_begin);
}

CallReader::Outcome CallReader::id(char byte) {
  if (is_of_name(byte)) return Outcome::more;
  state_ = &CallReader::name_end;
  return push(byte);
}

CallReader::Outcome CallReader::answer_end(char byte) {
  switch (match(byte, syntax_.name_ends)) {
    case Match::more: return Outcome::more;
    case Match::whole: return Outcome::answer;
    default: return Outcome::wrong;
  }
}

CallReader::Outcome CallReader::arguments_begin(char byte) {
  if (is_white(byte)) return Outcome::more;
  if (byte != '{') return Outcome::wrong;
  begin();
  state_ = &CallReader::arguments;
  return arguments(byte);
}

CallReader::Outcome CallReader::arguments(char byte) {
  std::string piece;
  const JsonScanner::Outcome outcome = scanner_.push(byte, piece);
  if (outcome == JsonScanner::Outcome::wrong) return Outcome::wrong;
  out_.add(Kind::arguments, piece);
  if (outcome == JsonScanner::Outcome::more) return Outcome::more;
  complete();
  return Outcome::last;
}

// Tags

constexpr std::string_view kFunction = "<function=", kFunctionEnd = "</function>",
                           kParameter = "<parameter=", kParameterEnd = "</parameter>";

CallReader::Outcome CallReader::function_tag(char byte) {
  if (matched_.empty() && is_white(byte)) return Outcome::more;
  switch (match(byte, {&kFunction, 1})) {
    case Match::more: return Outcome::more;
    case Match::whole: return go(&CallReader::function_name);
    default: return Outcome::wrong;
  }
}

CallReader::Outcome CallReader::function_name(char byte) {
  matched_.clear();
  if (is_of_name(byte)) {
    name_ += byte;
    return name_.size() <= kNameBytesMax ? Outcome::more : Outcome::wrong;
  }
  return byte == '>' && is_name_known() ? go(&CallReader::parameter_tag) : Outcome::wrong;
}

CallReader::Outcome CallReader::parameter_tag(char byte) {
  if (matched_.empty() && is_white(byte)) return Outcome::more;
  static constexpr std::array kTexts = {kParameter, kFunctionEnd};
  switch (match(byte, kTexts)) {
    case Match::more: return Outcome::more;
    case Match::whole: break;
    default: return Outcome::wrong;
  }
  if (std::exchange(matched_, {}) == kParameter) {
    key_.clear();
    return go(&CallReader::parameter_name);
  }
  std::string arguments = "{";
  for (const auto& [key, json] : parameters_) {
    if (arguments.size() > 1) arguments += ", ";
    arguments += quoted(key) + ": " + json;
  }
  begin();
  out_.add(Kind::arguments, arguments + "}");
  complete();
  return Outcome::last;
}

CallReader::Outcome CallReader::parameter_name(char byte) {
  collected_.clear();
  if (byte == '>') return key_.empty() ? Outcome::wrong : go(&CallReader::parameter_value);
  key_ += byte;
  return byte != '\n' && key_.size() <= kNameBytesMax ? Outcome::more : Outcome::wrong;
}

CallReader::Outcome CallReader::parameter_value(char byte) {
  collected_ += byte;
  if (!collected_.ends_with(kParameterEnd)) return Outcome::more;
  std::string_view value = collected_;
  value.remove_suffix(kParameterEnd.size());
  if (value.starts_with('\n')) value.remove_prefix(1);
  if (value.ends_with('\n')) value.remove_suffix(1);
  const std::string json = tools_.argument(name_, key_, std::string(value));
  const auto same =
      std::ranges::find(parameters_, key_, &std::pair<std::string, std::string>::first);
  if (same == parameters_.end())
    parameters_.emplace_back(key_, json);
  else
    same->second = json;
  return go(&CallReader::parameter_tag);
}

}  // namespace outrider
