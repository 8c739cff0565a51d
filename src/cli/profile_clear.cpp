#include "cli/commands.h"
#include "cli/console.h"
#include "runtime/profile_store.h"

namespace outrider {
namespace {

int profile_clear(const Machine&, const Settings& settings) {
  Console console(settings);
  const std::int64_t n = ProfileStore(profile_file(), console.progress()).clear();
  write_output(fmt::format("{} profile{} removed\n", n, n == 1 ? "" : "s"));
  return kDone;
}

}  // namespace

Command profile_clear_command() {
  return {.name = "profile clear",
          .summary = "remove what was measured and kept",
          .description =
              "Removes all profiles from the cache. The next start of each model measures again.",
          .run = profile_clear};
}

}  // namespace outrider
