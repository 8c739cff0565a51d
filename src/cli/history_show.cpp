#include <fmt/chrono.h>

#include "base/bytes.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "runtime/history_store.h"

namespace outrider {
namespace {

int history_show(const Machine&, const Settings& settings) {
  Console console(settings);
  const std::vector<HistoryStore::Entry> entries =
      HistoryStore(history_file(), console.progress()).entries();
  if (settings.json) {
    Json list = Json::array();
    for (const HistoryStore::Entry& entry : entries)
      list.push_back({{"model", entry.model},
                      {"answers", entry.n_answers},
                      {"tokens", entry.n_tokens},
                      {"used", fmt::format("{:%FT%TZ}", entry.used)}});
    write_json(list);
    return kDone;
  }
  if (entries.empty()) {
    write_output("no answers\n");
    return kDone;
  }
  Table table({"model", "answers", "tokens", "last used"}, "lrrl");
  for (const HistoryStore::Entry& entry : entries)
    table.add({printable(entry.model), fmt::format("{}", entry.n_answers),
               fmt::format("{}", entry.n_tokens), local_time(entry.used)});
  write_output(table.text(output_width()));
  return kDone;
}

}  // namespace

Command history_show_command() {
  return {
      .name = "history show",
      .summary = "show how many answers are kept",
      .description =
          "Shows of which models answers are kept, how many and when they were used last: those "
          "that run gave with --history. Only the user who ran it can read them.",
      .flags = {"--json"},
      .run = history_show};
}

}  // namespace outrider
