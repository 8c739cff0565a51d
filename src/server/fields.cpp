#include "server/fields.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/numbers.h"
#include "formats/parse_json.h"

namespace outrider {
namespace {

std::string_view type_text(const Json& json) {
  switch (json.type()) {
    case Json::value_t::null: return "null";
    case Json::value_t::object: return "an object";
    case Json::value_t::array: return "a list";
    case Json::value_t::string: return "a string";
    case Json::value_t::boolean: return "a boolean";
    default: return "a number";
  }
}

// A value as messages show it: short ones themselves, others by their type.
std::string shown(const Json& json) {
  if (json.is_string()) return in_quotes(json.get_ref<const std::string&>());
  constexpr std::size_t kShown = 48;  // digits
  if (const auto digits = literal_text(json))
    return fmt::format("{}{}", digits->substr(0, kShown), digits->size() > kShown ? "..." : "");
  if (json.is_number() || json.is_boolean()) return dump_json(json);
  return std::string(type_text(json));
}

std::string member_path(const std::string& path, std::string_view key) {
  constexpr std::size_t kShown = 64;
  std::string shown =
      Json(key.substr(0, kShown)).dump(-1, ' ', false, Json::error_handler_t::replace);
  shown = shown.substr(1, shown.size() - 2);
  return path.empty() ? shown : path + '.' + shown;
}

}  // namespace

Json parse_body(std::string_view body) {
  try {
    Json json = parse_ordered_json(body, "request body");
    if (!json.is_object())
      throw Error("request body: found {}, expected a JSON object", type_text(json));
    return json;
  } catch (const Error& error) {
    throw RequestError(400, "", "", error.what());
  }
}

void refuse_field(const std::string& path, std::string_view problem) {
  throw RequestError(400, "", path,
                     fmt::format("{}: {}", path.empty() ? "request" : path, problem));
}

std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 48;
  Json shown = text;
  if (text.size() > kShown) shown = fmt::format("{}...", text.substr(0, kShown));
  return shown.dump(-1, ' ', false, Json::error_handler_t::replace);
}

void FieldValue::refuse(std::string_view problem) const {
  refuse_field(path_, problem);
}

void FieldValue::unsupported(std::string_view remedy) const {
  const bool is_short = json_->is_primitive();
  throw RequestError(400, "unsupported_value", path_,
                     fmt::format("{}: {}not supported; {}", path_,
                                 is_short ? shown(*json_) + " is " : "", remedy));
}

void FieldValue::ignore() const {
  if (!*unknown_) return;
  std::string place;
  bool is_number = false;
  for (const char c : path_) {
    if (c == ']') is_number = false;
    if (!is_number) place += c;
    if (c == '[') is_number = true;
  }
  (*unknown_)(place);
}

void FieldValue::expected(std::string_view what) const {
  refuse(fmt::format("found {}, expected {}", shown(*json_), what));
}

std::int64_t FieldValue::integer(std::int64_t least, std::int64_t most) const {
  const auto in_range = [&](auto value) {
    if (std::cmp_less(value, least) || std::cmp_greater(value, most))
      expected(integer_text(least, most));
    return static_cast<std::int64_t>(value);
  };
  if (json_->is_number_unsigned()) return in_range(json_->get<std::uint64_t>());
  if (json_->is_number_integer()) return in_range(json_->get<std::int64_t>());
  if (json_->is_number_float()) {
    constexpr double kExact = 9007199254740992;  // 2^53
    const double value = json_->get<double>();
    if (std::abs(value) < kExact && std::trunc(value) == value)
      return in_range(static_cast<std::int64_t>(value));
  }
  expected(integer_text(least, most));
}

double FieldValue::number(double least, double most) const {
  std::optional<double> value;
  if (json_->is_number()) value = json_->get<double>();
  if (const auto digits = literal_text(*json_)) value = parse_number<double>(*digits);
  if (value && *value >= least && *value <= most) return *value;
  expected(number_text(least, most));
}

bool FieldValue::boolean() const {
  if (!json_->is_boolean()) expected("true or false");
  return json_->get<bool>();
}

const std::string& FieldValue::text() const {
  if (!json_->is_string()) expected("a string");
  return json_->get_ref<const std::string&>();
}

std::string FieldValue::text(std::size_t bytes_max) const {
  const std::string& value = text();
  if (value.size() > bytes_max)
    refuse(fmt::format("has {} bytes, expected at most {}", value.size(), bytes_max));
  return value;
}

void FieldValue::each_item(const std::function<void(const FieldValue&)>& visit, std::size_t least,
                           std::size_t most) const {
  if (!json_->is_array()) expected("a list");
  check_size(least, most);
  for (std::size_t i = 0; i < json_->size(); ++i)
    visit(FieldValue((*json_)[i], *unknown_, fmt::format("{}[{}]", path_, i)));
}

void FieldValue::each_member(
    const std::function<void(const std::string&, const FieldValue&)>& visit,
    std::size_t most) const {
  check_object(most);
  for (const auto& [key, value] : json_->items())
    visit(key, FieldValue(value, *unknown_, member_path(path_, key)));
}

void FieldValue::check_size(std::size_t least, std::size_t most) const {
  if (json_->size() < least)
    refuse(fmt::format("has {} items, expected at least {}", json_->size(), least));
  if (json_->size() > most)
    refuse(fmt::format("has {} items, expected at most {}", json_->size(), most));
}

void FieldValue::check_object(std::size_t members_max) const {
  if (!json_->is_object()) expected("an object");
  check_size(0, members_max);
}

std::optional<FieldValue> FieldValue::find(std::string_view key) const {
  check_object();
  const auto found = json_->find(std::string(key));
  if (found == json_->end() || found->is_null()) return std::nullopt;
  return FieldValue(*found, *unknown_, member_path(path_, key));
}

FieldValue FieldValue::at(std::string_view key) const {
  if (const auto member = find(key)) return *member;
  refuse_field(member_path(path_, key), "is missing");
}

AcceptedValues::AcceptedValues(const std::vector<std::string>& accepted) {
  for (const std::string& text : accepted) values_.push_back(Json::parse(text));
  text_ = accepted.empty() ? "null" : fmt::format("{}", fmt::join(accepted, " or "));
}

void AcceptedValues::check(const FieldValue& value, std::string_view remedy) const {
  if (std::ranges::find(values_, value.json()) != values_.end()) return;
  value.unsupported(fmt::format("leave it out{}{}{}{}", values_.empty() ? "" : " or send ",
                                values_.empty() ? "" : text_, remedy.empty() ? "" : ": ", remedy));
}

std::string integer_text(std::int64_t least, std::int64_t most) {
  return fmt::format("an integer from {} to {}", least, most);
}

std::string number_text(double least, double most) {
  return fmt::format("a number from {:g} to {:g}", least, most);
}

std::string words_text(const std::vector<std::string>& words) {
  std::vector<std::string> quotations;
  for (const std::string& word : words) quotations.push_back(in_quotes(word));
  const std::string last = quotations.back();
  quotations.pop_back();
  return quotations.empty() ? last : fmt::format("{} or {}", fmt::join(quotations, ", "), last);
}

}  // namespace outrider
