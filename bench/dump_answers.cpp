// Reads answers as a chat template's model writes them: the other side of
// scripts/agreement_answers.py.
//
// usage: outrider-dump-answers TEMPLATE.jinja < cases > parts
// cases: a JSON object per line: tools (a list), and either messages, which are rendered (text), or
// text, an answer, which is read (format and deltas).

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "formats/parse_json.h"
#include "text/answer_parser.h"
#include "text/conversation_json.h"

using namespace outrider;
using Json = nlohmann::ordered_json;

namespace {

const char* name(AnswerDelta::Kind kind) {
  switch (kind) {
    case AnswerDelta::Kind::content: return "content";
    case AnswerDelta::Kind::reasoning: return "reasoning";
    case AnswerDelta::Kind::call: return "call";
    case AnswerDelta::Kind::arguments: return "arguments";
    case AnswerDelta::Kind::call_end: return "call_end";
    case AnswerDelta::Kind::call_void: return "call_void";
  }
  return "";
}

Json answer(const ChatTemplate& chat_template, const AnswerFormat& format, const Json& input) {
  const std::string tools = input.contains("tools") ? dump_json(input["tools"]) : "";
  Json out;
  if (input.contains("messages")) {
    const TemplateConversation conversation =
        template_conversation(format.conventions, format.tools,
                              parse_conversation(dump_json(input["messages"]), "messages"), tools);
    const std::vector<TextPiece> pieces =
        chat_template.render(conversation.messages, input.value("add_generation_prompt", true),
                             {.tools = conversation.tools});
    out["text"] = "";
    for (const TextPiece& piece : pieces) out["text"] = out["text"].get<std::string>() + piece.text;
    out["begun"] = begun_answer(format, pieces);
    return out;
  }
  AnswerParser parser(format, {.tools = tools, .begun = input.value("begun", "")});
  std::vector<AnswerDelta> deltas = parser.push(input["text"].get<std::string>());
  for (AnswerDelta& delta : parser.finish()) deltas.push_back(std::move(delta));
  out["deltas"] = Json::array();
  for (const AnswerDelta& delta : deltas)
    out["deltas"].push_back({name(delta.kind), delta.text, delta.call});
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: outrider-dump-answers TEMPLATE.jinja < cases > parts\n");
    return 2;
  }
  std::ostringstream source;
  source << std::ifstream(argv[1], std::ios::binary).rdbuf();
  try {
    const ChatTemplate chat_template(source.str(), argv[1], "<s>", "</s>");
    const AnswerFormat format = answer_format(chat_template);
    static constexpr const char* kTools[] = {"nowhere", "variable", "system_list", "system_text"};
    const TemplateConventions& conventions = format.conventions;
    const Json description = {
        {"reasoning", format.reasoning ? Json(format.reasoning->name) : Json()},
        {"syntax", format.tools ? Json(format.tools->name) : Json()},
        {"tools", kTools[static_cast<int>(conventions.tools)]},
        {"renders_calls", conventions.renders_calls},
        {"text_arguments", conventions.text_arguments},
        {"null_content", conventions.null_content},
        {"short_ids", conventions.short_ids},
        {"result_role", conventions.result_role}};
    std::cout << description.dump() << "\n";
    for (std::string line; std::getline(std::cin, line);) {
      Json out;
      try {
        out = answer(chat_template, format, parse_ordered_json(line, "case"));
      } catch (const Error& error) {
        out = {{"error", error.what()}};
      }
      std::cout << out.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
    }
  } catch (const Error& error) {
    std::cout << Json({{"error", error.what()}}).dump() << "\n";
  }
}
