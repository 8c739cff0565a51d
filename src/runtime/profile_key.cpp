#include "runtime/profile_key.h"

#include <sys/stat.h>

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/hash.h"

namespace outrider {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kHashedAtEachEnd = std::size_t{256} << 10;

std::span<const std::byte> header_of(const Checkpoint& checkpoint) {
  const std::span<const std::byte> file = checkpoint.files.front().bytes();
  std::size_t header_bytes = file.size();
  for (const TensorView& tensor : checkpoint.tensors) {
    // Unsigned, so that tensors of other files are far behind.
    const auto place = reinterpret_cast<std::uintptr_t>(tensor.bytes.data()) -
                       reinterpret_cast<std::uintptr_t>(file.data());
    header_bytes = std::min<std::size_t>(header_bytes, place);
  }
  return file.first(header_bytes);
}

}  // namespace

ModelFile identify(std::string name, const Checkpoint& checkpoint) {
  const std::span<const std::byte> header = header_of(checkpoint);
  Sha256 hash;
  if (header.size() <= 2 * kHashedAtEachEnd) {
    hash.update(header);
  } else {
    hash.update(header.first(kHashedAtEachEnd));
    hash.update(header.last(kHashedAtEachEnd));
  }
  ModelFile file{
      .name = std::move(name), .header_hash = hash.hex(), .bytes = checkpoint.file_bytes()};
  struct stat status;
  if (::stat(checkpoint.path.c_str(), &status) == 0) {
    file.modified_ns = std::int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  }
  return file;
}

Json json_of(const ProfileKey& key) {
  Json files = Json::array();
  for (const ModelFile& file : key.files) {
    files.push_back({{"name", file.name},
                     {"header_hash", file.header_hash},
                     {"bytes", file.bytes},
                     {"modified_ns", file.modified_ns}});
  }
  return {{"files", files},
          {"processor", key.processor},
          {"processors", key.n_processors},
          {"instruction_set", key.instruction_set},
          {"threads", key.n_threads},
          {"cache_type", key.cache_type},
          {"drafters", key.drafters},
          {"settings", key.settings}};
}

ProfileKey profile_key_from(const Json& json) {
  ProfileKey key;
  for (const Json& file : json.at("files")) {
    key.files.push_back({.name = file.at("name"),
                         .header_hash = file.at("header_hash"),
                         .bytes = file.at("bytes"),
                         .modified_ns = file.at("modified_ns")});
  }
  json.at("processor").get_to(key.processor);
  json.at("processors").get_to(key.n_processors);
  json.at("instruction_set").get_to(key.instruction_set);
  json.at("threads").get_to(key.n_threads);
  json.at("cache_type").get_to(key.cache_type);
  json.at("drafters").get_to(key.drafters);
  json.at("settings").get_to(key.settings);
  return key;
}

std::string id_of(const ProfileKey& key) {
  Json json = json_of(key);
  for (Json& file : json["files"]) file.erase("name");
  const std::string text = json.dump(-1, ' ', false, Json::error_handler_t::replace);
  Sha256 hash;
  hash.update(std::as_bytes(std::span(text)));
  return hash.hex();
}

}  // namespace outrider
