#include "formats/catalog.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/bytes.h"
#include "base/error.h"
#include "base/nearest_name.h"
#include "formats/partial_file.h"

namespace outrider {

extern const char kCatalogJson[];  // built from assets/catalog.json

namespace {

using Json = nlohmann::json;

bool all_of(std::string_view text, std::string_view allowed) {
  return text.find_first_not_of(allowed) == std::string_view::npos;
}

// Names become file names and arguments of other programs, so they are letters, digits and little
// else.
constexpr std::string_view kNameCharacters = "abcdefghijklmnopqrstuvwxyz0123456789.-_:";
constexpr std::string_view kVersionCharacters = "abcdefghijklmnopqrstuvwxyz0123456789.";

std::string name_in(const Json& json, const char* key, std::string_view allowed) {
  auto name = json.at(key).get<std::string>();
  const bool begins_well = !name.empty() && name[0] != '-' && name[0] != '.';
  if (!begins_well || !all_of(name, allowed))
    throw Error("{} \"{}\" is no name", key, printable(name));
  return name;
}

CatalogSource parse_source(const Json& json) {
  const auto kind = json.at("kind").get<std::string>();
  if (kind != "python-packages") throw Error("source kind \"{}\" is unknown", printable(kind));
  CatalogSource source;
  for (const Json& part : json.at("parts")) {
    source.parts.push_back({
        .package = name_in(part, "package", kNameCharacters),
        .version = name_in(part, "version", kVersionCharacters),
        .member = part.at("member").get<std::string>(),
        .bytes = part.at("bytes").get<std::uint64_t>(),
    });
  }
  return source;
}

CatalogEntry parse_entry(const Json& json) {
  CatalogEntry entry;
  entry.name = name_in(json, "name", kNameCharacters);
  entry.family = json.at("family").get<std::string>();
  entry.description = json.at("description").get<std::string>();
  if (!json.at("license").is_null()) entry.license = json.at("license").get<std::string>();
  entry.bytes = json.at("bytes").get<std::uint64_t>();
  entry.sha256 = json.at("sha256").get<std::string>();
  entry.is_default = json.at("default").get<bool>();
  if (json.contains("draft")) {
    const Json& draft = json.at("draft");
    entry.draft = {.model = name_in(draft, "model", kNameCharacters),
                   .speedup = draft.at("speedup").get<std::string>()};
  }
  for (const Json& source : json.at("sources")) entry.sources.push_back(parse_source(source));

  if (entry.sha256.size() != 64 || !all_of(entry.sha256, "0123456789abcdef")) {
    throw Error("{}: sha256 is not 64 lower-case digits", entry.name);
  }
  if (entry.sources.empty()) throw Error("{}: no source", entry.name);
  for (const CatalogSource& source : entry.sources) {
    std::uint64_t total = 0;
    for (const PackagePart& part : source.parts) total += part.bytes;
    if (total != entry.bytes)
      throw Error("{}: the parts are {} bytes, the file {}", entry.name, total, entry.bytes);
  }
  return entry;
}

std::string file_name(const CatalogEntry& entry) {
  std::string name = entry.name + ".gguf";
  std::replace(name.begin(), name.end(), ':', '-');
  return name;
}

std::vector<std::string> catalog_names() {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : catalog()) names.push_back(entry.name);
  return names;
}

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Nothing if the variable is unset or empty.
std::optional<std::filesystem::path> path_in_environment(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0' ? std::optional<std::filesystem::path>(value)
                                            : std::nullopt;
}

// A path that does not exist is no model; one that cannot be read could be one.
void check_readable(const std::filesystem::path& path, std::error_code problem) {
  if (problem && problem != std::errc::no_such_file_or_directory) {
    throw Error("{}: cannot be read: {}; OUTRIDER_CACHE can name another folder for models",
                path.string(), problem.message());
  }
}

}  // namespace

std::string license_text(const CatalogEntry& entry) {
  return entry.license.value_or("not stated");
}

std::vector<CatalogEntry> parse_catalog(std::string_view json, std::string_view origin) {
  try {
    std::vector<CatalogEntry> entries;
    const Json parsed = Json::parse(json);
    for (const Json& entry : parsed.at("models")) {
      entries.push_back(parse_entry(entry));
      const auto same_file = [&](const CatalogEntry& e) {
        return file_name(e) == file_name(entries.back());
      };
      if (std::count_if(entries.begin(), entries.end(), same_file) > 1)
        throw Error("{} appears twice", entries.back().name);
    }
    for (const CatalogEntry& entry : entries)
      if (entry.draft && std::ranges::count(entries, entry.draft->model, &CatalogEntry::name) == 0)
        throw Error("{}: its draft {} is not in the list", entry.name, entry.draft->model);
    if (std::count_if(entries.begin(), entries.end(),
                      [](const CatalogEntry& e) { return e.is_default; }) != 1) {
      throw Error("not exactly one model is the default");
    }
    return entries;
  } catch (const Json::exception& error) {
    throw Error("{}: {}", origin, printable(error.what(), 200));
  } catch (const Error& error) {
    throw Error("{}: {}", origin, error.what());
  }
}

std::span<const CatalogEntry> catalog() {
  static const std::vector<CatalogEntry> entries =
      parse_catalog(kCatalogJson, "assets/catalog.json");
  return entries;
}

const CatalogEntry& default_model() {
  const auto entries = catalog();
  return *std::find_if(entries.begin(), entries.end(),
                       [](const CatalogEntry& e) { return e.is_default; });
}

const CatalogEntry* find_in_catalog(std::string_view name) {
  for (const CatalogEntry& entry : catalog()) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

std::filesystem::path cache_folder() {
  if (const auto ours = path_in_environment("OUTRIDER_CACHE")) return *ours;
  const auto xdg = path_in_environment("XDG_CACHE_HOME");
  if (xdg && xdg->is_absolute())
    return *xdg / "outrider";  // the specification says to ignore relative ones
  if (const auto home = path_in_environment("HOME")) return *home / ".cache" / "outrider";
  throw Error("no folder for models: set OUTRIDER_CACHE, XDG_CACHE_HOME or HOME");
}

std::filesystem::path cached_path(const CatalogEntry& entry) {
  return cache_folder() / "models" / file_name(entry);
}

bool is_cached(const CatalogEntry& entry) {
  std::error_code problem;
  const std::filesystem::path path = cached_path(entry);
  const std::uintmax_t size = std::filesystem::file_size(path, problem);
  check_readable(path, problem);
  return !problem && size == entry.bytes;
}

std::vector<CachedModel> cached_models() {
  std::vector<CachedModel> models;
  std::error_code problem;
  const std::filesystem::path folder = cache_folder() / "models";
  const std::filesystem::directory_iterator files(folder, problem);
  check_readable(folder, problem);
  for (const auto& file : files) {
    std::string name = file.path().filename().string();
    const bool partial = ends_with(name, kPartialSuffix);
    if (partial) name.resize(name.size() - kPartialSuffix.size());
    if (!ends_with(name, ".gguf") || !file.is_regular_file(problem)) continue;
    CachedModel model;
    model.path = file.path();
    model.bytes = file.file_size(problem);
    if (problem) continue;  // deleted meanwhile
    for (const CatalogEntry& entry : catalog()) {
      if (file_name(entry) == name) model.entry = &entry;
    }
    model.name =
        model.entry ? model.entry->name : name.substr(0, name.size() - std::strlen(".gguf"));
    model.complete = !partial && (model.entry == nullptr || model.entry->bytes == model.bytes);
    models.push_back(std::move(model));
  }
  std::sort(models.begin(), models.end(), [](const CachedModel& a, const CachedModel& b) {
    return std::pair(a.name, a.path) < std::pair(b.name, b.path);
  });
  return models;
}

std::uint64_t remove_cached_model(std::string_view name) {
  std::uint64_t freed = 0;
  std::optional<std::filesystem::path> whole;
  std::vector<std::string> names;
  for (const CachedModel& model : cached_models()) {
    names.push_back(model.name);
    if (model.name != name) continue;
    freed += model.bytes;
    whole = model.path;
    if (ends_with(whole->native(), kPartialSuffix)) whole->replace_extension();
  }
  if (!whole)
    throw Error("no model \"{}\" in {}{}", printable(name), cache_folder().string(),
                did_you_mean(name, names));
  const auto partial = PartialFile::try_lock(*whole);
  if (!partial) throw Error("{} is being pulled by another process; end that first", name);
  std::error_code problem;
  std::filesystem::remove(*whole, problem);
  if (problem) throw Error("{}: cannot be deleted: {}", whole->string(), problem.message());
  std::filesystem::remove_all(partial->download_folder(), problem);
  partial->truncate(0);
  return freed;
}

ModelReference parse_model_reference(std::string_view text) {
  const std::string shown = printable(text, 200);
  if (text.empty())
    throw Error("no model is named; give a name of the catalogue or the path of a .gguf file");
  if (const CatalogEntry* entry = find_in_catalog(text))
    return {.entry = entry, .path = cached_path(*entry)};
  if (text.rfind("hf:", 0) == 0 || text.find("://") != std::string_view::npos)
    throw Error(
        "{}: this version does not fetch from {}; give a name of the catalogue or the path of a "
        ".gguf file",
        shown, text.rfind("hf:", 0) == 0 ? "a hub" : "addresses");
  std::filesystem::path path(text);
  std::error_code problem;
  if (text.find('/') != std::string_view::npos || ends_with(text, ".gguf") ||
      std::filesystem::exists(path, problem)) {
    return {.path = std::move(path)};
  }
  const std::vector<std::string> names = catalog_names();
  throw Error("{}: unknown; expected {} or the path of a .gguf file{}", shown,
              fmt::join(names, ", "), did_you_mean(text, names));
}

}  // namespace outrider
