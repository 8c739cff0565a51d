#include "cli/commands.h"
#include "cli/console.h"
#include "cli/json.h"
#include "formats/catalog.h"

namespace outrider {
namespace {

int list(const Machine&, const Settings& settings) {
  Json list = Json::array();
  Table table({"model", "size", "state", "licence"}, "lrll");
  const auto add = [&](const std::string& name, std::uint64_t bytes, std::string_view state,
                       const CatalogEntry* entry, const std::filesystem::path& path) {
    table.add({name, human_bytes(bytes), std::string(state), entry ? license_text(*entry) : "-"});
    Json item = {{"name", name}, {"bytes", bytes}, {"state", state}};
    if (!path.empty()) item["path"] = path.string();
    if (entry) {
      item["description"] = entry->description;
      item["license"] = license_text(*entry);
    }
    list.push_back(std::move(item));
  };

  const std::vector<CachedModel> cached = cached_models();
  for (const CachedModel& model : cached) {
    add(model.name, model.bytes, model.complete ? "here" : "incomplete", model.entry, model.path);
  }
  if (settings.all) {
    for (const CatalogEntry& entry : catalog()) {
      const bool listed = std::any_of(cached.begin(), cached.end(), [&](const CachedModel& model) {
        return model.entry == &entry;
      });
      if (!listed) add(entry.name, entry.bytes, "can be pulled", &entry, {});
    }
  }
  if (settings.json) {
    write_json(list);
  } else if (list.empty()) {
    write_output("no models yet; outrider list --all shows what outrider pull can download\n");
  } else {
    write_output(table.text(output_width()));
  }
  return kDone;
}

}  // namespace

Command list_command() {
  return {.name = "list",
          .summary = "list downloaded models",
          .description =
              "Lists the models in the cache; with --all, also those that can be downloaded.",
          .flags = {"--json", "--all"},
          .run = list};
}

}  // namespace outrider
