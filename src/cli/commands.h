// The table of commands. Each is a file that defines its row, NAME_command(), and a line of
// commands.cpp.

#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/machine_limits.h"
#include "cli/flags.h"
#include "runtime/runtime.h"

namespace outrider {

// What this machine has to run models on. main.cpp hands it down, so that nothing else here names a
// device.
struct Machine {
  ChooseFactory choose_factory;
  std::vector<std::string> instruction_sets;  // that this machine has, the best last
  std::function<std::string()>
      chosen_instruction_set;  // throws Error if OUTRIDER_ISA asks for what is not there
  std::function<std::unique_ptr<LimitMeter>(int n_threads)> make_limit_meter;
};

struct Command {
  std::string_view name;            // "bench curve"
  std::string_view arguments = "";  // as help shows them: "NAME…"; empty: none
  int arguments_min = 0, arguments_max = 0;
  std::vector<std::string> choices = {};  // all values of an argument, if they are few
  std::string_view summary;               // a line
  std::string_view description;           // a paragraph
  FlagSet flag_set = FlagSet::every;
  // Taken besides those of the set, by the names that messages use.
  std::vector<std::string_view> flags = {};
  int (*run)(const Machine& machine, const Settings& settings);  // the exit status

  bool takes(const Flag& flag) const;
};

// In the order of help.
std::span<const Command> commands();

}  // namespace outrider
