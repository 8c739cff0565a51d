#include "formats/parse_json.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"

namespace outrider {
namespace {

// Far more than prompts, conversations and requests need. The parser would take any depth, but its
// tree then takes a hundred times the text's memory, and code that walks it overruns the stack.
constexpr int kMaxDepth = 64;

[[noreturn]] void too_deep(std::string_view where) {
  throw Error("{}: JSON nested more than {} levels deep", where, kMaxDepth);
}

[[noreturn]] void not_json(std::string_view where, std::size_t byte) {
  throw Error("{}: not valid JSON at byte {}", where, byte);
}

[[noreturn]] void number_too_large(std::string_view where) {
  throw Error("{}: JSON with a number that is too large", where);
}

// Builds the tree in time n log n. The library's own way looks for each key among the earlier ones
// of its object, which takes half a minute for a megabyte of keys.
class OrderedReader final : public nlohmann::json_sax<nlohmann::ordered_json> {
 public:
  using Json = nlohmann::ordered_json;

  explicit OrderedReader(std::string_view where) : where_(where) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(double value, const std::string&) override { return add(value); }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Json::binary_t&) override { return false; }  // not in text
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool key(std::string& value) override {
    levels_.back().key = std::move(value);
    return true;
  }
  bool end_object() override {
    refuse_equal_keys(entries(levels_.back().json));
    return close();
  }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t byte, const std::string&,
                   const nlohmann::detail::exception& error) override {
    if (dynamic_cast<const Json::out_of_range*>(&error)) number_too_large(where_);
    not_json(where_, byte);
  }

  Json take() { return std::move(result_); }

 private:
  using Entries = std::vector<std::pair<const std::string, Json>>;
  struct Level {
    Json json;
    std::string key = {};  // of the entry that comes next
  };

  static Entries& entries(Json& object) { return object.get_ref<Json::object_t&>(); }

  bool open(Json json) {
    if (levels_.size() == kMaxDepth) too_deep(where_);
    levels_.push_back({std::move(json)});
    return true;
  }
  bool close() {
    Json json = std::move(levels_.back().json);
    levels_.pop_back();
    return add(std::move(json));
  }
  bool add(Json value) {
    if (levels_.empty())
      result_ = std::move(value);
    else if (Level& level = levels_.back(); level.json.is_array())
      level.json.push_back(std::move(value));
    else
      entries(level.json).emplace_back(std::move(level.key), std::move(value));
    return true;
  }
  void refuse_equal_keys(const Entries& entries) const {
    std::vector<std::string_view> keys;
    for (const auto& entry : entries) keys.push_back(entry.first);
    std::ranges::sort(keys);
    if (const auto twice = std::ranges::adjacent_find(keys); twice != keys.end())
      throw Error("{}: JSON object with the key '{}' twice", where_, printable(*twice));
  }

  const std::string_view where_;
  std::vector<Level> levels_;
  Json result_;
};

}  // namespace

nlohmann::json parse_json(std::string_view text, std::string_view where) {
  using Json = nlohmann::json;
  const auto shallow = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMaxDepth) too_deep(where);
    return true;
  };
  try {
    return Json::parse(text, shallow);
  } catch (const Json::parse_error& error) {
    not_json(where, error.byte);
  } catch (const Json::out_of_range&) {
    number_too_large(where);
  }
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view where) {
  OrderedReader reader(where);
  nlohmann::ordered_json::sax_parse(text, &reader);
  return reader.take();
}

}  // namespace outrider
