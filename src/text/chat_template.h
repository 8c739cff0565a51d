// A conversation as the text that a model was trained on, by the template in its file (Jinja;
// jinja/ interprets it).

#pragma once

#include <ctime>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token.h"
#include "formats/checkpoint.h"
#include "text/tokenizer.h"

namespace outrider {

struct Message {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// A template sees what Hugging Face's tokenizers give it for a plain conversation: `messages`
// (dicts with role and content), `add_generation_prompt`, `bos_token` and `eos_token` (empty if the
// vocabulary has none), `tools` and `documents` (none), and the functions raise_exception and
// strftime_now. jinja/template_limits.h says what it may cost.
//
// Contents are users' text: whatever the template does with them (jinja/text.h), special tokens in
// them stay plain text. So do roles, except the usual ones (is_usual_role), which count as the
// program's own text: templates build special tokens from them ('<|' + role + '|>').
class ChatTemplate {
 public:
  // Parses the source; `origin` names the file in messages. Throws Error with line and column.
  ChatTemplate(std::string_view source, std::string origin, std::string bos_text,
               std::string eos_text);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;

  // The text in pieces: what the template wrote (special tokens count) and what came from the
  // messages (they do not). Neighbouring pieces differ in this. With `add_generation_prompt` it
  // ends where the assistant's answer begins. `now` is the time that strftime_now sees, by default
  // the local time. Throws Error where the template raises one, loops for ever or writes without
  // bound. Thread-safe.
  std::vector<TextPiece> render(std::span<const Message> messages, bool add_generation_prompt,
                                std::optional<std::tm> now = std::nullopt) const;

 private:
  struct Program;
  std::unique_ptr<Program> program_;
};

// system, developer, user, assistant, model, tool, function, ipython.
bool is_usual_role(std::string_view role);

// The template of tokenizer.chat_template, or null if the file has none.
std::unique_ptr<ChatTemplate> make_chat_template(const Metadata& metadata,
                                                 const Tokenizer& tokenizer);

}  // namespace outrider
