// The config.json that lies beside the weights of a Hugging Face checkpoint.

#pragma once

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

namespace outrider {

// The object in config.json in the folder of `weights`, which is that folder or a file in it;
// nothing if there is no such file. Throws Error, naming config.json, if it cannot be read, is
// larger than 1 MB, or is no JSON object (parse_json.h).
std::optional<nlohmann::json> read_config(const std::filesystem::path& weights);

// Replaces that file by the object that `change` makes of its own, whole or not at all; keys keep
// their order and numbers their digits, but white space goes. Throws Error as read_config() does,
// if there is no such file, if an object in it has a key twice, or if it cannot be written.
void change_config(const std::filesystem::path& weights,
                   const std::function<void(nlohmann::ordered_json&)>& change);

}  // namespace outrider
