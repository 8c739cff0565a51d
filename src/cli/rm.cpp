#include <climits>

#include "cli/commands.h"
#include "cli/console.h"
#include "formats/catalog.h"

namespace outrider {
namespace {

int rm(const Machine&, const Settings& settings) {
  for (const std::string& name : settings.arguments) {
    const std::uint64_t freed = remove_cached_model(name);
    write_output(fmt::format("{}: removed, {} free again\n", name, human_bytes(freed)));
  }
  return kDone;
}

}  // namespace

Command rm_command() {
  return {
      .name = "rm",
      .arguments = "NAME…",
      .arguments_min = 1,
      .arguments_max = INT_MAX,
      .summary = "delete models from the cache",
      .description = "Deletes models from the cache, also parts that interrupted downloads left.",
      .run = rm};
}

}  // namespace outrider
