#include <algorithm>

#include "base/bytes.h"
#include "base/numbers.h"
#include "jinja/builtins.h"
#include "jinja/runtime.h"
#include "jinja/text_operations.h"
#include "jinja/unicode.h"

namespace outrider::jinja {
namespace {

using Kind = Value::Kind;

struct Method {
  std::string_view name;
  Value (*apply)(Runtime& runtime, Value receiver, const Arguments& arguments);
};

class BoundMethod final : public Object {
 public:
  BoundMethod(Value receiver, const Method& method) : receiver_(receiver), method_(method) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  bool callable() const override { return true; }
  Value call(Runtime& runtime, const Arguments& arguments) override {
    return method_.apply(runtime, receiver_, arguments);
  }

 private:
  const Value receiver_;
  const Method& method_;
};

const Text& text_argument(Runtime& runtime, const Value& value) {
  if (value.is_undefined()) runtime.fail_undefined(value);
  if (!value.is_text()) runtime.fail("expected a string, not '{}'", type_name(value));
  return value.as_text();
}
std::int64_t integer_argument(Runtime& runtime, const Value& value) {
  if (value.is_undefined()) runtime.fail_undefined(value);
  runtime.check_narrow(value);
  if (!value.is_integral()) runtime.fail("expected an integer, not '{}'", type_name(value));
  return value.as_integer();
}

// ---- of strings

template <bool kLeft, bool kRight>
Value strip_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  const auto bound = bind(runtime, "strip", arguments, {"chars"});
  const Text* const characters = given(bound[0]) ? &text_argument(runtime, *bound[0]) : nullptr;
  return strip(runtime, receiver.as_text(), characters, kLeft, kRight);
}

template <Case kCase>
Value case_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  bind(runtime, "case method", arguments, {});
  return change_case(runtime, receiver.as_text(), kCase);
}

template <bool kFromRight>
Value split_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  const auto bound = bind(runtime, "split", arguments, {"sep", "maxsplit"});
  const Text* const separator = given(bound[0]) ? &text_argument(runtime, *bound[0]) : nullptr;
  const std::int64_t most = bound[1] ? integer_argument(runtime, *bound[1]) : -1;
  return runtime.list(split(runtime, receiver.as_text(), separator, most, kFromRight));
}

Value splitlines_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  const auto bound = bind(runtime, "splitlines", arguments, {"keepends"});
  if (bound[0] && truthy(*bound[0])) runtime.fail("splitlines(keepends=True) is not supported");
  return runtime.list(split_lines(runtime, receiver.as_text()));
}

template <bool kAtEnd>
Value has_affix_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  const auto bound = bind(runtime, kAtEnd ? "endswith" : "startswith", arguments, {"affix"}, 1);
  const std::string& text = receiver.as_text().bytes();
  const auto has = [&](const Value& affix) {
    const std::string& bytes = text_argument(runtime, affix).bytes();
    runtime.read(bytes.size());
    return kAtEnd ? text.ends_with(bytes) : text.starts_with(bytes);
  };
  const Value affix = *bound[0];
  if (affix.kind() != Kind::sequence || affix.as_sequence().kind != SequenceKind::tuple)
    return Value::boolean(has(affix));
  const std::vector<Value>& any = affix.as_sequence().items;
  runtime.step(static_cast<std::int64_t>(any.size()));
  return Value::boolean(std::any_of(any.begin(), any.end(), has));
}

template <bool kAtEnd>
Value remove_affix_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  const auto bound = bind(runtime, "removeprefix", arguments, {"affix"}, 1);
  const Text& text = receiver.as_text();
  const std::string& affix = text_argument(runtime, *bound[0]).bytes();
  const bool has = kAtEnd ? text.bytes().ends_with(affix) : text.bytes().starts_with(affix);
  if (!has) return receiver;
  return kAtEnd ? runtime.slice(text, 0, text.size() - affix.size())
                : runtime.slice(text, affix.size(), text.size());
}

Value replace_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  const auto bound = bind(runtime, "replace", arguments, {"old", "new", "count"}, 2);
  return replace(runtime, receiver.as_text(), text_argument(runtime, *bound[0]),
                 text_argument(runtime, *bound[1]),
                 bound[2] ? integer_argument(runtime, *bound[2]) : -1);
}

// The place of the argument, in characters; -1 if there is none.
std::int64_t place_of(Runtime& runtime, Value receiver, const Arguments& arguments, bool last) {
  const auto bound = bind(runtime, "find", arguments, {"sub"}, 1);
  const std::string& text = receiver.as_text().bytes();
  const std::string& wanted = text_argument(runtime, *bound[0]).bytes();
  runtime.read(text.size() + wanted.size());
  std::size_t at = find_bytes(text, wanted);
  while (last && at != std::string::npos) {
    const std::size_t next = find_bytes(text, wanted, at + 1);
    if (next == std::string::npos) break;
    runtime.step();
    runtime.read(wanted.size());
    at = next;
  }
  if (at == std::string::npos) return -1;
  return static_cast<std::int64_t>(count_characters(std::string_view(text).substr(0, at)));
}
template <bool kLast>
Value find_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  return Value::integer(place_of(runtime, receiver, arguments, kLast));
}
Value index_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  const std::int64_t place = place_of(runtime, receiver, arguments, false);
  if (place < 0) runtime.fail("substring not found");
  return Value::integer(place);
}

Value count_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  const auto bound = bind(runtime, "count", arguments, {"sub"}, 1);
  const std::string& text = receiver.as_text().bytes();
  const std::string& wanted = text_argument(runtime, *bound[0]).bytes();
  runtime.read(text.size() + wanted.size());
  if (wanted.empty()) return Value::integer(length(runtime, receiver) + 1);
  std::int64_t n = 0;
  for (std::size_t at = 0; (at = find_bytes(text, wanted, at)) != std::string::npos; ++n)
    at += wanted.size();
  return Value::integer(n);
}

Value join_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  const auto bound = bind(runtime, "join", arguments, {"iterable"}, 1);
  const std::span<const Value> all = items(runtime, *bound[0]);
  for (const Value& item : all) text_argument(runtime, item);
  return join(runtime, receiver.as_text(), all);
}

template <bool kFromRight>
Value partition_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  const auto bound = bind(runtime, "partition", arguments, {"sep"}, 1);
  const Value separator(text_argument(runtime, *bound[0]));
  const std::vector<Value> parts =
      split(runtime, receiver.as_text(), &separator.as_text(), 1, kFromRight);
  if (parts.size() == 2) return runtime.tuple({parts[0], separator, parts[1]});
  const Value empty = runtime.text("");
  if (kFromRight) return runtime.tuple({empty, empty, receiver});
  return runtime.tuple({receiver, empty, empty});
}

// str.isdigit and similar ones: not empty, and every character passes.
template <bool (*kPasses)(std::uint32_t code)>
Value all_characters_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  bind(runtime, "character test", arguments, {});
  const std::string& text = receiver.as_text().bytes();
  runtime.read(text.size() * 4);
  for (std::size_t at = 0; at < text.size();) {
    const Character c = character_at(text, at);
    if (!kPasses(c.code)) return Value::boolean(false);
    at += c.n_bytes;
  }
  return Value::boolean(!text.empty());
}
// Beyond ASCII, letters are what has case: enough for the words that templates compare.
bool is_letter(std::uint32_t code) {
  return is_cased(code);
}
bool is_letter_or_digit(std::uint32_t code) {
  return is_cased(code) || is_ascii_digit(code);
}

template <bool kUpper>
Value is_case_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  return Value::boolean(find_test(kUpper ? "upper" : "lower")->apply(runtime, receiver, arguments));
}

// str.format: {} in turn, {0}, {name}, {{ and }}. No format specifications, conversions or
// attributes.
Value format_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  const Text& text = receiver.as_text();
  const std::string& bytes = text.bytes();
  runtime.read(bytes.size());
  const auto positional = [&](std::size_t index) {
    if (index >= arguments.positional.size())
      runtime.fail("format() has no argument {} of {}", index, arguments.positional.size());
    return arguments.positional[index];
  };
  const auto named = [&](std::string_view name) {
    for (const auto& [key, value] : arguments.named)
      if (key == name) return value;
    runtime.fail("format() has no argument '{}'", printable(name));
  };
  TextBuilder out(runtime);
  std::size_t next = 0, begin = 0;
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    if (bytes[at] != '{' && bytes[at] != '}') continue;
    out.append(text, begin, at);
    if (at + 1 < bytes.size() && bytes[at + 1] == bytes[at]) {  // doubled: itself
      out.append(text, at, at + 1);
      begin = ++at + 1;
      continue;
    }
    const std::size_t end = bytes[at] == '{' ? bytes.find('}', at) : bytes.npos;
    if (end == bytes.npos) runtime.fail("format() met a single '{}'", bytes[at]);
    const std::string_view field = std::string_view(bytes).substr(at + 1, end - at - 1);
    if (field.find_first_of("{!:.[") != field.npos)
      runtime.fail("format() supports no more than names and numbers, not '{}'", printable(field));
    if (field.empty()) {
      out.append(str(runtime, positional(next++)));
    } else if (const auto index = outrider::parse_number<std::size_t>(field)) {
      out.append(str(runtime, positional(*index)));
    } else {
      out.append(str(runtime, named(field)));
    }
    at = end;
    begin = end + 1;
  }
  out.append(text, begin, bytes.size());
  return out.finish_value();
}

constexpr Method kTextMethods[] = {
    {"capitalize", case_method<Case::capitalize>},
    {"count", count_method},
    {"endswith", has_affix_method<true>},
    {"find", find_method<false>},
    {"format", format_method},
    {"index", index_method},
    {"isalnum", all_characters_method<is_letter_or_digit>},
    {"isalpha", all_characters_method<is_letter>},
    {"isdigit", all_characters_method<is_ascii_digit>},
    {"islower", is_case_method<false>},
    {"isspace", all_characters_method<is_space>},
    {"isupper", is_case_method<true>},
    {"join", join_method},
    {"lower", case_method<Case::lower>},
    {"lstrip", strip_method<true, false>},
    {"partition", partition_method<false>},
    {"removeprefix", remove_affix_method<false>},
    {"removesuffix", remove_affix_method<true>},
    {"replace", replace_method},
    {"rfind", find_method<true>},
    {"rpartition", partition_method<true>},
    {"rsplit", split_method<true>},
    {"rstrip", strip_method<false, true>},
    {"split", split_method<false>},
    {"splitlines", splitlines_method},
    {"startswith", has_affix_method<false>},
    {"strip", strip_method<true, true>},
    {"title", case_method<Case::title>},
    {"upper", case_method<Case::upper>},
};

// ---- of dicts

Value get_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  const auto bound = bind(runtime, "get", arguments, {"key", "default"}, 1);
  if (!hashable(*bound[0])) runtime.fail("unhashable type: '{}'", type_name(*bound[0]));
  if (const Value* const value = find(runtime, receiver.as_mapping(), *bound[0])) return *value;
  return bound[1] ? *bound[1] : Value::none();
}

enum class Part { keys, values, items };
template <Part kPart>
Value view_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  static constexpr const char* kLabels[] = {"dict_keys", "dict_values", "dict_items"};
  bind(runtime, "view", arguments, {});
  std::vector<Value> parts;
  for (const auto& [key, value] : receiver.as_mapping().entries) {
    parts.push_back(kPart == Part::keys     ? key
                    : kPart == Part::values ? value
                                            : runtime.tuple({key, value}));
  }
  return runtime.sequence(SequenceKind::view, std::move(parts), kLabels[static_cast<int>(kPart)]);
}

Value copy_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  bind(runtime, "copy", arguments, {});
  return receiver;  // dicts and lists do not change
}

// jinja2's immutable sandbox hides what changes a value.
Value refuse(Runtime& runtime, Value receiver, const Arguments&) {
  runtime.fail("a template cannot change a '{}'", type_name(receiver));
}

constexpr Method kMappingMethods[] = {
    {"clear", refuse},
    {"copy", copy_method},
    {"get", get_method},
    {"items", view_method<Part::items>},
    {"keys", view_method<Part::keys>},
    {"pop", refuse},
    {"popitem", refuse},
    {"setdefault", refuse},
    {"update", refuse},
    {"values", view_method<Part::values>},
};

// ---- of lists and tuples

Value list_index_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  const auto bound = bind(runtime, "index", arguments, {"value"}, 1);
  const std::vector<Value>& all = receiver.as_sequence().items;
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (equal(runtime, all[i], *bound[0])) return Value::integer(static_cast<std::int64_t>(i));
  }
  runtime.fail("the value is not in the list");
}

Value list_count_method(Runtime& runtime, Value receiver, const Arguments& arguments) {
  const auto bound = bind(runtime, "count", arguments, {"value"}, 1);
  std::int64_t n = 0;
  for (const Value& item : receiver.as_sequence().items) n += equal(runtime, item, *bound[0]);
  return Value::integer(n);
}

constexpr Method kListMethods[] = {
    {"append", refuse},           {"clear", refuse},  {"copy", copy_method},
    {"count", list_count_method}, {"extend", refuse}, {"index", list_index_method},
    {"insert", refuse},           {"pop", refuse},    {"remove", refuse},
    {"reverse", refuse},          {"sort", refuse},
};
constexpr Method kTupleMethods[] = {{"count", list_count_method}, {"index", list_index_method}};

std::span<const Method> methods_of(Value receiver) {
  switch (receiver.kind()) {
    case Kind::text: return kTextMethods;
    case Kind::mapping: return kMappingMethods;
    case Kind::sequence:
      switch (receiver.as_sequence().kind) {
        case SequenceKind::list: return kListMethods;
        case SequenceKind::tuple:
        case SequenceKind::range: return kTupleMethods;
        default: return {};
      }
    default: return {};
  }
}

}  // namespace

Value method(Runtime& runtime, Value receiver, std::string_view name) {
  for (const Method& candidate : methods_of(receiver)) {
    if (candidate.name == name) return Value(runtime.object<BoundMethod>(receiver, candidate));
  }
  return Value();
}

}  // namespace outrider::jinja
