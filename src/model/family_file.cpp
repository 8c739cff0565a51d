#include "model/family_file.h"

#include <algorithm>

#include "base/error.h"
#include "model/family_keys.h"

namespace outrider {
namespace {

std::vector<MetadataKey> all_keys(std::span<const MetadataKey> own) {
  std::vector<MetadataKey> keys(own.begin(), own.end());
  for (const MetadataKey& key : common_keys())
    if (std::ranges::find(own, key.name, &MetadataKey::name) == own.end()) keys.push_back(key);
  std::ranges::sort(keys, {}, &MetadataKey::name);
  return keys;
}

}  // namespace

FamilyFile::FamilyFile(const Checkpoint& checkpoint, std::string_view architecture,
                       std::span<const MetadataKey> own_keys)
    : ListedMetadata(checkpoint.metadata, fmt::format("{}.", architecture), all_keys(own_keys)),
      checkpoint_(checkpoint),
      architecture_(architecture) {
  for (const MetadataKey& row : keys()) {
    const MetadataValue* value = row.may_be_by_layer ? metadata().find(key(row.name)) : nullptr;
    const auto* by_layer = value ? std::get_if<std::vector<std::int64_t>>(value) : nullptr;
    if (by_layer == nullptr) continue;
    const int n_layers = integer("block_count", 0, INT32_MAX);
    if (static_cast<int>(by_layer->size()) != n_layers) {
      throw Error("{}: key {} is about {} layers, but there are {}; convert the model again",
                  origin(), key(row.name), by_layer->size(), n_layers);
    }
  }
}

}  // namespace outrider
