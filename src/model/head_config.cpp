#include "model/head_config.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/error.h"
#include "formats/parse_json.h"

namespace outrider {
namespace {

// The library's own comparison takes integers of 2^63 and more for negative ones.
bool is_integer_within(const nlohmann::json& value, int least, int most) {
  const auto is_within = [&](auto integer) {
    return std::cmp_greater_equal(integer, least) && std::cmp_less_equal(integer, most);
  };
  if (value.is_number_unsigned()) return is_within(value.get<std::uint64_t>());
  return value.is_number_integer() && is_within(value.get<std::int64_t>());
}

}  // namespace

HeadConfig::HeadConfig(const nlohmann::json& object, std::string origin, Names names,
                       std::string path)
    : object_(object),
      origin_(std::move(origin)),
      names_(std::move(names)),
      path_(std::move(path)) {
  if (!object_.is_object())
    throw Error("{}: {} is {}, expected an object", origin_, path_.empty() ? "it" : path_,
                json_type(object_));
}

std::string HeadConfig::path_of(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

std::string HeadConfig::name(std::string_view key) const {
  const std::string path = path_of(key);
  const auto found = names_.find(path);
  return found == names_.end() ? path : found->second;
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
  const std::string found = value.is_string()
                                ? fmt::format("\"{}\"", printable(value.get<std::string>()))
                                : printable(dump_json(nlohmann::ordered_json(value)));
  throw Error("{}: {} is {}, expected {}", origin_, name(key), found, expected);
}

std::optional<int> HeadConfig::integer(std::string_view key, int least, int most) const {
  const nlohmann::json* const value = find(key);
  if (!value) return {};
  if (!is_integer_within(*value, least, most))
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
    if (!is_integer_within(each, least, most)) refuse(key, *value, expected);
    integers.push_back(each.get<int>());
  }
  return integers;
}

std::optional<std::vector<bool>> HeadConfig::booleans(std::string_view key) const {
  const nlohmann::json* const value = find(key);
  if (!value) return {};
  const bool is_list =
      value->is_array() && value->size() <= 256 &&
      std::ranges::all_of(*value, [](const auto& each) { return each.is_boolean(); });
  if (!is_list) refuse(key, *value, "a list of true and false");
  std::vector<bool> booleans;
  for (const nlohmann::json& each : *value) booleans.push_back(each.get<bool>());
  return booleans;
}

std::optional<std::vector<std::string>> HeadConfig::texts(std::string_view key) const {
  const nlohmann::json* const value = find(key);
  if (!value) return {};
  const bool is_list =
      value->is_array() && value->size() <= 256 &&
      std::ranges::all_of(*value, [](const auto& each) { return each.is_string(); });
  if (!is_list) refuse(key, *value, "a list of strings");
  return value->get<std::vector<std::string>>();
}

std::optional<HeadConfig> HeadConfig::object(std::string_view key) const {
  const nlohmann::json* const value = find(key);
  if (!value) return {};
  return HeadConfig(*value, origin_, names_, path_of(key));
}

}  // namespace outrider
