#include "cli/help.h"

#include "cli/console.h"

namespace outrider {
namespace {

// "  NAME    text", with the text wrapped into a column of its own, or below the name if the
// terminal is narrow.
std::string entry(const std::string& name, std::string_view text, int column, int width) {
  const bool narrow = width < column + 30;
  const int indent = narrow ? 6 : column;
  std::string line = fmt::format("  {}", name);
  if (narrow || static_cast<int>(line.size()) + 2 > column) {
    line += fmt::format("\n{:{}}", "", indent);
  } else {
    line.resize(static_cast<std::size_t>(column), ' ');
  }
  return line + wrap(text, width, indent) + "\n";
}

std::string lines(std::string_view paragraph, int width) {
  return wrap(paragraph, width) + "\n";
}

}  // namespace

std::string spelling(const Flag& flag) {
  std::string text = fmt::format("{}", fmt::join(flag.names, ", "));
  if (!flag.value.empty()) text += fmt::format(" {}", flag.value);
  return text;
}

std::string overview_help(int width) {
  std::string text = lines(
      "outrider runs language models on CPUs, several tokens per pass: it drafts how the answer "
      "may continue, checks the drafts with the model itself and keeps what the model would have "
      "said, bit for bit.",
      width);
  text += "\nusage: outrider COMMAND [FLAGS]\n\n";
  for (const Command& command : commands()) {
    text += entry(std::string(command.name), command.summary, 20, width);
  }
  text += "\n";
  text += lines(
      "outrider COMMAND --help explains a command. outrider --version prints the version. "
      "To start a chat: outrider run",
      width);
  return text;
}

std::string command_help(const Command& command, int width) {
  std::string text = lines(fmt::format("usage: outrider {}{}{} [FLAGS]", command.name,
                                       command.arguments.empty() ? "" : " ", command.arguments),
                           width);
  text += "\n";
  text += lines(command.description, width);
  const FlagGroup* shown = nullptr;
  for (const Flag& flag : flags()) {
    if (!command.takes(flag)) continue;
    if (!shown || *shown != flag.group) text += fmt::format("\n{}\n", title(flag.group));
    shown = &flag.group;
    std::string help = flag.help;
    if (!flag.choices.empty()) help += fmt::format(" ({})", fmt::join(flag.choices, ", "));
    if (!flag.standard.empty()) help += fmt::format(" [{}]", flag.standard);
    text += entry(spelling(flag), help, 32, width);
  }
  return text;
}

}  // namespace outrider
