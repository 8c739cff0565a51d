// A conversation as the text that a model was trained on, by the template in its file (Jinja; jinja/ interprets it).

#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/checkpoint.h"
#include "text/tokenizer.h"

namespace outrider {

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

class ChatTemplate {
 public:
  // Parses the source; `origin` names the file in messages. Throws Error with line and column.
  ChatTemplate(std::string_view source, std::string origin, std::string bos_text, std::string eos_text);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;

  // The text in pieces: what the template wrote (special tokens count) and what came from the messages (they do not).
  // With `add_generation_prompt` it ends where the assistant's answer begins. Throws Error where the template raises one,
  // loops for ever or writes without bound.
  std::vector<TextPiece> render(std::span<const Message> messages, bool add_generation_prompt) const;

 private:
  struct Program;
  std::unique_ptr<Program> program_;
};

// The template of tokenizer.chat_template, or null if the file has none.
std::unique_ptr<ChatTemplate> make_chat_template(const Metadata& metadata, const Tokenizer& tokenizer);

}  // namespace outrider
