#include <string>
#include <vector>

#include "cli/cli.h"
#include "cpu/backend.h"
#include "cpu/isa.h"
#include "cpu/limit_meter.h"

int main(int argc, char** argv) {
  using namespace outrider;
  Machine machine;
  machine.choose_factory = [](const Model&) -> const BackendFactory& { return cpu_backends(); };
  for (Isa isa : available_isas()) machine.instruction_sets.emplace_back(name(isa));
  machine.chosen_instruction_set = [] { return std::string(name(chosen_isa())); };
  machine.make_limit_meter = make_limit_meter;
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  return run_command_line(arguments, machine);
}
