#include "formats/pull.h"

#include <climits>

#include "base/nearest_name.h"
#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"

namespace outrider {
namespace {

int pull_models(const Machine&, const Settings& settings) {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : catalog()) names.push_back(entry.name);
  std::vector<const CatalogEntry*> wanted;
  for (const std::string& name : settings.arguments) {
    wanted.push_back(find_in_catalog(name));
    if (!wanted.back()) {
      throw UsageError("{}: no model of the catalogue{}; outrider list --all shows them", name,
                       did_you_mean(name, names));
    }
  }

  Console console(settings);
  Json pulled = Json::array();
  for (const CatalogEntry* entry : wanted) {
    const PullResult result = pull(*entry, {settings.offline, console.progress()});
    // The model and its licence were shown when the download began.
    console.note(result.was_cached ? fmt::format("{}: already downloaded, licence: {}", entry->name,
                                                 license_text(*entry))
                                   : fmt::format("{}: downloaded", entry->name));
    pulled.push_back({{"name", entry->name},
                      {"path", result.path.string()},
                      {"bytes", entry->bytes},
                      {"sha256", entry->sha256},
                      {"license", license_text(*entry)},
                      {"was_cached", result.was_cached}});
  }
  // One model gives one object, so that the common case needs no index.
  if (settings.json) write_json(pulled.size() == 1 ? pulled[0] : pulled);
  return kDone;
}

}  // namespace

Command pull_command() {
  return {
      .name = "pull",
      .arguments = "NAME…",
      .arguments_min = 1,
      .arguments_max = INT_MAX,
      .summary = "download models of the catalogue",
      .description =
          "Downloads models into the cache, verifies their checksums and shows their licences. A "
          "download that was interrupted continues where it stopped.",
      .flags = {"--offline", "--json", "--log-file", "--quiet", "--verbose"},
      .run = pull_models};
}

}  // namespace outrider
