#include "formats/parse_json.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/error.h"
#include "base/numbers.h"

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

// What the library's lexer makes of numbers. Of an integer beyond 64 bits it makes a float, here
// one that holds all that this program takes; beside it comes the text as it was written.
using Source = nlohmann::basic_json<nlohmann::ordered_map, std::vector, std::string, bool,
                                    std::int64_t, std::uint64_t, long double>;
static_assert(std::numeric_limits<long double>::max_exponent10 > 4900);

// Whether a number that was written with a point or an exponent has no fraction.
bool is_whole(std::string_view text) {
  const std::size_t mark = std::min(text.find_first_of("eE"), text.size());
  const std::string_view digits = text.substr(0, mark);
  const std::size_t last = digits.find_last_not_of("0.-");
  if (last == digits.npos) return true;  // 0
  const std::size_t point = std::min(digits.find('.'), digits.size());
  const std::string_view exponent = text.substr(std::min(mark + 1, text.size()));
  const long power = exponent.empty() ? 0 : std::strtol(std::string(exponent).c_str(), nullptr, 10);
  // The place of the last digit that is not 0: 0 for ones, 1 for tenths.
  const long place = static_cast<long>(last) - static_cast<long>(point) + (last < point ? 1 : 0);
  return place <= power;
}

template <typename Tree>
Tree literal(std::string_view text) {
  return Tree::binary({text.begin(), text.end()});
}

template <typename Tree>
std::string_view type_of(const Tree& json) {
  return json.is_binary() ? "number" : json.type_name();
}

// Builds the tree in time n log n. The library's own way looks for each key of an ordered object
// among the earlier ones, which takes half a minute for a megabyte of keys.
template <typename Tree>
class Reader final : public nlohmann::json_sax<Source> {
 public:
  explicit Reader(std::string_view where) : where_(where) {}

  bool null() override { return add(nullptr); }
  bool boolean(bool value) override { return add(value); }
  bool number_integer(std::int64_t value) override { return add(value); }
  bool number_unsigned(std::uint64_t value) override { return add(value); }
  bool number_float(long double, const std::string& text) override {
    if (text.find_first_of(".eE") == std::string::npos) return add(literal<Tree>(text));
    double value = 0;
    const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_in_range = result.ec == std::errc();
    if (!is_in_range || (std::trunc(value) == value && !is_whole(text)))
      return add(literal<Tree>(text));
    return add(value);
  }
  bool string(std::string& value) override { return add(std::move(value)); }
  bool binary(Source::binary_t&) override { return false; }  // not in text
  bool start_object(std::size_t) override { return open(Tree::object()); }
  bool start_array(std::size_t) override { return open(Tree::array()); }
  bool key(std::string& value) override {
    levels_.back().key = std::move(value);
    return true;
  }
  bool end_object() override {
    if constexpr (kIsOrdered) refuse_equal_keys(entries(levels_.back().json));
    return close();
  }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t byte, const std::string&,
                   const nlohmann::detail::exception& error) override {
    if (dynamic_cast<const Source::out_of_range*>(&error)) number_too_large(where_);
    not_json(where_, byte);
  }

  Tree take() { return std::move(result_); }

 private:
  static constexpr bool kIsOrdered = std::is_same_v<Tree, nlohmann::ordered_json>;
  using Entries = typename Tree::object_t;
  struct Level {
    Tree json;
    std::string key = {};  // of the entry that comes next
  };

  static Entries& entries(Tree& object) { return object.template get_ref<Entries&>(); }

  bool open(Tree json) {
    if (levels_.size() == kMaxDepth) too_deep(where_);
    levels_.push_back({std::move(json)});
    return true;
  }
  bool close() {
    Tree json = std::move(levels_.back().json);
    levels_.pop_back();
    return add(std::move(json));
  }
  bool add(Tree value) {
    if (levels_.empty()) {
      result_ = std::move(value);
    } else if (Level& level = levels_.back(); level.json.is_array()) {
      level.json.push_back(std::move(value));
    } else if constexpr (kIsOrdered) {
      // As a vector: the map's own emplace looks for the key.
      using Vector = std::vector<typename Entries::value_type>;
      static_cast<Vector&>(entries(level.json))
          .emplace_back(std::move(level.key), std::move(value));
    } else {
      entries(level.json)[std::move(level.key)] = std::move(value);
    }
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
  Tree result_;
};

template <typename Tree>
Tree parsed_json(std::string_view text, std::string_view where) {
  Reader<Tree> reader(where);
  Source::sax_parse(text, &reader);
  return reader.take();
}

// What Python reads as a float; nothing for literals of other kinds.
std::optional<double> float_of_literal(std::string_view text) {
  const bool is_number = !text.empty() && (text[0] == '-' || (text[0] >= '0' && text[0] <= '9'));
  if (!is_number || text.find_first_of(".eE") == text.npos) return std::nullopt;
  return std::strtod(std::string(text).c_str(), nullptr);
}

// What has neither items nor members.
std::string dump_leaf(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

void append_json(std::string& out, const nlohmann::ordered_json& json) {
  using Json = nlohmann::ordered_json;
  char separator = 0;
  const auto separate = [&] {
    if (std::exchange(separator, ',')) out += ',';
  };
  if (json.is_object()) {
    out += '{';
    for (const auto& [key, value] : json.get_ref<const Json::object_t&>()) {
      separate();
      out += dump_leaf(key) + ':';
      append_json(out, value);
    }
    out += '}';
  } else if (json.is_array()) {
    out += '[';
    for (const Json& item : json) {
      separate();
      append_json(out, item);
    }
    out += ']';
  } else if (const auto text = literal_text(json)) {
    const std::optional<double> rounded = float_of_literal(*text);
    out += rounded && std::isfinite(*rounded) ? spell(*rounded) : *text;
  } else if (json.is_number_float() && std::isfinite(json.get<double>())) {
    out += spell(json.get<double>());
  } else {
    out += dump_leaf(json);
  }
}

}  // namespace

nlohmann::json parse_json(std::string_view text, std::string_view where) {
  return parsed_json<nlohmann::json>(text, where);
}

nlohmann::ordered_json parse_ordered_json(std::string_view text, std::string_view where) {
  return parsed_json<nlohmann::ordered_json>(text, where);
}

bool is_json_text(std::string_view text) {
  try {
    parse_json(text, "");
    return true;
  } catch (const Error&) {
    return false;
  }
}

nlohmann::ordered_json json_literal(std::string_view text) {
  return literal<nlohmann::ordered_json>(text);
}

std::optional<std::string_view> literal_text(const nlohmann::ordered_json& json) {
  if (!json.is_binary()) return std::nullopt;
  const auto& bytes = json.get_binary();
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

std::string_view json_type(const nlohmann::ordered_json& json) {
  return type_of(json);
}
std::string_view json_type(const nlohmann::json& json) {
  return type_of(json);
}

std::string dump_json(const nlohmann::ordered_json& json) {
  std::string out;
  append_json(out, json);
  return out;
}

}  // namespace outrider
