#include "cli/commands.h"
#include "cli/console.h"
#include "runtime/history_store.h"

namespace outrider {
namespace {

int history_clear(const Machine&, const Settings& settings) {
  Console console(settings);
  const std::int64_t n = HistoryStore(history_file(), console.progress()).clear();
  write_output(fmt::format("{} answer{} removed\n", n, n == 1 ? "" : "s"));
  return kDone;
}

}  // namespace

Command history_clear_command() {
  return {.name = "history clear",
          .summary = "remove the answers that are kept",
          .description = "Removes all answers that run kept with --history, of all models.",
          .run = history_clear};
}

}  // namespace outrider
