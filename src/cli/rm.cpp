#include "cli/commands.h"
#include "cli/console.h"
#include "formats/catalog.h"

namespace outrider {

int rm_command(const Device&, const Settings& settings) {
  for (const std::string& name : settings.arguments) {
    const std::uint64_t freed = remove_cached_model(name);
    write_output(fmt::format("{}: removed, {} free again\n", name, human_bytes(freed)));
  }
  return kDone;
}

}  // namespace outrider
