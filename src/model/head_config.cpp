#include "model/head_config.h"

#include "base/bytes.h"
#include "base/error.h"
#include "formats/parse_json.h"

namespace outrider {

HeadConfig::HeadConfig(const nlohmann::json& object, std::string origin, std::string path)
    : object_(object), origin_(std::move(origin)), path_(std::move(path)) {
  if (!object_.is_object())
    throw Error("{}: {} is {}, expected an object", origin_, path_.empty() ? "it" : path_,
                json_type(object_));
}

std::string HeadConfig::name(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

const nlohmann::json* HeadConfig::find(std::string_view key) const {
  const auto found = object_.find(key);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

bool HeadConfig::has(std::string_view key) const {
  return find(key) != nullptr;
}

void HeadConfig::refuse(std::string_view key, const nlohmann::json& value,
                        std::string_view expected) const {
  throw Error("{}: {} is {}, expected {}", origin_, name(key),
              printable(dump_json(nlohmann::ordered_json(value)).substr(0, 80)), expected);
}

std::optional<int> HeadConfig::integer(std::string_view key, int least, int most) const {
  const nlohmann::json* const value = find(key);
  if (!value) return {};
  if (!value->is_number_integer() || *value < least || *value > most)
    refuse(key, *value, fmt::format("an integer from {} to {}", least, most));
  return value->get<int>();
}

int HeadConfig::required_integer(std::string_view key, int least, int most) const {
  const auto value = integer(key, least, most);
  if (!value) throw Error("{}: {} is missing", origin_, name(key));
  return *value;
}

std::optional<double> HeadConfig::number(std::string_view key, double least, double most) const {
  const nlohmann::json* const value = find(key);
  if (!value) return {};
  if (!value->is_number() || !(*value >= least && *value <= most))
    refuse(key, *value, fmt::format("a number from {} to {}", least, most));
  return value->get<double>();
}

std::optional<bool> HeadConfig::boolean(std::string_view key) const {
  const nlohmann::json* const value = find(key);
  if (!value) return {};
  if (!value->is_boolean()) refuse(key, *value, "true or false");
  return value->get<bool>();
}

std::optional<std::string> HeadConfig::text(std::string_view key) const {
  const nlohmann::json* const value = find(key);
  if (!value) return {};
  if (!value->is_string()) refuse(key, *value, "a string");
  return value->get<std::string>();
}

std::optional<std::vector<int>> HeadConfig::integers(std::string_view key, int least,
                                                     int most) const {
  const nlohmann::json* const value = find(key);
  if (!value) return {};
  const std::string expected = fmt::format("a list of integers from {} to {}", least, most);
  if (!value->is_array() || value->size() > 256) refuse(key, *value, expected);
  std::vector<int> integers;
  for (const nlohmann::json& each : *value) {
    if (!each.is_number_integer() || each < least || each > most) refuse(key, *value, expected);
    integers.push_back(each.get<int>());
  }
  return integers;
}

std::optional<HeadConfig> HeadConfig::object(std::string_view key) const {
  const nlohmann::json* const value = find(key);
  if (!value) return {};
  return HeadConfig(*value, origin_, name(key));
}

}  // namespace outrider
