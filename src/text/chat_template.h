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
  // Further keys as a JSON object: tool_calls, tool_call_id, name, reasoning_content, ...; a
  // "content" among them replaces the one above. Empty: none.
  std::string more = {};
};

// What a template can name besides the messages, as JSON; empty: nothing.
struct TemplateInputs {
  std::string tools = {};      // a list
  std::string documents = {};  // a list
  std::string variables = {};  // an object: each key is a variable and overrides one of that name
  std::optional<std::tm> now = {};  // what strftime_now sees; nothing: the local time
};

// A template sees what Hugging Face's tokenizers give it for a plain conversation: `messages`
// (dicts with role and content), `add_generation_prompt`, `bos_token` and `eos_token` (empty if the
// vocabulary has none), `tools` and `documents` (none without some), and the functions
// raise_exception and strftime_now. jinja/template_limits.h says what it may cost.
//
// Contents, tools, documents, calls and their results are users' text: whatever the template does
// with them (jinja/text.h), special tokens in them stay plain text. So do roles, except the usual
// ones (is_usual_role), which count as the program's own text: templates build special tokens from
// them ('<|' + role + '|>').
class ChatTemplate {
 public:
  // Parses the source; `origin` names the file in messages. Throws Error with line and column.
  ChatTemplate(std::string_view source, std::string origin, std::string bos_text,
               std::string eos_text);
  // One that cannot be used, because of `problem`: rendering throws it, with Remedy::chat_template.
  // So a model whose template is broken still continues texts.
  static ChatTemplate unusable(std::string_view source, std::string problem);
  ~ChatTemplate();
  ChatTemplate(ChatTemplate&&) noexcept;

  const std::optional<std::string>& problem() const { return problem_; }
  void check_usable() const;  // throws as rendering would

  // The text in pieces: what the template wrote (special tokens count) and what came from the
  // messages (they do not). Neighbouring pieces differ in this. With `add_generation_prompt` it
  // ends where the assistant's answer begins. Throws Error where the template raises one, loops for
  // ever or writes without bound, or where JSON is malformed. Thread-safe.
  std::vector<TextPiece> render(std::span<const Message> messages, bool add_generation_prompt,
                                const TemplateInputs& inputs = {}) const;

  // Variables of every rendering: a JSON object, as TemplateInputs::variables, which override
  // these. To be called before others use the template.
  void set_variables(std::string json) { variables_ = std::move(json); }
  std::string_view source() const { return source_; }
  // Whether the source names this variable.
  bool names(std::string_view variable) const { return source_.find(variable) != source_.npos; }
  // Its variables that say whether the model reasons before it answers; empty: it has none.
  std::vector<std::string> reasoning_switches() const;

 private:
  ChatTemplate();

  struct Program;
  std::unique_ptr<Program> program_;
  std::string source_, variables_;
  std::optional<std::string> problem_;
};

// Throws Error, with Remedy::chat_template, if a template has written nothing to answer.
void check_written(std::span<const TextPiece> pieces);

// system, developer, user, assistant, model, tool, function, ipython.
bool is_usual_role(std::string_view role);

// The template of tokenizer.chat_template, unusable if it does not parse, or null if the file has
// none or a blank one.
std::unique_ptr<ChatTemplate> make_chat_template(const Metadata& metadata,
                                                 const Tokenizer& tokenizer);
// That of the user's file `origin`. Throws Error if it does not parse or is blank.
std::unique_ptr<ChatTemplate> make_chat_template(std::string_view source, std::string origin,
                                                 const Tokenizer& tokenizer);

}  // namespace outrider
