// Text from files, standard input and JSON.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/settings.h"
#include "runtime/opened_model.h"

namespace outrider {

// The whole file as plain_text() has it; "-" is standard input. Throws Error, also for more than
// 64 MiB, which no context holds.
std::string read_text(const std::string& path);

// The same without its last line end.
std::string read_prompt(const std::string& path);

// The prompt of -p or -f; nothing without either. UsageError if both or several are given.
std::optional<std::string> single_prompt(const Settings& settings);

// What --tokenizer-pre, --chat-template-file, --chat-template-kwargs and --reasoning ask for.
// Throws Error.
TextSettings text_settings(const Settings& settings);

struct BenchPrompt {
  std::string id = {}, group = {};
  std::vector<std::string> turns;  // one for plain prompts
  std::string prediction = {};     // how the answer is expected to read mostly
};

// JSON lines with "prompt" and, optionally, "group", "id" and "prediction"; or Spec-Bench's (Xia et
// al. 2024, arXiv:2401.07851) with "question_id", "category" and "turns".
std::vector<BenchPrompt> parse_prompts(const std::string& json_lines, const std::string& origin);

}  // namespace outrider
