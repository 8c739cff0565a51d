#include "cli/parse.h"

#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/nearest_name.h"
#include "cli/failure.h"
#include "cli/flags.h"

namespace outrider {
namespace {

bool is_flag(std::string_view word) {
  return word.size() > 1 && word.front() == '-';
}

// The command that the first one or two words name; `used` is set to their number.
const Command& find_command(std::span<const std::string> words, std::size_t& used) {
  if (is_flag(words[0])) {
    throw UsageError("{}: a command comes first, as in: outrider run {}", words[0], words[0]);
  }
  std::vector<std::string> names;
  bool has_subcommands = false;
  for (const Command& command : commands()) {
    const std::string name(command.name);
    if (words[0] == name) {
      used = 1;
      return command;
    }
    if (words.size() > 1 && words[0] + " " + words[1] == name) {
      used = 2;
      return command;
    }
    if (name.starts_with(words[0] + " ")) {
      names.push_back(name.substr(words[0].size() + 1));
      has_subcommands = true;
    }
  }
  if (has_subcommands) {
    const std::string expected = fmt::format("{}", fmt::join(names, " or "));
    if (words.size() == 1 || is_flag(words[1]))
      throw UsageError("{}: expected {}", words[0], expected);
    throw UsageError("{} {}: expected {}{}", words[0], words[1], expected,
                     did_you_mean(words[1], names));
  }
  for (const Command& command : commands()) names.emplace_back(command.name);
  throw UsageError("{}: no such command{}; outrider --help lists them", words[0],
                   did_you_mean(words[0], names));
}

std::vector<const Flag*> flags_of(const Command& command) {
  std::vector<const Flag*> list;
  for (const Flag& flag : flags()) {
    if (command.takes(flag)) list.push_back(&flag);
  }
  return list;
}

bool has_name(const Flag& flag, std::string_view name) {
  return std::find(flag.names.begin(), flag.names.end(), name) != flag.names.end();
}

// Names of several letters after one dash are llama.cpp's; CLI11 would read -md as -m d.
bool is_long_with_one_dash(std::string_view name) {
  return name.size() > 2 && name[1] != '-';
}

// The words as CLI11 understands them. It would take the next word for the value of "--stop=".
std::vector<std::string> for_cli11(std::span<const std::string> words,
                                   std::span<const Flag* const> flags) {
  std::vector<std::string> result;
  bool is_value = false;
  for (const std::string& word : words) {
    const bool is_empty_value = !is_value && word.starts_with("--") && word.ends_with('=');
    const std::string name = is_empty_value ? word.substr(0, word.size() - 1) : word;
    const Flag* named = nullptr;
    if (!is_value) {
      for (const Flag* flag : flags) {
        if (has_name(*flag, name)) named = flag;
      }
    }
    const bool takes_value = named && !named->value.empty();
    if (is_empty_value && takes_value) {
      result.insert(result.end(), {name, ""});
      continue;
    }
    result.push_back(named && is_long_with_one_dash(word) ? named->name() : word);
    is_value = takes_value;
  }
  return result;
}

[[noreturn]] void throw_unknown_flag(const Command& command, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  std::vector<std::string> here;
  for (const Flag* flag : flags_of(command)) {
    here.insert(here.end(), flag->names.begin(), flag->names.end());
  }
  for (const Flag& flag : flags()) {
    if (!has_name(flag, name)) continue;
    std::vector<std::string_view> takers;
    for (const Command& other : commands()) {
      if (other.takes(flag)) takers.push_back(other.name);
    }
    throw UsageError("{}: not a flag of {}, but of {}", name, command.name,
                     fmt::join(takers, ", "));
  }
  throw UsageError("{}: {} has no such flag{}; outrider {} --help lists all", name, command.name,
                   did_you_mean(name, here), command.name);
}

void set(const Flag& flag, const std::string& text, Settings& settings) {
  settings.given.insert(flag.name());
  try {
    flag.read(settings, text);
  } catch (const Error& error) {
    throw UsageError("{} {}: {}", flag.name(), text, error.what());
  }
}

}  // namespace

Invocation parse(std::span<const std::string> words) {
  std::size_t used = 0;
  const Command& command = find_command(words, used);
  const std::vector<const Flag*> flags = flags_of(command);
  Invocation result{&command, {}};
  Settings& settings = result.settings;

  CLI::App app;
  app.set_help_flag();
  app.allow_extras();
  for (const Flag* flag : flags) {
    std::vector<std::string> names;
    for (const std::string& name : flag->names) {
      if (!is_long_with_one_dash(name)) names.push_back(name);
    }
    const std::string joined = fmt::format("{}", fmt::join(names, ","));
    if (flag->value.empty()) {
      app.add_flag_callback(joined, [flag, &settings] { set(*flag, "", settings); });
    } else {
      app.add_option(joined, CLI::callback_t([flag, &settings](const CLI::results_t& texts) {
                       for (const std::string& text : texts) set(*flag, text, settings);
                       return true;
                     }))
          ->type_name(flag->value)
          ->expected(1)
          ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
    }
  }

  std::vector<std::string> rest = for_cli11(words.subspan(used), flags);
  std::reverse(rest.begin(), rest.end());  // as CLI11 takes them
  try {
    app.parse(std::move(rest));
  } catch (const CLI::ArgumentMismatch&) {
    throw UsageError("{}: a value is missing", words.back());
  } catch (const CLI::ParseError& error) {
    throw UsageError("{}", error.what());
  }

  bool only_arguments = false;
  for (const std::string& word : app.remaining()) {
    if (word == "--" && !only_arguments) {
      only_arguments = true;
    } else if (is_flag(word) && !only_arguments) {
      throw_unknown_flag(command, word);
    } else {
      settings.arguments.push_back(word);
    }
  }
  const int n = static_cast<int>(settings.arguments.size());
  const bool takes_prompt =
      std::ranges::any_of(flags, [](const Flag* flag) { return flag->name() == "--prompt"; });
  if (!settings.help) {
    if (n < command.arguments_min) {
      throw UsageError("{}: {} is missing; outrider {} --help explains", command.name,
                       command.arguments, command.name);
    }
    if (n > command.arguments_max) {
      throw UsageError("{}: takes no such argument{}", settings.arguments[command.arguments_max],
                       takes_prompt ? "; write the prompt after -p" : "");
    }
    for (const std::string& argument : settings.arguments)
      if (!command.choices.empty() && std::ranges::count(command.choices, argument) == 0)
        throw UsageError("{} {}: expected {}{}", command.name, argument,
                         fmt::join(command.choices, " or "),
                         did_you_mean(argument, command.choices));
  }
  return result;
}

}  // namespace outrider
