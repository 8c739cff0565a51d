// Every flag, declared once. The parser, help, completions and the manual page are made from this
// table.

#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/settings.h"

namespace outrider {

enum class FlagGroup { model, prompt, generation, sampling, speculation, server, output };
std::string_view title(FlagGroup group);

// Which commands take a flag: each set holds those before it.
enum class FlagSet {
  every,       // all commands
  loading,     // those that load a model
  generating,  // those that answer prompts
  named        // none but those whose row names the flag
};

struct Flag {
  // As users write them, the one that messages use last: "-n", "--n-predict", "--predict".
  std::vector<std::string> names;
  std::string value;     // what help calls the value; empty: a switch
  std::string standard;  // the default, as help shows it; empty: none
  std::string help;
  FlagGroup group;
  FlagSet set;
  // Throws Error with what is wrong about the text, without naming the flag. Called once for
  // each time that the flag is given.
  std::function<void(Settings&, std::string_view text)> read;
  std::vector<std::string> choices;  // all values, if they are few

  const std::string& name() const { return names.back(); }
};

std::span<const Flag> flags();

}  // namespace outrider
