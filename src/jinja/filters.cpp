#include <algorithm>
#include <cmath>
#include <functional>
#include <string>

#include "jinja/builtins.h"
#include "jinja/runtime.h"
#include "jinja/text_operations.h"
#include "jinja/unicode.h"

namespace outrider::jinja {
namespace {

using Kind = Value::Kind;

// ---- arguments

std::int64_t integer_or(Runtime& runtime, const Value* value, std::int64_t otherwise) {
  if (!value) return otherwise;
  if (value->is_undefined()) runtime.fail_undefined(*value);
  runtime.check_narrow(*value);
  if (!value->is_integral()) runtime.fail("expected an integer, not '{}'", type_name(*value));
  return value->as_integer();
}
bool truthy_or(const Value* value, bool otherwise) {
  return value ? truthy(*value) : otherwise;
}

// "a.b.0" as the steps of a look-up; numbers are indices.
std::vector<Value> attribute_path(Runtime& runtime, Value attribute) {
  if (!attribute.is_text()) return {attribute};
  const Text dot(".");
  std::vector<Value> path = split(runtime, attribute.as_text(), &dot, -1, false);
  for (Value& part : path) {
    const std::string& text = part.as_text().bytes();
    const bool is_index =
        !text.empty() && text.size() < 10 &&
        std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
    if (is_index) part = Value::integer(std::stoll(text));
  }
  return path;
}
Value follow(Runtime& runtime, Value item, const std::vector<Value>& path) {
  for (const Value& part : path) item = get_item(runtime, item, part);
  return item;
}

Value without_case(Runtime& runtime, Value value) {
  return value.is_text() ? change_case(runtime, value.as_text(), Case::lower) : value;
}

// What sort, unique, min and max compare: the item, or its attribute, without case unless asked.
class Key {
 public:
  Key(Runtime& runtime, const Value* attribute, bool case_sensitive)
      : runtime_(runtime), case_sensitive_(case_sensitive) {
    if (given(attribute)) path_ = attribute_path(runtime, *attribute);
  }
  Value operator()(Value item) const {
    const Value key = follow(runtime_, item, path_);
    return case_sensitive_ ? key : without_case(runtime_, key);
  }

 private:
  Runtime& runtime_;
  bool case_sensitive_;
  std::vector<Value> path_;
};

Value generator(Runtime& runtime, std::vector<Value> items) {
  return runtime.sequence(SequenceKind::generator, std::move(items));
}

// ---- of any value

Value default_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  const auto bound = bind(runtime, "default", arguments, {"default_value", "boolean"});
  const bool replaced = input.is_undefined() || (truthy_or(bound[1], false) && !truthy(input));
  if (!replaced) return input;
  return bound[0] ? *bound[0] : runtime.text("");
}

Value length_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  bind(runtime, "length", arguments, {});
  return Value::integer(length(runtime, input));
}

Value string_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  bind(runtime, "string", arguments, {});
  return Value(str(runtime, input));
}

// Nothing is escaped here, so nothing needs to be marked as safe.
Value safe_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  bind(runtime, "safe", arguments, {});
  return Value(str(runtime, input));
}

Value escape_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  bind(runtime, "escape", arguments, {});
  TextBuilder out(runtime);
  str(runtime, input).stretches([&](std::string_view bytes, bool user) {
    std::string escaped;
    for (const char c : bytes) {
      switch (c) {
        case '&': escaped += "&amp;"; break;
        case '<': escaped += "&lt;"; break;
        case '>': escaped += "&gt;"; break;
        case '\'': escaped += "&#39;"; break;
        case '"': escaped += "&#34;"; break;
        default: escaped += c;
      }
    }
    out.append(escaped, user);
  });
  return out.finish_value();
}

// Hugging Face's tojson, not jinja2's: non-ASCII text stays, nothing is escaped for HTML.
Value tojson_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  const auto bound =
      bind(runtime, "tojson", arguments, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = truthy_or(bound[0], false);
  style.sort_keys = truthy_or(bound[3], false);
  if (given(bound[1])) {
    const std::int64_t indent = integer_or(runtime, bound[1], 0);
    if (indent > 64) runtime.fail("tojson(indent={}): at most 64", indent);
    style.indent = static_cast<int>(std::max<std::int64_t>(0, indent));
    // Not from a literal: g++ 12 then warns of an overlap by mistake.
    style.item_separator = std::string(1, ',');
  }
  if (given(bound[2])) {
    const std::span<const Value> pair = items(runtime, *bound[2]);
    if (pair.size() != 2 || !pair[0].is_text() || !pair[1].is_text())
      runtime.fail("tojson(separators=...) needs two strings");
    style.item_separator = pair[0].as_text().bytes();
    style.key_separator = pair[1].as_text().bytes();
  }
  return Value(json(runtime, input, style));
}

Value attr_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  const auto bound = bind(runtime, "attr", arguments, {"name"}, 1);
  const std::string& name = str(runtime, *bound[0]).bytes();
  // Attributes only, no items: those of a dict are its methods.
  if (input.kind() == Kind::mapping) {
    const Value found = method(runtime, input, name);
    if (!found.is_undefined()) return found;
    return runtime.undefined(fmt::format("'dict object' has no attribute '{}'", name));
  }
  return get_attribute(runtime, input, name);
}

// ---- of numbers

Value int_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  const auto bound = bind(runtime, "int", arguments, {"default", "base"});
  const Value otherwise = bound[0] ? *bound[0] : Value::integer(0);
  if (input.is_undefined()) runtime.fail_undefined(input);
  if (input.is_integral()) return Value::integer(input.as_integer());
  if (input.is_wide()) return input;
  const auto truncated = [&](double number) {
    return std::isfinite(number) ? truncate_to_integer(runtime, number) : otherwise;
  };
  if (input.is_numeric()) return truncated(input.as_number());
  if (!input.is_text()) return otherwise;
  const std::int64_t base = integer_or(runtime, bound[1], 10);
  const std::string& text = input.as_text().bytes();
  runtime.read(text.size());
  if (base == 0 || (base >= 2 && base <= 36)) {
    if (const auto value = parse_integer(runtime, text, static_cast<int>(base))) return *value;
  }
  const std::optional<double> number = parse_number(text);
  return number ? truncated(*number) : otherwise;
}

Value float_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  const auto bound = bind(runtime, "float", arguments, {"default"});
  if (input.is_undefined()) runtime.fail_undefined(input);
  if (input.is_numeric()) return Value::number(to_float(runtime, input));
  if (input.is_text()) {
    runtime.read(input.as_text().size());
    if (const auto value = parse_number(input.as_text().bytes())) return Value::number(*value);
  }
  return bound[0] ? *bound[0] : Value::number(0);
}

Value abs_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  bind(runtime, "abs", arguments, {});
  if (input.is_integral())
    return input.as_integer() < 0 ? negative(runtime, input) : Value::integer(input.as_integer());
  if (input.is_wide()) return input.as_digits()[0] == '-' ? negative(runtime, input) : input;
  if (input.is_numeric()) return Value::number(std::fabs(input.as_number()));
  if (input.is_undefined()) runtime.fail_undefined(input);
  runtime.fail("bad operand type for abs(): '{}'", type_name(input));
}

Value round_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  const auto bound = bind(runtime, "round", arguments, {"precision", "method"});
  const std::int64_t precision = integer_or(runtime, bound[0], 0);
  const std::string method = bound[1] ? str(runtime, *bound[1]).bytes() : "common";
  if (input.is_undefined()) runtime.fail_undefined(input);
  if (!input.is_numeric()) runtime.fail("round() of a '{}'", type_name(input));
  if (precision < 0 || precision > 300) runtime.fail("round(precision={}): 0 to 300", precision);
  if (method == "common") {
    if (input.is_integral()) return Value::integer(input.as_integer());
    if (input.is_wide()) return input;
    if (!std::isfinite(input.as_number())) return input;
    // Printing rounds the exact value, ties to even, as Python's round does.
    return Value::number(*parse_number(fmt::format("{:.{}f}", input.as_number(), precision)));
  }
  if (method != "ceil" && method != "floor") runtime.fail("method must be common, ceil or floor");
  if (input.kind() != Kind::number) return Value::number(to_float(runtime, input));
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = input.as_number() * scale;
  return Value::number((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

// ---- of strings

Value trim_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  const auto bound = bind(runtime, "trim", arguments, {"chars"});
  const Text* const characters = given(bound[0]) ? &str(runtime, *bound[0]) : nullptr;
  return strip(runtime, str(runtime, input), characters, true, true);
}

template <Case kCase>
Value case_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  bind(runtime, "case filter", arguments, {});
  return change_case(runtime, str(runtime, input), kCase);
}

Value replace_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  const auto bound = bind(runtime, "replace", arguments, {"old", "new", "count"}, 2);
  const std::int64_t count = given(bound[2]) ? integer_or(runtime, bound[2], -1) : -1;
  return replace(runtime, str(runtime, input), str(runtime, *bound[0]), str(runtime, *bound[1]),
                 count);
}

Value format_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  if (!arguments.named.empty() && !arguments.positional.empty())
    runtime.fail("format() takes positional or named arguments, not both");
  if (arguments.named.empty())
    return format_percent(runtime, str(runtime, input), runtime.tuple(arguments.positional));
  std::vector<std::pair<Value, Value>> entries;
  for (const auto& [name, value] : arguments.named) entries.emplace_back(runtime.text(name), value);
  return format_percent(runtime, str(runtime, input), runtime.mapping(entries));
}

std::size_t width_of(Runtime& runtime, const Value* value, std::int64_t otherwise) {
  const std::int64_t width = integer_or(runtime, value, otherwise);
  const auto spaces = static_cast<std::size_t>(std::max<std::int64_t>(0, width));
  runtime.charge(spaces);
  return spaces;
}

Value center_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  const auto bound = bind(runtime, "center", arguments, {"width"});
  const Text& text = str(runtime, input);
  const std::size_t width = width_of(runtime, bound[0], 80);
  const std::size_t n = count_characters(text.bytes());
  const std::size_t missing = width > n ? width - n : 0;
  const std::size_t left = missing / 2 + (missing & width & 1);
  TextBuilder out(runtime);
  out.append(std::string(left, ' '));
  out.append(text);
  out.append(std::string(missing - left, ' '));
  return out.finish_value();
}

Value indent_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  const auto bound = bind(runtime, "indent", arguments, {"width", "first", "blank"});
  const Text& indentation =
      bound[0] && bound[0]->is_text()
          ? bound[0]->as_text()
          : runtime.text(std::string(width_of(runtime, bound[0], 4), ' ')).as_text();
  const bool first = truthy_or(bound[1], false), blank = truthy_or(bound[2], false);
  if (input.is_undefined()) runtime.fail_undefined(input);
  if (!input.is_text()) runtime.fail("indent of a '{}'", type_name(input));
  Text whole = input.as_text();
  whole.append("\n", false);  // so that an empty last line is one
  runtime.charge(whole.cost());
  const std::vector<Value> lines = split_lines(runtime, whole);
  TextBuilder out(runtime);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Text& line = lines[i].as_text();
    if (i > 0) out.append("\n");
    if (i == 0 ? first : blank || line.size() > 0) out.append(indentation);
    out.append(line);
  }
  return out.finish_value();
}

Value truncate_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  const auto bound = bind(runtime, "truncate", arguments, {"length", "killwords", "end", "leeway"});
  if (!input.is_text() && !input.is_undefined())
    runtime.fail("truncate of a '{}'", type_name(input));
  const Text& text = str(runtime, input);
  const Text& end = bound[2] ? str(runtime, *bound[2]) : runtime.text("...").as_text();
  const std::int64_t most = integer_or(runtime, bound[0], 255);
  const std::int64_t leeway = given(bound[3]) ? integer_or(runtime, bound[3], 5) : 5;
  const auto end_length = static_cast<std::int64_t>(count_characters(end.bytes()));
  if (most < end_length || leeway < 0) runtime.fail("truncate() to {} characters", most);
  runtime.read(text.size());
  const auto n = static_cast<std::int64_t>(count_characters(text.bytes()));
  if (n - leeway <= most) return Value(text);
  std::size_t cut = byte_of_character(text.bytes(), static_cast<std::size_t>(most - end_length));
  if (!truthy_or(bound[1], false) && cut > 0) {
    const std::size_t space = text.bytes().rfind(' ', cut - 1);
    if (space != std::string::npos) cut = space;
  }
  TextBuilder out(runtime);
  out.append(text, 0, cut);
  out.append(end);
  return out.finish_value();
}

Value wordcount_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  bind(runtime, "wordcount", arguments, {});
  const std::string& bytes = str(runtime, input).bytes();
  runtime.read(bytes.size());
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < bytes.size();) {
    const Character c = character_at(bytes, at);
    // Beyond ASCII all but white space counts as a letter.
    const bool is_word = c.code >= 0x80
                             ? !is_space(c.code)
                             : is_cased(c.code) || is_ascii_digit(c.code) || c.code == '_';
    words += is_word && !inside;
    inside = is_word;
    at += c.n_bytes;
  }
  return Value::integer(words);
}

// ---- of sequences and dicts

Value list_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  bind(runtime, "list", arguments, {});
  const std::span<const Value> all = items(runtime, input);
  runtime.charge(all.size_bytes());
  return runtime.list({all.begin(), all.end()});
}

Value first_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  bind(runtime, "first", arguments, {});
  if (input.kind() == Kind::sequence && input.as_sequence().kind == SequenceKind::generator) {
    const Sequence& sequence = input.as_sequence();
    if (sequence.n_read < sequence.items.size()) return sequence.items[sequence.n_read++];
  } else if (input.is_text()) {
    const Text& text = input.as_text();
    if (text.size() > 0) return runtime.slice(text, 0, character_at(text.bytes(), 0).n_bytes);
  } else if (const std::span<const Value> all = items(runtime, input); !all.empty()) {
    return all.front();
  }
  return runtime.undefined("No first item, sequence was empty.");
}

Value last_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  bind(runtime, "last", arguments, {});
  if (input.kind() == Kind::sequence && input.as_sequence().kind == SequenceKind::generator)
    runtime.fail("'generator' object is not reversible");
  if (input.is_text()) {
    const Text& text = input.as_text();
    if (text.size() > 0) {
      const Character last = character_before(text.bytes(), text.size());
      return runtime.slice(text, text.size() - last.n_bytes, text.size());
    }
  } else if (const std::span<const Value> all = items(runtime, input); !all.empty()) {
    return all.back();
  }
  return runtime.undefined("No last item, sequence was empty.");
}

Value join_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  const auto bound = bind(runtime, "join", arguments, {"d", "attribute"});
  const Text& separator = bound[0] ? str(runtime, *bound[0]) : runtime.text("").as_text();
  const std::span<const Value> all = items(runtime, input);
  if (!given(bound[1])) return join(runtime, separator, all);
  const std::vector<Value> path = attribute_path(runtime, *bound[1]);
  std::vector<Value> attributes;
  for (const Value& item : all) attributes.push_back(follow(runtime, item, path));
  return join(runtime, separator, attributes);
}

Value items_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  bind(runtime, "items", arguments, {});
  if (input.is_undefined()) return generator(runtime, {});
  if (input.kind() != Kind::mapping) runtime.fail("Can only get item pairs from a mapping.");
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.as_mapping().entries)
    pairs.push_back(runtime.tuple({key, value}));
  return generator(runtime, std::move(pairs));
}

Value reverse_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  bind(runtime, "reverse", arguments, {});
  if (input.is_text())
    return get_slice(runtime, input, Value::none(), Value::none(), Value::integer(-1));
  const std::span<const Value> all = items(runtime, input);
  runtime.charge(all.size_bytes());
  return generator(runtime, {all.rbegin(), all.rend()});
}

// Applies `key` to all items and sorts by it, keeping the order of equals in both directions, as
// Python's sorted.
std::vector<Value> sorted(Runtime& runtime, std::span<const Value> all, bool reverse,
                          const std::function<Value(Value)>& key) {
  runtime.charge(all.size() * 3 * sizeof(Value));
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : all) keyed.emplace_back(key(item), item);
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? less(runtime, b.first, a.first) : less(runtime, a.first, b.first);
  });
  std::vector<Value> out;
  for (const auto& entry : keyed) out.push_back(entry.second);
  return out;
}

Value sort_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  const auto bound = bind(runtime, "sort", arguments, {"reverse", "case_sensitive", "attribute"});
  const bool case_sensitive = truthy_or(bound[1], false);
  std::vector<Key> keys;  // "a,b": by a, then by b
  if (given(bound[2]) && bound[2]->is_text()) {
    const Text comma(",");
    for (const Value& attribute : split(runtime, bound[2]->as_text(), &comma, -1, false))
      keys.emplace_back(runtime, &attribute, case_sensitive);
  } else {
    keys.emplace_back(runtime, bound[2], case_sensitive);
  }
  return runtime.list(
      sorted(runtime, items(runtime, input), truthy_or(bound[0], false), [&](Value item) {
        std::vector<Value> parts;
        for (const Key& key : keys) parts.push_back(key(item));
        return runtime.list(std::move(parts));
      }));
}

Value dictsort_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  const auto bound = bind(runtime, "dictsort", arguments, {"case_sensitive", "by", "reverse"});
  if (input.is_undefined()) runtime.fail_undefined(input);
  if (input.kind() != Kind::mapping) runtime.fail("dictsort of a '{}'", type_name(input));
  const std::string by = bound[1] ? str(runtime, *bound[1]).bytes() : "key";
  if (by != "key" && by != "value")
    runtime.fail("You can only sort by either \"key\" or \"value\"");
  std::vector<Value> pairs;
  for (const auto& [key, value] : input.as_mapping().entries)
    pairs.push_back(runtime.tuple({key, value}));
  return runtime.list(sorted(runtime, pairs, truthy_or(bound[2], false), [&](Value pair) {
    const Value key = pair.as_sequence().items[by == "key" ? 0 : 1];
    return truthy_or(bound[0], false) ? key : without_case(runtime, key);
  }));
}

Value unique_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  const auto bound = bind(runtime, "unique", arguments, {"case_sensitive", "attribute"});
  const Key key(runtime, bound[1], truthy_or(bound[0], false));
  std::vector<Value> seen, out;
  for (const Value& item : items(runtime, input)) {
    const Value k = key(item);
    const bool known = std::any_of(seen.begin(), seen.end(),
                                   [&](const Value& other) { return equal(runtime, k, other); });
    if (known) continue;
    seen.push_back(k);
    out.push_back(item);
  }
  return generator(runtime, std::move(out));
}

template <bool kLargest>
Value extreme_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  const auto bound =
      bind(runtime, kLargest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const std::span<const Value> all = items(runtime, input);
  if (all.empty()) return runtime.undefined("No aggregated item, sequence was empty.");
  const Key key(runtime, bound[1], truthy_or(bound[0], false));
  Value best = all[0], best_key = key(best);
  for (const Value& item : all.subspan(1)) {
    const Value k = key(item);
    if (kLargest ? less(runtime, best_key, k) : less(runtime, k, best_key))
      best = item, best_key = k;
  }
  return best;
}

Value sum_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  const auto bound = bind(runtime, "sum", arguments, {"attribute", "start"});
  Value total = bound[1] ? *bound[1] : Value::integer(0);
  if (total.is_text()) runtime.fail("sum() cannot add strings; use join");
  const std::vector<Value> path =
      given(bound[0]) ? attribute_path(runtime, *bound[0]) : std::vector<Value>();
  for (const Value& item : items(runtime, input))
    total = arithmetic(runtime, ArithmeticOperator::add, total, follow(runtime, item, path));
  return total;
}

Value batch_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  const auto bound = bind(runtime, "batch", arguments, {"linecount", "fill_with"}, 1);
  const std::int64_t n = integer_or(runtime, bound[0], 1);
  if (n < 1) runtime.fail("batch({}): at least 1", n);
  std::vector<Value> lines, line;
  for (const Value& item : items(runtime, input)) {
    line.push_back(item);
    if (static_cast<std::int64_t>(line.size()) == n)
      lines.push_back(runtime.list(std::exchange(line, {})));
  }
  if (!line.empty()) {
    if (given(bound[1])) {
      const std::size_t missing = static_cast<std::size_t>(n) - line.size();
      if (missing > static_cast<std::size_t>(kMaxRange)) runtime.fail("batch({}) is too long", n);
      runtime.charge(missing * sizeof(Value));
      line.resize(static_cast<std::size_t>(n), *bound[1]);
    }
    lines.push_back(runtime.list(std::move(line)));
  }
  return generator(runtime, std::move(lines));
}

Arguments without_first(const Arguments& arguments, std::size_t n) {
  Arguments rest = arguments;
  rest.positional.erase(rest.positional.begin(),
                        rest.positional.begin() + static_cast<std::ptrdiff_t>(n));
  return rest;
}

Value map_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  std::vector<Value> out;
  if (arguments.positional.empty()) {
    const auto bound = bind(runtime, "map", arguments, {"attribute", "default"}, 1);
    const std::vector<Value> path = attribute_path(runtime, *bound[0]);
    for (Value item : items(runtime, input)) {
      for (const Value& part : path) {
        item = get_item(runtime, item, part);
        if (given(bound[1]) && item.is_undefined()) item = *bound[1];
      }
      out.push_back(item);
    }
    return generator(runtime, std::move(out));
  }
  const Level level(runtime);  // map('map', 'map', ...)
  const std::string& name = str(runtime, arguments.positional[0]).bytes();
  const Filter* const filter = find_filter(name);
  if (!filter) runtime.fail("no filter named '{}'", name);
  const Arguments rest = without_first(arguments, 1);
  for (const Value& item : items(runtime, input)) {
    runtime.step();
    out.push_back(filter->apply(runtime, item, rest));
  }
  return generator(runtime, std::move(out));
}

// select, reject, selectattr, rejectattr: the items (or those with an attribute) that pass a test,
// or that do not.
template <bool kByAttribute, bool kKeepPassing>
Value select_filter(Runtime& runtime, Value input, const Arguments& arguments) {
  const std::vector<Value>& given_arguments = arguments.positional;
  if (!truthy(input)) return generator(runtime, {});
  std::vector<Value> path;
  if (kByAttribute) {
    if (given_arguments.empty()) runtime.fail("Missing parameter for attribute name");
    path = attribute_path(runtime, given_arguments[0]);
  }
  const std::size_t n_before_test = kByAttribute ? 1 : 0;
  const Test* test = nullptr;
  Arguments rest;
  if (given_arguments.size() > n_before_test) {
    const std::string& name = str(runtime, given_arguments[n_before_test]).bytes();
    test = find_test(name);
    if (!test) runtime.fail("no test named '{}'", name);
    rest = without_first(arguments, n_before_test + 1);
  }
  std::vector<Value> out;
  for (const Value& item : items(runtime, input)) {
    runtime.step();
    const Value tested = follow(runtime, item, path);
    const bool passes = test ? jinja::passes(runtime, *test, tested, rest) : truthy(tested);
    if (passes == kKeepPassing) out.push_back(item);
  }
  return generator(runtime, std::move(out));
}

constexpr Filter kFilters[] = {
    {"abs", abs_filter},
    {"attr", attr_filter},
    {"batch", batch_filter},
    {"capitalize", case_filter<Case::capitalize>},
    {"center", center_filter},
    {"count", length_filter},
    {"d", default_filter},
    {"default", default_filter},
    {"dictsort", dictsort_filter},
    {"e", escape_filter},
    {"escape", escape_filter},
    {"first", first_filter},
    {"float", float_filter},
    {"format", format_filter},
    {"indent", indent_filter},
    {"int", int_filter},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last_filter},
    {"length", length_filter},
    {"list", list_filter},
    {"lower", case_filter<Case::lower>},
    {"map", map_filter},
    {"max", extreme_filter<true>},
    {"min", extreme_filter<false>},
    {"reject", select_filter<false, false>},
    {"rejectattr", select_filter<true, false>},
    {"replace", replace_filter},
    {"reverse", reverse_filter},
    {"round", round_filter},
    {"safe", safe_filter},
    {"select", select_filter<false, true>},
    {"selectattr", select_filter<true, true>},
    {"sort", sort_filter},
    {"string", string_filter},
    {"sum", sum_filter},
    {"title", case_filter<Case::title_words>},
    {"tojson", tojson_filter},
    {"trim", trim_filter},
    {"truncate", truncate_filter},
    {"unique", unique_filter},
    {"upper", case_filter<Case::upper>},
    {"wordcount", wordcount_filter},
};

}  // namespace

const Filter* find_filter(std::string_view name) {
  const auto found = std::find_if(std::begin(kFilters), std::end(kFilters),
                                  [&](const Filter& filter) { return filter.name == name; });
  return found == std::end(kFilters) ? nullptr : found;
}

}  // namespace outrider::jinja
