// The config.json that lies beside the weights of a Hugging Face checkpoint.

#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

namespace outrider {

// The object in config.json in the folder of `weights`, which is that folder or a file in it;
// nothing if there is no such file. Throws Error, naming config.json, if it cannot be read, is
// larger than 1 MB, or is no JSON object (parse_json.h).
std::optional<nlohmann::json> read_config(const std::filesystem::path& weights);

}  // namespace outrider
