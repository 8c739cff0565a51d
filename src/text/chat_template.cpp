#include "text/chat_template.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "formats/parse_json.h"
#include "jinja/interpreter.h"
#include "jinja/parser.h"

namespace outrider {

struct ChatTemplate::Program {
  std::unique_ptr<jinja::Template> tree;
  std::string bos_text, eos_text;
};

namespace {

std::tm local_time() {
  const std::time_t seconds = std::time(nullptr);
  std::tm out = {};
  localtime_r(&seconds, &out);
  return out;
}

using Json = nlohmann::ordered_json;

// Everything in it is users' text, keys included.
jinja::Value value_of(jinja::Runtime& runtime, const Json& json) {
  switch (json.type()) {
    case Json::value_t::boolean: return jinja::Value::boolean(json.get<bool>());
    case Json::value_t::number_integer: return jinja::Value::integer(json.get<std::int64_t>());
    case Json::value_t::number_unsigned: return runtime.integer(dump_json(json));
    case Json::value_t::binary: {
      const std::string text(*literal_text(json));
      if (text.find_first_of(".eE") == text.npos) return runtime.integer(text);
      return jinja::Value::number(std::strtod(text.c_str(), nullptr));  // as Python: inf, 0
    }
    case Json::value_t::number_float: return jinja::Value::number(json.get<double>());
    case Json::value_t::string: return runtime.text(json.get_ref<const std::string&>(), true);
    case Json::value_t::array: {
      std::vector<jinja::Value> items;
      for (const Json& item : json) items.push_back(value_of(runtime, item));
      return runtime.list(std::move(items));
    }
    case Json::value_t::object: {
      std::vector<std::pair<jinja::Value, jinja::Value>> entries;
      for (const auto& [key, value] : json.items())
        entries.emplace_back(runtime.text(key, true), value_of(runtime, value));
      return runtime.mapping(entries);
    }
    default: return jinja::Value::none();
  }
}

// Nothing for an empty text. `what` names it in messages.
Json parsed(const std::string& text, std::string_view what, Json::value_t type) {
  if (text.empty()) return nullptr;
  Json json = parse_ordered_json(text, what);
  if (json.type() != type) {
    throw Error("{}: expected {}, not {}", what,
                type == Json::value_t::array ? "a list" : "an object", json_type(json));
  }
  return json;
}

jinja::Value message_value(jinja::Runtime& runtime, const Message& message, const Json& more) {
  std::vector<std::pair<jinja::Value, jinja::Value>> entries = {
      {runtime.text("role"), runtime.text(message.role, !is_usual_role(message.role))},
      {runtime.text("content"), runtime.text(message.content, true)},
  };
  for (const auto& [key, value] : more.items())
    entries.emplace_back(runtime.text(key, true), value_of(runtime, value));
  return runtime.mapping(entries);
}

}  // namespace

bool is_usual_role(std::string_view role) {
  static constexpr std::array<std::string_view, 8> kUsual = {
      "system", "developer", "user", "assistant", "model", "tool", "function", "ipython"};
  return std::find(kUsual.begin(), kUsual.end(), role) != kUsual.end();
}

ChatTemplate::ChatTemplate(std::string_view source, std::string origin, std::string bos_text,
                           std::string eos_text)
    : program_(std::make_unique<Program>()), source_(source) {
  program_->tree = jinja::parse(source, std::move(origin), jinja::TemplateLimits());
  program_->bos_text = std::move(bos_text);
  program_->eos_text = std::move(eos_text);
}
ChatTemplate::ChatTemplate() = default;
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;

ChatTemplate ChatTemplate::unusable(std::string_view source, std::string problem) {
  ChatTemplate result;
  result.source_ = source;
  result.problem_ = std::move(problem);
  return result;
}

void ChatTemplate::check_usable() const {
  if (problem_) throw Error(Remedy::chat_template, "{}; choose another chat template", *problem_);
}

void check_written(std::span<const TextPiece> pieces) {
  if (std::ranges::any_of(pieces, [](const TextPiece& piece) { return !piece.text.empty(); }))
    return;
  throw Error(Remedy::chat_template,
              "the chat template writes nothing for this conversation; choose another one");
}

std::vector<std::string> ChatTemplate::reasoning_switches() const {
  std::vector<std::string> switches;
  // Qwen, GLM and most others; Granite and DeepSeek.
  for (const char* variable : {"enable_thinking", "thinking"})
    if (names(variable)) switches.emplace_back(variable);
  return switches;
}

std::vector<TextPiece> ChatTemplate::render(std::span<const Message> messages,
                                            bool add_generation_prompt,
                                            const TemplateInputs& inputs) const {
  check_usable();
  jinja::RenderOptions options;
  options.now = inputs.now ? *inputs.now : local_time();
  // What a message takes in addition to its text.
  constexpr std::size_t kBytesPerMessage = 64;
  for (const Message& message : messages)
    options.input_bytes +=
        message.role.size() + message.content.size() + message.more.size() + kBytesPerMessage;
  options.input_bytes += inputs.tools.size() + inputs.documents.size() + inputs.variables.size();

  const Json tools = parsed(inputs.tools, "tools", Json::value_t::array);
  const Json documents = parsed(inputs.documents, "documents", Json::value_t::array);
  const Json given = parsed(inputs.variables, "variables", Json::value_t::object);
  const Json standing = parsed(variables_, "variables", Json::value_t::object);
  std::vector<Json> more;
  for (const Message& message : messages)
    more.push_back(parsed(message.more, "message", Json::value_t::object));

  const jinja::Text text =
      jinja::render(*program_->tree, options, [&](jinja::Runtime& runtime) -> jinja::Variables {
        std::vector<jinja::Value> values;
        for (std::size_t i = 0; i < messages.size(); ++i)
          values.push_back(message_value(runtime, messages[i], more[i]));
        jinja::Variables variables;
        // Of equal names the first counts.
        for (const Json* object : {&given, &standing})
          for (const auto& [key, value] : object->items())
            if (std::ranges::find(variables, key, &jinja::Variables::value_type::first) ==
                variables.end())
              variables.emplace_back(key, value_of(runtime, value));
        const jinja::Variables usual = {
            {"messages", runtime.list(std::move(values))},
            {"add_generation_prompt", jinja::Value::boolean(add_generation_prompt)},
            {"bos_token", runtime.text(program_->bos_text)},
            {"eos_token", runtime.text(program_->eos_text)},
            {"tools", value_of(runtime, tools)},
            {"documents", value_of(runtime, documents)},
        };
        for (const auto& variable : usual)
          if (std::ranges::find(variables, variable.first, &jinja::Variables::value_type::first) ==
              variables.end())
            variables.push_back(variable);
        return variables;
      });

  std::vector<TextPiece> pieces;
  text.stretches([&](std::string_view bytes, bool user) {
    pieces.push_back({std::string(bytes), !user});
  });
  return pieces;
}

namespace {

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == text.npos;
}

std::unique_ptr<ChatTemplate> parsed_template(std::string_view source, std::string origin,
                                              const Tokenizer& tokenizer) {
  const auto text_of = [&](std::optional<Token> token) {
    return token ? std::string(tokenizer.text(*token)) : std::string();
  };
  return std::make_unique<ChatTemplate>(source, std::move(origin), text_of(tokenizer.bos),
                                        text_of(tokenizer.eos));
}

}  // namespace

std::unique_ptr<ChatTemplate> make_chat_template(const Metadata& metadata,
                                                 const Tokenizer& tokenizer) {
  std::optional<std::string> source;
  try {
    source = metadata.string("tokenizer.chat_template");
    if (!source || is_blank(*source)) return nullptr;
    return parsed_template(*source, metadata.origin(), tokenizer);
  } catch (const Error& error) {
    return std::make_unique<ChatTemplate>(
        ChatTemplate::unusable(source.value_or(""), error.what()));
  }
}

std::unique_ptr<ChatTemplate> make_chat_template(std::string_view source, std::string origin,
                                                 const Tokenizer& tokenizer) {
  if (is_blank(source)) throw Error("{}: is empty, expected a chat template", origin);
  return parsed_template(source, std::move(origin), tokenizer);
}

}  // namespace outrider
