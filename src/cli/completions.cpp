// Completion scripts, from the tables of commands and flags.

#include <map>

#include "base/nearest_name.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/failure.h"
#include "cli/flags.h"
#include "formats/catalog.h"

namespace outrider {
namespace {

// What a shell offers as a flag's value.
enum class Completed { nothing, choices, models, files };

Completed completed(const Flag& flag) {
  if (!flag.choices.empty()) return Completed::choices;
  if (flag.value == "MODEL") return Completed::models;
  if (flag.value == "FILE") return Completed::files;
  return Completed::nothing;
}

bool takes_models(const Command& command) {
  return command.arguments == "[MODEL]" || command.arguments == "NAME…";
}

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : catalog()) names.push_back(entry.name);
  return names;
}

std::vector<std::string> flag_names(const Command& command) {
  std::vector<std::string> names;
  for (const Flag& flag : flags()) {
    if (command.takes(flag)) names.insert(names.end(), flag.names.begin(), flag.names.end());
  }
  return names;
}

std::vector<std::string> values(const Flag& flag) {
  return completed(flag) == Completed::models ? model_names() : flag.choices;
}

// Commands of two words by their first one: "bench" stands for its list.
std::map<std::string, std::vector<const Command*>> groups() {
  std::map<std::string, std::vector<const Command*>> groups;
  for (const Command& command : commands()) {
    const auto space = command.name.find(' ');
    if (space != std::string_view::npos)
      groups[std::string(command.name.substr(0, space))].push_back(&command);
  }
  return groups;
}

std::string second_word(const Command& command) {
  return std::string(command.name.substr(command.name.find(' ') + 1));
}

std::vector<std::string> second_words(const std::vector<const Command*>& group) {
  std::vector<std::string> words;
  for (const Command* command : group) words.push_back(second_word(*command));
  return words;
}

const std::vector<std::string> kShells = {"bash", "zsh", "fish"};

std::string bash() {
  std::vector<std::string> first;
  std::string group_cases, value_cases, command_cases;
  for (const Command& command : commands()) {
    const std::string name(command.name);
    const auto space = name.find(' ');
    const std::string word = name.substr(0, space);
    if (first.empty() || first.back() != word) first.push_back(word);
    std::vector<std::string> words = flag_names(command);
    if (takes_models(command)) {
      const auto models = model_names();
      words.insert(words.end(), models.begin(), models.end());
    }
    words.insert(words.end(), command.choices.begin(), command.choices.end());
    command_cases += fmt::format("    '{}') words='{}' ;;\n", name, fmt::join(words, " "));
  }
  for (const auto& [word, group] : groups())
    group_cases +=
        fmt::format("    {}) second='{}' ;;\n", word, fmt::join(second_words(group), " "));
  for (const Flag& flag : flags()) {
    const std::string pattern = fmt::format("{}", fmt::join(flag.names, "|"));
    if (flag.value.empty()) continue;
    std::string action = "return ;;";
    if (completed(flag) == Completed::files) {
      action = "COMPREPLY=($(compgen -f -- \"$cur\")); return ;;";
    } else if (completed(flag) != Completed::nothing) {
      action = fmt::format(
          "COMPREPLY=($(compgen -W '{}' {}-- \"$cur\")){}; return ;;", fmt::join(values(flag), " "),
          completed(flag) == Completed::models ? "-f " : "",
          completed(flag) == Completed::models ? "; __ltrim_colon_completions \"$cur\" 2>/dev/null"
                                               : "");
    }
    value_cases += fmt::format("    {}) {}\n", pattern, action);
  }
  return fmt::format(R"(# bash completions of outrider: source <(outrider completions bash)
_outrider() {{
  local cur prev command second words
  if declare -F _get_comp_words_by_ref >/dev/null; then
    _get_comp_words_by_ref -n : cur prev  # model names hold colons
  else
    cur=${{COMP_WORDS[COMP_CWORD]}} prev=${{COMP_WORDS[COMP_CWORD-1]}}
  fi
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W '{} help --help --version' -- "$cur")); return
  fi
  command=${{COMP_WORDS[1]}}
  case $command in
{}  esac
  if [ -n "$second" ]; then
    if [ "$COMP_CWORD" -eq 2 ]; then
      COMPREPLY=($(compgen -W "$second" -- "$cur")); return
    fi
    command="$command ${{COMP_WORDS[2]}}"
  fi
  case $prev in
{}  esac
  case $command in
{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
  __ltrim_colon_completions "$cur" 2>/dev/null
}}
complete -o default -F _outrider outrider
)",
                     fmt::join(first, " "), group_cases, value_cases, command_cases);
}

// Inside zsh's single quotes, where brackets and colons of _arguments are escaped.
std::string zsh_text(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '\'') {
      result += "'\\''";
    } else {
      if (c == '[' || c == ']' || c == ':' || c == '\\') result += '\\';
      result += c;
    }
  }
  return result;
}

std::string zsh_values(const std::vector<std::string>& values) {
  std::vector<std::string> quoted;
  for (const std::string& value : values) quoted.push_back(zsh_text(value));
  return fmt::format("({})", fmt::join(quoted, " "));
}

std::string zsh() {
  std::string first, group_cases, cases;
  for (const auto& [word, group] : groups()) {
    first += fmt::format("    '{}:{}'\n", word, fmt::join(second_words(group), ", "));
    group_cases += fmt::format("    {}) second=(\n", word);
    for (const Command* command : group) {
      group_cases +=
          fmt::format("      '{}:{}'\n", second_word(*command), zsh_text(command->summary));
    }
    group_cases += "    ) ;;\n";
  }
  for (const Command& command : commands()) {
    const std::string name(command.name);
    if (name.find(' ') == std::string::npos)
      first += fmt::format("    '{}:{}'\n", name, zsh_text(command.summary));
    cases += fmt::format("    '{}') _arguments -s", name);
    for (const Flag& flag : flags()) {
      if (!command.takes(flag)) continue;
      for (const std::string& spelled : flag.names) {
        std::string value;
        if (!flag.value.empty()) {
          value = fmt::format(":{}:", flag.value);
          if (completed(flag) == Completed::choices) value += zsh_values(flag.choices);
          if (completed(flag) == Completed::models) value += "_outrider_models";
          if (completed(flag) == Completed::files) value += "_files";
        }
        cases += fmt::format(" \\\n      '*{}[{}]{}'", spelled, zsh_text(flag.help), value);
      }
    }
    if (takes_models(command)) cases += " \\\n      '*:model:_outrider_models'";
    if (!command.choices.empty()) {
      cases += fmt::format(" \\\n      '1:{}:{}'", command.arguments, zsh_values(command.choices));
    }
    cases += " ;;\n";
  }
  std::vector<std::string> models;
  for (const std::string& name : model_names()) models.push_back("'" + name + "'");
  return fmt::format(R"(#compdef outrider
# zsh completions of outrider: save as _outrider in a folder of $fpath
_outrider_models() {{
  compadd -- {}
  _files -g '*.gguf'
}}
_outrider() {{
  local -a first second
  first=(
{}  )
  if (( CURRENT == 2 )); then
    _describe command first
    return
  fi
  local command=$words[2]
  case $command in
{}  esac
  if (( $#second )); then
    if (( CURRENT == 3 )); then
      _describe command second
      return
    fi
    command="$command $words[3]"
    shift words; (( CURRENT-- ))
  fi
  shift words; (( CURRENT-- ))
  case $command in
{}  esac
}}
if [[ $funcstack[1] == _outrider ]]; then _outrider "$@"; else compdef _outrider outrider; fi
)",
                     fmt::join(models, " "), first, group_cases, cases);
}

std::string fish_text(std::string_view text) {
  std::string result = "'";
  for (char c : text) {
    if (c == '\'' || c == '\\') result += '\\';
    result += c;
  }
  return result + "'";
}

std::string fish() {
  std::string text =
      "# fish completions of outrider: outrider completions fish | source\n"
      "complete -c outrider -f\n"
      "complete -c outrider -n __fish_use_subcommand -l version -d 'name the build'\n"
      "complete -c outrider -n __fish_use_subcommand -l help -d 'list the commands'\n";
  for (const Command& command : commands()) {
    const std::string name(command.name);
    const auto space = name.find(' ');
    std::string condition = "__fish_seen_subcommand_from " + name;
    if (space == std::string::npos) {
      text += fmt::format("complete -c outrider -n __fish_use_subcommand -a {} -d {}\n", name,
                          fish_text(command.summary));
    } else {
      const std::string outer = name.substr(0, space), inner = name.substr(space + 1);
      condition = fmt::format("__fish_seen_subcommand_from {}; and __fish_seen_subcommand_from {}",
                              outer, inner);
      text += fmt::format("complete -c outrider -n __fish_use_subcommand -a {}\n", outer);
      text += fmt::format("complete -c outrider -n '__fish_seen_subcommand_from {}' -a {} -d {}\n",
                          outer, inner, fish_text(command.summary));
    }
    for (const Flag& flag : flags()) {
      if (!command.takes(flag)) continue;
      text += fmt::format("complete -c outrider -n '{}'", condition);
      for (const std::string& spelled : flag.names) {
        if (spelled.starts_with("--")) {
          text += " -l " + spelled.substr(2);
        } else {
          text += (spelled.size() == 2 ? " -s " : " -o ") + spelled.substr(1);
        }
      }
      if (completed(flag) == Completed::files) text += " -r -F";
      if (completed(flag) == Completed::nothing && !flag.value.empty()) text += " -x";
      if (completed(flag) == Completed::choices || completed(flag) == Completed::models) {
        text += fmt::format(" {} -a '{}'", completed(flag) == Completed::models ? "-r -F" : "-x",
                            fmt::join(values(flag), " "));
      }
      text += fmt::format(" -d {}\n", fish_text(flag.help));
    }
    if (takes_models(command)) {
      text += fmt::format("complete -c outrider -n '{}' -a '{}'\n", condition,
                          fmt::join(model_names(), " "));
    }
    if (!command.choices.empty()) {
      text += fmt::format("complete -c outrider -n '{}' -a '{}'\n", condition,
                          fmt::join(command.choices, " "));
    }
  }
  return text;
}

int completions(const Machine&, const Settings& settings) {
  const std::string& shell = settings.arguments[0];
  if (shell == "bash") {
    write_output(bash());
  } else if (shell == "zsh") {
    write_output(zsh());
  } else {
    write_output(fish());
  }
  return kDone;
}

}  // namespace

Command completions_command() {
  return {
      .name = "completions",
      .arguments = "SHELL",
      .arguments_min = 1,
      .arguments_max = 1,
      .choices = kShells,
      .summary = "print completions for bash, zsh or fish",
      .description =
          "Prints a script that completes commands and flags in a shell: bash, zsh or fish. For "
          "bash: source <(outrider completions bash)",
      .run = completions};
}

}  // namespace outrider
