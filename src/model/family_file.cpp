#include "model/family_file.h"

#include <algorithm>
#include <limits>

#include "base/bytes.h"
#include "base/error.h"
#include "model/family_keys.h"

namespace outrider {
namespace {

// All elements of an array, a value alone, as numbers; nothing for texts.
std::optional<std::vector<double>> numbers_of(const MetadataValue& value) {
  return std::visit(
      [](const auto& x) -> std::optional<std::vector<double>> {
        using T = std::decay_t<decltype(x)>;
        if constexpr (std::is_arithmetic_v<T>)
          return {{static_cast<double>(x)}};
        else if constexpr (std::is_same_v<T, std::string> ||
                           std::is_same_v<T, std::vector<std::string>>)
          return std::nullopt;
        else
          return std::vector<double>(x.begin(), x.end());
      },
      value);
}

std::vector<MetadataKey> all_keys(std::span<const MetadataKey> own) {
  std::vector<MetadataKey> keys(own.begin(), own.end());
  for (const MetadataKey& key : common_keys())
    if (std::ranges::find(own, key.name, &MetadataKey::name) == own.end()) keys.push_back(key);
  std::ranges::sort(keys, {}, &MetadataKey::name);
  return keys;
}

}  // namespace

std::optional<std::int64_t> same_for_all_layers(const MetadataValue& value) {
  const auto* by_layer = std::get_if<std::vector<std::int64_t>>(&value);
  if (by_layer == nullptr || by_layer->empty()) return std::nullopt;
  const std::int64_t first = by_layer->front();
  const bool all_equal =
      std::ranges::all_of(*by_layer, [&](std::int64_t other) { return other == first; });
  return all_equal ? std::optional(first) : std::nullopt;
}

FamilyFile::FamilyFile(const Checkpoint& checkpoint, std::string_view architecture,
                       std::span<const MetadataKey> own_keys)
    : checkpoint_(checkpoint), architecture_(architecture), keys_(all_keys(own_keys)) {
  check_unsupported();
}

std::string FamilyFile::key(std::string_view name) const {
  return fmt::format("{}.{}", architecture_, name);
}

bool FamilyFile::has(std::string_view name) const {
  return metadata().find(key(name)) != nullptr;
}

const MetadataKey& FamilyFile::row(std::string_view name) const {
  const MetadataKey* found = find_key(keys_, name);
  CHECK(found != nullptr && found->use != KeyUse::harmless);
  return *found;
}

void FamilyFile::missing(std::string_view name) const {
  throw Error("{}: key {} is missing; convert the model again", origin(), key(name));
}

std::int64_t FamilyFile::in_range(std::string_view name, std::int64_t value, std::int64_t least,
                                  std::int64_t most) const {
  if (value >= least && value <= most) return value;
  throw Error("{}: key {} is {}, expected {} to {}; convert the model again", origin(), key(name),
              value, least, most);
}

double FamilyFile::in_range(std::string_view name, double value, double least, double most) const {
  if (value >= least && value <= most) return value;
  throw Error("{}: {} is {}, expected a number from {} to {}; convert the model again", origin(),
              key(name), value, least, most);
}

std::optional<std::int64_t> FamilyFile::found_integer(const MetadataKey& row) const {
  const std::string full = key(row.name);
  const MetadataValue* value = metadata().find(full);
  const auto* by_layer =
      value && row.may_be_by_layer ? std::get_if<std::vector<std::int64_t>>(value) : nullptr;
  if (by_layer == nullptr) return metadata().integer(full);
  const std::int64_t n_layers = integer("block_count", 1, INT64_MAX);
  if (static_cast<std::int64_t>(by_layer->size()) != n_layers) {
    throw Error("{}: key {} is about {} layers, but there are {}; convert the model again",
                origin(), full, by_layer->size(), n_layers);
  }
  const std::optional<std::int64_t> same = same_for_all_layers(*value);
  CHECK(same);  // check_kind refuses others
  return same;
}

std::optional<int> FamilyFile::given_integer(std::string_view name, std::int64_t least,
                                             std::int64_t most) const {
  const std::optional<std::int64_t> found = found_integer(row(name));
  if (!found) return std::nullopt;
  return static_cast<int>(in_range(name, *found, least, most));
}

double FamilyFile::default_number(const MetadataKey& row) const {
  const auto* published = std::get_if<Published>(&row.otherwise);
  if (published == nullptr) return std::get<double>(row.otherwise);
  constexpr double kLargest = std::numeric_limits<double>::max();
  const bool holds = std::ranges::all_of(published->where, [&](const auto& condition) {
    return condition.name.empty() || number(condition.name, -kLargest, kLargest) == condition.is;
  });
  return holds ? published->then : published->otherwise;
}

int FamilyFile::integer(std::string_view name, std::int64_t least, std::int64_t most) const {
  if (const std::optional<int> found = given_integer(name, least, most)) return *found;
  const Default& otherwise = row(name).otherwise;
  if (std::holds_alternative<Required>(otherwise)) missing(name);
  if (const auto* same = std::get_if<SameAs>(&otherwise)) return integer(same->name, least, most);
  return static_cast<int>(default_number(row(name)));
}

std::optional<double> FamilyFile::given_number(std::string_view name, double least,
                                               double most) const {
  row(name);  // must be on the list
  const std::optional<double> found = metadata().number(key(name));
  return found ? std::optional(in_range(name, *found, least, most)) : std::nullopt;
}

double FamilyFile::number(std::string_view name, double least, double most) const {
  if (const std::optional<double> found = given_number(name, least, most)) return *found;
  const Default& otherwise = row(name).otherwise;
  if (std::holds_alternative<Required>(otherwise)) missing(name);
  if (const auto* same = std::get_if<SameAs>(&otherwise)) return number(same->name, least, most);
  return default_number(row(name));
}

std::string FamilyFile::text(std::string_view name) const {
  if (const std::optional<std::string> found = metadata().string(key(name))) return *found;
  return std::string(std::get<std::string_view>(row(name).otherwise));
}

bool FamilyFile::boolean(std::string_view name) const {
  if (const std::optional<bool> found = metadata().boolean(key(name))) return *found;
  return std::get<double>(row(name).otherwise) != 0;
}

// What an unsupported key must be; nothing if that is what the file lacks, too.
std::optional<double> FamilyFile::expected(const MetadataKey& row) const {
  if (const auto* number = std::get_if<double>(&row.otherwise)) return *number;
  const MetadataKey* other = &row;
  while (const auto* same = std::get_if<SameAs>(&other->otherwise)) {
    other = &this->row(same->name);
    if (const auto found = metadata().number(key(other->name))) return found;
  }
  return std::nullopt;
}

void FamilyFile::check_unsupported() const {
  for (const MetadataKey& row : keys_) {
    if (row.use != KeyUse::unsupported) continue;
    const MetadataValue* value = metadata().find(key(row.name));
    if (value == nullptr) continue;
    const std::optional<double> wanted = expected(row);
    const std::optional<std::vector<double>> found = numbers_of(*value);
    const auto differs = [&](double x) { return !wanted || x != *wanted; };
    if (found && std::ranges::none_of(*found, differs)) continue;
    throw Error(
        "{}: {} is {}, expected {}; this variant is not supported in this version, choose "
        "another model",
        origin(), key(row.name),
        found ? fmt::format("{}", fmt::join(*found, ", ")) : std::string("a text"),
        wanted ? fmt::format("{}", *wanted) : text_of(row.otherwise));
  }
}

std::vector<std::string> FamilyFile::unknown_keys() const {
  const std::string prefix = key("");
  std::vector<std::string> lines;
  for (const auto& [name, value] : metadata().entries()) {
    if (!name.starts_with(prefix)) continue;
    if (find_key(keys_, std::string_view(name).substr(prefix.size())) != nullptr) continue;
    lines.push_back(fmt::format(
        "{}: key {} is not known to this version, which computes as if it were not there", origin(),
        printable(name)));
  }
  return lines;
}

}  // namespace outrider
