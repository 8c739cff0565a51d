#include "formats/config_file.h"

#include <span>
#include <string>
#include <string_view>
#include <system_error>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/new_file.h"
#include "formats/parse_json.h"

namespace outrider {

namespace {

std::filesystem::path config_path(const std::filesystem::path& weights) {
  std::error_code problem;
  const bool is_folder = std::filesystem::is_directory(weights, problem);
  return (is_folder ? weights : weights.parent_path()) / "config.json";
}

std::string_view config_text(const MappedFile& file, const std::filesystem::path& path) {
  constexpr std::size_t kBytesMax = 1 << 20;
  if (file.bytes().size() > kBytesMax) {
    throw Error("{}: has {} bytes, expected at most {}", path.string(), file.bytes().size(),
                kBytesMax);
  }
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

template <typename Json>
Json checked_object(Json config, const std::filesystem::path& path) {
  if (!config.is_object())
    throw Error("{}: holds JSON of type {}, expected an object", path.string(), json_type(config));
  return config;
}

}  // namespace

std::optional<nlohmann::json> read_config(const std::filesystem::path& weights) {
  const std::filesystem::path path = config_path(weights);
  std::error_code problem;
  if (!std::filesystem::exists(path, problem) && !problem) return std::nullopt;
  const MappedFile file(path);
  return checked_object(parse_json(config_text(file, path), path.string()), path);
}

void change_config(const std::filesystem::path& weights,
                   const std::function<void(nlohmann::ordered_json&)>& change) {
  const std::filesystem::path path = config_path(weights);
  const MappedFile file(path);
  auto config = checked_object(parse_ordered_json(config_text(file, path), path.string()), path);
  change(config);
  const std::string text = dump_json(config) + "\n";
  NewFile output(path);
  output.write(std::as_bytes(std::span(text)));
  output.complete();
}

}  // namespace outrider
