// Help, from the tables of commands and flags.

#pragma once

#include <string>

#include "cli/commands.h"
#include "cli/flags.h"

namespace outrider {

std::string overview_help(int width);
std::string command_help(const Command& command, int width);

// "-n, --n-predict, --predict N".
std::string spelling(const Flag& flag);

}  // namespace outrider
