#include "formats/checkpoint.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <limits>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"

namespace outrider {
namespace {

constexpr const char* kKinds[] = {"an integer",
                                  "an integer",
                                  "a float",
                                  "a boolean",
                                  "a string",
                                  "an array of integers",
                                  "an array of floats",
                                  "an array of booleans",
                                  "an array of strings"};
static_assert(std::size(kKinds) == std::variant_size_v<MetadataValue>);

template <typename T>
constexpr const char* kind_of_type() {
  return kKinds[MetadataValue(T()).index()];
}

}  // namespace

void Metadata::insert(std::string key, MetadataValue value) {
  const auto [place, is_new] = entries_.emplace(std::move(key), std::move(value));
  if (!is_new)
    throw Error("{}: key {} appears twice; convert the model again", origin_,
                printable(place->first));
}

const MetadataValue* Metadata::find(std::string_view key) const {
  const auto place = entries_.find(key);
  return place == entries_.end() ? nullptr : &place->second;
}

template <typename T>
const T* Metadata::find_as(std::string_view key) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) return nullptr;
  if (const T* typed = std::get_if<T>(value)) return typed;
  throw Error("{}: key {} holds {}, expected {}; convert the model again", origin_, printable(key),
              kKinds[value->index()], kind_of_type<T>());
}

template <typename T>
T Metadata::require(std::string_view key, std::optional<T> value) const {
  if (!value)
    throw Error("{}: key {} is missing; convert the model again", origin_, printable(key));
  return *std::move(value);
}

std::optional<std::int64_t> Metadata::integer(std::string_view key) const {
  const MetadataValue* value = find(key);
  if (const auto* large = value ? std::get_if<std::uint64_t>(value) : nullptr) {
    throw Error("{}: key {} is {}, expected at most {}; convert the model again", origin_,
                printable(key), *large, std::numeric_limits<std::int64_t>::max());
  }
  const auto* typed = find_as<std::int64_t>(key);
  return typed ? std::optional(*typed) : std::nullopt;
}

std::optional<double> Metadata::number(std::string_view key) const {
  const MetadataValue* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (const auto* i = std::get_if<std::int64_t>(value)) return static_cast<double>(*i);
  if (const auto* u = std::get_if<std::uint64_t>(value)) return static_cast<double>(*u);
  return *find_as<double>(key);
}

std::optional<bool> Metadata::boolean(std::string_view key) const {
  const auto* typed = find_as<bool>(key);
  return typed ? std::optional(*typed) : std::nullopt;
}

std::optional<std::string> Metadata::string(std::string_view key) const {
  const auto* typed = find_as<std::string>(key);
  return typed ? std::optional(*typed) : std::nullopt;
}

const std::vector<std::int64_t>* Metadata::integers(std::string_view key) const {
  return find_as<std::vector<std::int64_t>>(key);
}

const std::vector<double>* Metadata::numbers(std::string_view key) const {
  return find_as<std::vector<double>>(key);
}

const std::vector<std::string>* Metadata::strings(std::string_view key) const {
  return find_as<std::vector<std::string>>(key);
}

std::int64_t Metadata::require_integer(std::string_view key, std::int64_t least,
                                       std::int64_t most) const {
  const std::int64_t value = require(key, integer(key));
  if (value < least || value > most) {
    throw Error("{}: key {} is {}, expected {} to {}; convert the model again", origin_,
                printable(key), value, least, most);
  }
  return value;
}

double Metadata::require_number(std::string_view key) const {
  return require(key, number(key));
}

std::string Metadata::require_string(std::string_view key) const {
  return require(key, string(key));
}

std::size_t Checkpoint::file_bytes() const {
  std::size_t bytes = 0;
  for (const MappedFile& file : files) bytes += file.bytes().size();
  return bytes;
}

namespace {

// The file that holds these bytes; null if there is none.
const MappedFile* file_of(const std::vector<MappedFile>& files, std::span<const std::byte> bytes) {
  const auto found =
      std::ranges::find_if(files, [&](const auto& file) { return file.holds(bytes); });
  return found == files.end() ? nullptr : &*found;
}

}  // namespace

void Checkpoint::prefetch(std::span<const std::byte> bytes) const {
  if (const MappedFile* file = file_of(files, bytes)) file->prefetch(bytes);
}

void Checkpoint::release(std::span<const std::byte> bytes) const {
  if (const MappedFile* file = file_of(files, bytes)) file->release(bytes);
}

const TensorView* Checkpoint::find(std::string_view name) const {
  const auto place = tensor_index.find(std::string(name));
  return place == tensor_index.end() ? nullptr : &tensors[place->second];
}

}  // namespace outrider
