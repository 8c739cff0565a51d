#include "text/chat_template.h"

#include <algorithm>
#include <array>
#include <utility>

#include "text/jinja/interpreter.h"
#include "text/jinja/parser.h"

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

jinja::Value message_value(jinja::Runtime& runtime, const Message& message) {
  return runtime.mapping({
      {runtime.text("role"), runtime.text(message.role, !is_usual_role(message.role))},
      {runtime.text("content"), runtime.text(message.content, true)},
  });
}

}  // namespace

bool is_usual_role(std::string_view role) {
  static constexpr std::array<std::string_view, 8> kUsual = {
      "system", "developer", "user", "assistant", "model", "tool", "function", "ipython"};
  return std::find(kUsual.begin(), kUsual.end(), role) != kUsual.end();
}

ChatTemplate::ChatTemplate(std::string_view source, std::string origin, std::string bos_text,
                           std::string eos_text)
    : program_(std::make_unique<Program>()) {
  program_->tree = jinja::parse(source, std::move(origin), jinja::TemplateLimits());
  program_->bos_text = std::move(bos_text);
  program_->eos_text = std::move(eos_text);
}
ChatTemplate::~ChatTemplate() = default;
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;

std::vector<TextPiece> ChatTemplate::render(std::span<const Message> messages,
                                            bool add_generation_prompt,
                                            std::optional<std::tm> now) const {
  jinja::RenderOptions options;
  options.now = now ? *now : local_time();
  // What a message takes in addition to its text.
  constexpr std::size_t kBytesPerMessage = 64;
  for (const Message& message : messages)
    options.input_bytes += message.role.size() + message.content.size() + kBytesPerMessage;

  const jinja::Text text =
      jinja::render(*program_->tree, options, [&](jinja::Runtime& runtime) -> jinja::Variables {
        std::vector<jinja::Value> values;
        for (const Message& message : messages) values.push_back(message_value(runtime, message));
        return {
            {"messages", runtime.list(std::move(values))},
            {"add_generation_prompt", jinja::Value::boolean(add_generation_prompt)},
            {"bos_token", runtime.text(program_->bos_text)},
            {"eos_token", runtime.text(program_->eos_text)},
            {"tools", jinja::Value::none()},
            {"documents", jinja::Value::none()},
        };
      });

  std::vector<TextPiece> pieces;
  text.stretches([&](std::string_view bytes, bool user) {
    pieces.push_back({std::string(bytes), !user});
  });
  return pieces;
}

std::unique_ptr<ChatTemplate> make_chat_template(const Metadata& metadata,
                                                 const Tokenizer& tokenizer) {
  const std::optional<std::string> source = metadata.string("tokenizer.chat_template");
  if (!source) return nullptr;
  const auto text_of = [&](std::optional<Token> token) {
    return token ? std::string(tokenizer.text(*token)) : std::string();
  };
  return std::make_unique<ChatTemplate>(*source, metadata.origin(), text_of(tokenizer.bos),
                                        text_of(tokenizer.eos));
}

}  // namespace outrider
