#include "formats/config_file.h"

#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/mapped_file.h"
#include "formats/parse_json.h"

namespace outrider {

std::optional<nlohmann::json> read_config(const std::filesystem::path& weights) {
  constexpr std::size_t kBytesMax = 1 << 20;
  std::error_code problem;
  const bool is_folder = std::filesystem::is_directory(weights, problem);
  const std::filesystem::path path = (is_folder ? weights : weights.parent_path()) / "config.json";
  if (!std::filesystem::exists(path, problem) && !problem) return std::nullopt;
  const MappedFile file(path);
  if (file.bytes().size() > kBytesMax) {
    throw Error("{}: has {} bytes, expected at most {}", path.string(), file.bytes().size(),
                kBytesMax);
  }
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  nlohmann::json config = parse_json(text, path.string());
  if (!config.is_object())
    throw Error("{}: holds JSON of type {}, expected an object", path.string(), json_type(config));
  return config;
}

}  // namespace outrider
