#include "cli/version.h"

#include <fmt/format.h>

#include "cli/build_version.h"  // made by cmake/version.cmake

namespace outrider {

std::string_view version() {
  return OUTRIDER_VERSION;
}
std::string_view commit() {
  return OUTRIDER_COMMIT;
}

std::string version_text(const Machine& machine) {
  return fmt::format("outrider {} (commit {})\ninstruction sets: {}; in use: {}\n", version(),
                     commit(), fmt::join(machine.instruction_sets, ", "),
                     machine.chosen_instruction_set());
}

}  // namespace outrider
