// Text from files, standard input and JSON.

#pragma once

#include <string>
#include <vector>

#include "text/chat_template.h"

namespace outrider {

// The whole file; "-" is standard input. Throws Error, also for more than 64 MiB, which no context
// holds.
std::string read_text(const std::string& path);

// OpenAI's chat messages: an array, or an object with "messages"; content is a string or a list of
// text parts. `origin` names the text in messages.
std::vector<Message> parse_messages(const std::string& json, const std::string& origin);

struct BenchPrompt {
  std::string id, group;
  std::vector<std::string> turns;  // one for plain prompts
};

// JSON lines with "prompt" and, optionally, "group" and "id"; or Spec-Bench's (Xia et al. 2024,
// arXiv:2401.07851) with "question_id", "category" and "turns".
std::vector<BenchPrompt> parse_prompts(const std::string& json_lines, const std::string& origin);

}  // namespace outrider
