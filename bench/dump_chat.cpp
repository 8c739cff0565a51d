// Writes conversations as a template does: the other side of scripts/agreement_templates.py.
//
// usage: outrider-dump-chat TEMPLATE.jinja < cases > texts
// cases: a JSON object per line with messages, add_generation_prompt and, optionally, tools,
// documents, variables. texts: a JSON object per line with text or error; user: the parts that are
// users' text. BOS is <s>, EOS </s>, the time 2024-07-26 09:05:01.

#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/error.h"
#include "formats/parse_json.h"
#include "text/chat_template.h"
#include "text/conversation_json.h"

using namespace outrider;
using Json = nlohmann::ordered_json;

namespace {

std::tm fixed_time() {
  std::tm now = {};
  now.tm_year = 124;
  now.tm_mon = 6;
  now.tm_mday = 26;
  now.tm_hour = 9;
  now.tm_min = 5;
  now.tm_sec = 1;
  now.tm_wday = 5;
  now.tm_yday = 207;
  return now;
}

Json written(const ChatTemplate& chat_template, const Json& input) {
  std::vector<Message> messages;
  for (Json message : input["messages"]) {
    Message& out = messages.emplace_back();
    out.role = message["role"];
    message.erase("role");
    // As it is: a template may tell a null from an empty text and from no content at all.
    if (message.contains("content") && message["content"].is_string()) {
      out.content = message["content"];
      message.erase("content");
    }
    out.more = dump_json(message);
  }
  TemplateInputs inputs{.now = fixed_time()};
  const auto text = [&](const char* key) {
    return input.contains(key) && !input[key].is_null() ? dump_json(input[key]) : std::string();
  };
  inputs.tools = text("tools");
  inputs.documents = text("documents");
  inputs.variables = text("variables");
  Json out = {{"text", ""}, {"user", Json::array()}};
  for (const TextPiece& piece :
       chat_template.render(messages, input["add_generation_prompt"], inputs)) {
    out["text"] = out["text"].get<std::string>() + piece.text;
    if (!piece.parse_special) out["user"].push_back(piece.text);
  }
  return out;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: outrider-dump-chat TEMPLATE.jinja < cases > texts\n");
    return 2;
  }
  std::ostringstream source;
  source << std::ifstream(argv[1], std::ios::binary).rdbuf();
  for (std::string line; std::getline(std::cin, line);) {
    Json out;
    try {
      const ChatTemplate chat_template(source.str(), argv[1], "<s>", "</s>");
      out = written(chat_template, parse_ordered_json(line, "case"));
    } catch (const Error& error) {
      out = {{"error", error.what()}};
    }
    std::cout << out.dump(-1, ' ', false, Json::error_handler_t::replace) << "\n";
  }
}
