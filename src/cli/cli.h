// The whole program except the device, which main.cpp chooses.

#pragma once

#include <span>
#include <string>

#include "cli/commands.h"

namespace outrider {

// Runs one command line, given without the program's name, and returns the exit status: 0 done, 1
// failed, 2 usage, 130 interrupted, 143 terminated. Every failure is one line on standard error. An
// empty command line prints help on a terminal; elsewhere, as in a script, it is a usage error.
int run_command_line(std::span<const std::string> arguments, const Machine& machine);

}  // namespace outrider
