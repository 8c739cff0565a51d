#include "formats/listed_metadata.h"

#include <algorithm>
#include <limits>

#include "base/bytes.h"
#include "base/error.h"

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

}  // namespace

std::optional<std::int64_t> same_for_all_layers(const MetadataValue& value) {
  const auto* by_layer = std::get_if<std::vector<std::int64_t>>(&value);
  if (by_layer == nullptr || by_layer->empty()) return std::nullopt;
  const std::int64_t first = by_layer->front();
  const bool all_equal =
      std::ranges::all_of(*by_layer, [&](std::int64_t other) { return other == first; });
  return all_equal ? std::optional(first) : std::nullopt;
}

ListedMetadata::ListedMetadata(const Metadata& metadata, std::string prefix,
                               std::vector<MetadataKey> keys)
    : metadata_(metadata), prefix_(std::move(prefix)), keys_(std::move(keys)) {
  check_unsupported();
}

std::string ListedMetadata::key(std::string_view name) const {
  return fmt::format("{}{}", prefix_, name);
}

bool ListedMetadata::has(std::string_view name) const {
  return metadata_.find(key(name)) != nullptr;
}

const MetadataKey& ListedMetadata::row(std::string_view name) const {
  const MetadataKey* found = find_key(keys_, name);
  CHECK(found != nullptr && found->use != KeyUse::harmless);
  return *found;
}

std::optional<std::int64_t> ListedMetadata::found_integer(const MetadataKey& row) const {
  const std::string full = key(row.name);
  const MetadataValue* value = metadata_.find(full);
  if (value && row.may_be_by_layer)
    if (const std::optional<std::int64_t> same = same_for_all_layers(*value)) return same;
  return metadata_.integer(full);
}

std::optional<int> ListedMetadata::given_integer(std::string_view name, std::int64_t least,
                                                 std::int64_t most) const {
  const std::optional<std::int64_t> found = found_integer(row(name));
  if (!found) return std::nullopt;
  if (*found >= least && *found <= most) return static_cast<int>(*found);
  throw Error("{}: key {} is {}, expected {} to {}; convert the model again", origin(), key(name),
              *found, least, most);
}

double ListedMetadata::default_number(const MetadataKey& row) const {
  if (std::holds_alternative<Required>(row.otherwise))
    throw Error("{}: key {} is missing; convert the model again", origin(), key(row.name));
  const auto* published = std::get_if<Published>(&row.otherwise);
  if (published == nullptr) return std::get<double>(row.otherwise);
  return holds(*published) ? published->then : published->elsewhere;
}

bool ListedMetadata::holds(const Published& published) const {
  constexpr double kLargest = std::numeric_limits<double>::max();
  return std::ranges::all_of(published.where, [&](const auto& condition) {
    return condition.name.empty() || number(condition.name, -kLargest, kLargest) == condition.is;
  });
}

std::string ListedMetadata::default_text(const MetadataKey& row) const {
  const auto* published = std::get_if<Published>(&row.otherwise);
  if (published == nullptr) return text_of(row.otherwise);
  return holds(*published) ? fmt::format("{} ({})", published->then, published->model)
                           : fmt::format("{}", published->elsewhere);
}

int ListedMetadata::integer(std::string_view name, std::int64_t least, std::int64_t most) const {
  if (const std::optional<int> found = given_integer(name, least, most)) return *found;
  const Default& otherwise = row(name).otherwise;
  if (const auto* same = std::get_if<SameAs>(&otherwise)) return integer(same->name, least, most);
  return static_cast<int>(default_number(row(name)));
}

std::optional<double> ListedMetadata::given_number(std::string_view name, double least,
                                                   double most) const {
  const MetadataKey& row = this->row(name);
  std::optional<double> found;
  if (row.may_be_by_layer)
    found = found_integer(row);
  else
    found = metadata_.number(key(name));
  if (!found || (*found >= least && *found <= most)) return found;
  throw Error("{}: {} is {}, expected a number from {} to {}; convert the model again", origin(),
              key(name), *found, least, most);
}

double ListedMetadata::number(std::string_view name, double least, double most) const {
  if (const std::optional<double> found = given_number(name, least, most)) return *found;
  const Default& otherwise = row(name).otherwise;
  if (const auto* same = std::get_if<SameAs>(&otherwise)) return number(same->name, least, most);
  return default_number(row(name));
}

std::string ListedMetadata::text(std::string_view name) const {
  if (const std::optional<std::string> found = metadata_.string(key(name))) return *found;
  if (std::holds_alternative<Required>(row(name).otherwise))
    return metadata_.require_string(key(name));
  return std::string(std::get<std::string_view>(row(name).otherwise));
}

bool ListedMetadata::boolean(std::string_view name) const {
  if (const std::optional<bool> found = metadata_.boolean(key(name))) return *found;
  return std::get<double>(row(name).otherwise) != 0;
}

void ListedMetadata::must_be(const MetadataKey& row, std::optional<double> wanted) const {
  const MetadataValue* value = metadata_.find(key(row.name));
  if (value == nullptr) return;
  const std::optional<std::vector<double>> found = numbers_of(*value);
  const auto differs = [&](double x) { return !wanted || x != *wanted; };
  if (found && std::ranges::none_of(*found, differs)) return;
  throw Error(
      "{}: {} is {}, expected {}; this variant is not supported in this version, choose another "
      "model",
      origin(), key(row.name),
      found ? fmt::format("{}", fmt::join(*found, ", ")) : std::string("a text"),
      wanted ? fmt::format("{}", *wanted) : text_of(row.otherwise));
}

void ListedMetadata::must_be(std::string_view name, int wanted) const {
  must_be(row(name), wanted);
}

void ListedMetadata::check_unsupported() const {
  for (const MetadataKey& row : keys_) {
    if (row.use != KeyUse::unsupported || std::holds_alternative<SameAs>(row.otherwise)) continue;
    const auto* number = std::get_if<double>(&row.otherwise);
    must_be(row, number ? std::optional(*number) : std::nullopt);
  }
}

std::vector<std::string> ListedMetadata::unknown_keys() const {
  std::vector<std::string> lines;
  for (const auto& [name, value] : metadata_.entries()) {
    if (!name.starts_with(prefix_)) continue;
    if (find_key(keys_, std::string_view(name).substr(prefix_.size())) != nullptr) continue;
    lines.push_back(fmt::format("{}: key {} is not known to this version and is ignored", origin(),
                                printable(name)));
  }
  return lines;
}

std::vector<TakenKey> taken_keys(const ListedMetadata& listed) {
  std::vector<TakenKey> taken;
  for (const MetadataKey& row : listed.keys())
    taken.push_back({listed.key(row.name), row, listed.has(row.name), listed.default_text(row)});
  return taken;
}

}  // namespace outrider
