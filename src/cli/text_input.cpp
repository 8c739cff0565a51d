#include "cli/text_input.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/plain_text.h"
#include "base/progress.h"
#include "cli/failure.h"
#include "cli/signals.h"
#include "formats/parse_json.h"

namespace outrider {
namespace {

using json = nlohmann::ordered_json;

constexpr std::size_t kTextBytesMax = 64 << 20;

std::string text_of(const json& value, const std::string& where) {
  if (!value.is_string()) throw Error("{}: expected a string, found {}", where, json_type(value));
  return value.get<std::string>();
}

// Numbers are taken as they are written: Spec-Bench's question_id is one.
std::string label_of(const json& value) {
  return value.is_string() ? value.get<std::string>() : dump_json(value);
}

BenchPrompt parse_prompt(const json& line, const std::string& where) {
  if (!line.is_object()) throw Error("{}: expected an object, found {}", where, json_type(line));
  BenchPrompt result;
  const bool spec_bench = line.contains("turns");
  const char* id = spec_bench ? "question_id" : "id";
  const char* group = spec_bench ? "category" : "group";
  if (line.contains(id)) result.id = label_of(line[id]);
  result.group = line.contains(group) ? label_of(line[group]) : "all";
  if (spec_bench) {
    if (!line["turns"].is_array() || line["turns"].empty()) {
      throw Error("{}: turns must be a list of prompts", where);
    }
    for (const json& turn : line["turns"]) result.turns.push_back(text_of(turn, where + ": turns"));
  } else if (line.contains("prompt")) {
    result.turns.push_back(text_of(line["prompt"], where + ": prompt"));
    if (line.contains("prediction"))
      result.prediction = text_of(line["prediction"], where + ": prediction");
  } else {
    throw Error("{}: has neither prompt nor turns", where);
  }
  return result;
}

}  // namespace

std::string read_text(const std::string& path) {
  const bool standard = path == "-";
  const std::string name = standard ? "standard input" : path;
  const int file = standard ? STDIN_FILENO : ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) throw Error("{}: cannot be read: {}", name, std::strerror(errno));
  std::string text;
  int error = 0;
  for (char buffer[65536]; !error;) {
    stop_if_interrupted();
    const ssize_t n = read_unless_signalled(file, buffer, sizeof buffer);
    if (n == 0) break;
    if (n > 0) text.append(buffer, static_cast<std::size_t>(n));
    if (n < 0 && errno != EINTR) error = errno;
    if (text.size() > kTextBytesMax) error = EFBIG;
  }
  if (!standard) ::close(file);
  if (error == EISDIR) throw Error("{}: is a folder, expected a file of text", name);
  if (error == EFBIG)
    throw Error("{}: is too long, expected at most {} of text", name, human_bytes(kTextBytesMax));
  if (error) throw Error("{}: cannot be read: {}", name, std::strerror(error));
  return plain_text(text, name);
}

TextSettings text_settings(const Settings& settings) {
  TextSettings result{.tokenizer_pre = settings.tokenizer_pre,
                      .chat_template = {.variables = settings.chat_template_kwargs,
                                        .reasoning = settings.reasoning}};
  if (const auto& file = settings.chat_template_file)
    result.chat_template.source = {*file, read_text(*file)};
  return result;
}

std::string read_prompt(const std::string& path) {
  std::string text = read_text(path);
  // The line end that editors and echo add to a text, as llama.cpp does.
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::optional<std::string> single_prompt(const Settings& settings) {
  if (settings.prompt.size() > 1)
    throw UsageError("--prompt: given {} times", settings.prompt.size());
  if (!settings.prompt.empty() && settings.prompt_file) {
    throw UsageError("--prompt and --file: one of them, not both");
  }
  std::string path;
  if (settings.prompt_file) {
    path = *settings.prompt_file;
  } else if (settings.prompt.empty()) {
    return {};
  } else if (settings.prompt[0] != "-") {
    return settings.prompt[0];
  } else {
    path = "-";
  }
  return read_prompt(path);
}

std::vector<BenchPrompt> parse_prompts(const std::string& text, const std::string& origin) {
  std::vector<BenchPrompt> prompts;
  int number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    begin = end + 1;
    ++number;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    const std::string where = fmt::format("{}: line {}", origin, number);
    BenchPrompt prompt = parse_prompt(parse_ordered_json(line, where), where);
    if (prompt.id.empty()) prompt.id = fmt::format("{}", prompts.size() + 1);
    prompts.push_back(std::move(prompt));
  }
  if (prompts.empty()) throw Error("{}: holds no prompts", origin);
  return prompts;
}

}  // namespace outrider
