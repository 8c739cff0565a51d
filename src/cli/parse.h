// Parses a command line into a command and its settings.

#pragma once

#include <span>
#include <string>
#include <vector>

#include "cli/commands.h"

namespace outrider {

struct Invocation {
  const Command* command;
  Settings settings;
};

// `arguments` do not contain the program's name and name a command first. Throws UsageError, with a
// hint where a name is nearly right.
Invocation parse(std::span<const std::string> arguments);

}  // namespace outrider
