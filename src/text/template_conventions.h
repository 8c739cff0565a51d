// How a chat template wants tools, calls and their results: what differs between templates and what
// OpenAI's API does not say. Found out by rendering small conversations.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "text/chat_template.h"

namespace outrider {

struct ToolSyntax;  // answer_format.h

struct TemplateConventions {
  // Where the template looks for tools.
  enum class Tools {
    nowhere,      // it shows none to the model
    variable,     // `tools`, as OpenAI gives them
    system_list,  // the same as the key `tools` of the system message (GLM-4 9B chat)
    system_text,  // under the same key, as a JSON text of the functions alone (Phi-4 mini)
  };
  Tools tools = Tools::nowhere;
  // Whether it writes the calls of a message. If not, they go into the message's content.
  bool renders_calls = false;
  bool text_arguments = false;       // arguments as a text of JSON, not as an object
  bool null_content = false;         // where calls have no content, it is none, not ""
  bool short_ids = false;            // only ids of nine letters or digits (Mistral)
  std::string result_role = "tool";  // of a call's result
};

TemplateConventions template_conventions(const ChatTemplate& chat_template);

// What the template makes of a question, which ends where the answer begins, and of the question
// with an answer that is a call of kProbeName with kProbeArguments. Nothing if it writes no calls.
struct RenderedCall {
  std::vector<TextPiece> question;
  std::string whole;
};
inline constexpr std::string_view kProbeName = "probe_function";
inline constexpr std::string_view kProbeArguments = R"({"probe_key": "probe_value"})";
std::optional<RenderedCall> rendered_call(const ChatTemplate& chat_template,
                                          const TemplateConventions& conventions);

struct TemplateConversation {
  std::vector<Message> messages;
  std::string tools;  // for TemplateInputs
};

// What to render for a conversation as OpenAI's API gives it (conversation_json.h), with `tools`, a
// JSON list or empty:
// - tools are where the template looks for them;
// - `arguments` of calls, a text of JSON or an object, have the template's form;
// - ids of calls and of results get nine letters where it takes no others;
// - results of calls have the role that it knows;
// - calls that it would not write are added to the content as `syntax` writes them, as a user's
//   text.
// Throws Error, which begins with the message's number, for calls that are not as OpenAI says:
// without a name, with arguments that are no JSON object.
TemplateConversation template_conversation(const TemplateConventions& conventions,
                                           const ToolSyntax* syntax, std::vector<Message> messages,
                                           std::string tools);

}  // namespace outrider
