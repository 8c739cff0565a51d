// The program, but for the device that it runs on.

#pragma once

#include <span>
#include <string>

#include "cli/commands.h"

namespace outrider {

// Runs one command line (without the program's name; an empty one shows help where standard output
// is a terminal, and is a usage error elsewhere, as in a script) and returns the exit status: 0
// done, 1 failed, 2 usage, 130 interrupted, 143 terminated. Every failure is one line on standard
// error.
int run_command_line(std::span<const std::string> arguments, const Device& device);

}  // namespace outrider
