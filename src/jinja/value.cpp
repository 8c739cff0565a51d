#include "jinja/value.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <compare>
#include <cstring>
#include <optional>

#include "base/error.h"
#include "base/numbers.h"
#include "jinja/runtime.h"
#include "jinja/text_operations.h"
#include "jinja/unicode.h"

namespace outrider::jinja {
namespace {

using Kind = Value::Kind;

// Python's repr of a string prefers single quotes. Each escape has the origin of its character.
void append_quoted(TextBuilder& out, const Text& text) {
  const bool has_single = text.bytes().find('\'') != std::string::npos;
  const bool has_double = text.bytes().find('"') != std::string::npos;
  const char quote = has_single && !has_double ? '"' : '\'';
  const std::string_view quoted(&quote, 1);
  out.append(quoted);
  text.stretches([&](std::string_view bytes, bool user) {
    std::string escaped;
    for (std::size_t at = 0; at < bytes.size();) {
      const Character c = character_at(bytes, at);
      if (c.code == '\\' || c.code == static_cast<unsigned char>(quote)) {
        escaped += '\\';
        escaped += static_cast<char>(c.code);
      } else if (c.code == '\n') {
        escaped += "\\n";
      } else if (c.code == '\r') {
        escaped += "\\r";
      } else if (c.code == '\t') {
        escaped += "\\t";
      } else if (c.code < 0x20 || (c.code >= 0x7F && c.code <= 0xA0) || c.code == 0xAD) {
        escaped += fmt::format("\\x{:02x}", c.code);
      } else if (is_space(c.code) && c.code != ' ') {
        escaped += fmt::format("\\u{:04x}", c.code);
      } else {
        escaped += bytes.substr(at, c.n_bytes);
      }
      at += c.n_bytes;
    }
    out.append(escaped, user);
  });
  out.append(quoted);
}

void append_repr(Runtime& runtime, TextBuilder& out, Value value);

void append_items(Runtime& runtime, TextBuilder& out, std::span<const Value> items) {
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(", ");
    append_repr(runtime, out, items[i]);
  }
}

void append_sequence(Runtime& runtime, TextBuilder& out, const Sequence& sequence) {
  switch (sequence.kind) {
    case SequenceKind::list:
    case SequenceKind::tuple: {
      const bool is_list = sequence.kind == SequenceKind::list;
      out.append(is_list ? "[" : "(");
      append_items(runtime, out, sequence.items);
      out.append(is_list ? "]" : sequence.items.size() == 1 ? ",)" : ")");
      return;
    }
    case SequenceKind::range: out.append(sequence.label); return;
    case SequenceKind::view:
      out.append(sequence.label);
      out.append("([");
      append_items(runtime, out, sequence.items);
      out.append("])");
      return;
    case SequenceKind::generator: out.append("<generator object>"); return;
  }
}

void append_repr(Runtime& runtime, TextBuilder& out, Value value) {
  const Level level(runtime);
  runtime.step();
  switch (value.kind()) {
    case Kind::undefined: out.append("Undefined"); return;
    case Kind::none: out.append("None"); return;
    case Kind::boolean: out.append(value.as_boolean() ? "True" : "False"); return;
    case Kind::integer: out.append(fmt::format("{}", value.as_integer())); return;
    case Kind::wide_integer: out.append(value.as_digits()); return;
    case Kind::number: out.append(spell(value.as_number())); return;
    case Kind::text: append_quoted(out, value.as_text()); return;
    case Kind::sequence: append_sequence(runtime, out, value.as_sequence()); return;
    case Kind::mapping: {
      const char* separator = "{";
      for (const auto& [key, item] : value.as_mapping().entries) {
        out.append(separator);
        append_repr(runtime, out, key);
        out.append(": ");
        append_repr(runtime, out, item);
        separator = ", ";
      }
      out.append(value.as_mapping().entries.empty() ? "{}" : "}");
      return;
    }
    case Kind::object: out.append(fmt::format("<{}>", value.as_object().type_name())); return;
  }
}

// Of integers as decimal digits, without zeros in front.
std::strong_ordering compare_digits(std::string_view a, std::string_view b) {
  const bool negative = a.starts_with('-');
  if (negative != b.starts_with('-'))
    return negative ? std::strong_ordering::less : std::strong_ordering::greater;
  if (negative) std::swap(a, b);
  const auto by_size = a.size() <=> b.size();
  return by_size != 0 ? by_size : a <=> b;
}

// Of a number beyond 64 bits; of others such that they compare alike with those.
std::string digits_of(Value value) {
  if (value.kind() != Kind::number)
    return value.is_wide() ? value.as_digits() : fmt::format("{}", value.as_integer());
  const double number = value.as_number();
  return std::fabs(number) < 0x1p63 ? "0" : fmt::format("{:.0f}", number);
}

// Exactly: no two different numbers are equal. Unordered if one is no number.
std::partial_ordering compare_numbers(Value a, Value b) {
  const auto is_finite = [](Value v) {
    return v.kind() != Kind::number || std::isfinite(v.as_number());
  };
  if (!is_finite(a)) return a.as_number() <=> (is_finite(b) ? 0 : b.as_number());
  if (!is_finite(b)) return 0 <=> b.as_number();
  if (a.is_wide() || b.is_wide()) return compare_digits(digits_of(a), digits_of(b));
  // long double holds every int64.
  const auto wide = [](Value v) {
    return v.is_integral() ? static_cast<long double>(v.as_integer())
                           : static_cast<long double>(v.as_number());
  };
  return wide(a) <=> wide(b);
}

void append_json_string(TextBuilder& out, const Text& text, bool ensure_ascii) {
  out.append("\"");
  text.stretches([&](std::string_view bytes, bool user) {
    std::string escaped;
    for (std::size_t at = 0; at < bytes.size();) {
      const Character c = character_at(bytes, at);
      static constexpr std::string_view kShort = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
      const std::size_t known =
          c.code < 0x80 ? kShort.find(static_cast<char>(c.code)) : kShort.npos;
      if (known != kShort.npos) {
        escaped += '\\';
        escaped += kLetters[known];
      } else if (c.code < 0x20 || (ensure_ascii && c.code >= 0x7F && c.code < 0x10000)) {
        escaped += fmt::format("\\u{:04x}", c.code);
      } else if (ensure_ascii && c.code >= 0x10000 && c.code < kIllFormed) {
        const std::uint32_t offset = c.code - 0x10000;
        escaped +=
            fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (offset >> 10), 0xDC00 + (offset & 0x3FF));
      } else {
        escaped += bytes.substr(at, c.n_bytes);
      }
      at += c.n_bytes;
    }
    out.append(escaped, user);
  });
  out.append("\"");
}

class JsonWriter {
 public:
  JsonWriter(Runtime& runtime, const JsonStyle& style)
      : runtime_(runtime), style_(style), out_(runtime) {}

  const Text& write(Value value) {
    append(value, 0);
    return out_.finish();
  }

 private:
  void append(Value value, int depth) {
    const Level level(runtime_);
    runtime_.step();
    switch (value.kind()) {
      case Kind::none: out_.append("null"); return;
      case Kind::boolean: out_.append(value.as_boolean() ? "true" : "false"); return;
      case Kind::integer: out_.append(fmt::format("{}", value.as_integer())); return;
      case Kind::wide_integer: out_.append(value.as_digits()); return;
      case Kind::number: out_.append(number(value.as_number())); return;
      case Kind::text: append_json_string(out_, value.as_text(), style_.ensure_ascii); return;
      case Kind::mapping: append_mapping(value.as_mapping(), depth); return;
      case Kind::sequence: {
        const Sequence& sequence = value.as_sequence();
        if (sequence.kind != SequenceKind::list && sequence.kind != SequenceKind::tuple) break;
        const std::vector<Value>& items = sequence.items;
        out_.append("[");
        for (std::size_t i = 0; i < items.size(); ++i) {
          if (i > 0) out_.append(style_.item_separator);
          new_line(depth + 1);
          append(items[i], depth + 1);
        }
        if (!items.empty()) new_line(depth);
        out_.append("]");
        return;
      }
      default: break;
    }
    runtime_.fail("Object of type {} is not JSON serializable", type_name(value));
  }

  void append_mapping(const Mapping& mapping, int depth) {
    std::vector<std::pair<Value, Value>> entries = mapping.entries;
    runtime_.charge(entries.size() * sizeof(entries[0]));
    if (style_.sort_keys) {
      std::stable_sort(entries.begin(), entries.end(), [&](const auto& a, const auto& b) {
        return less(runtime_, a.first, b.first);
      });
    }
    out_.append("{");
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_.append(style_.item_separator);
      new_line(depth + 1);
      append_key(entries[i].first);
      out_.append(style_.key_separator);
      append(entries[i].second, depth + 1);
    }
    if (!entries.empty()) new_line(depth);
    out_.append("}");
  }

  void append_key(Value key) {
    if (key.is_text()) {
      append_json_string(out_, key.as_text(), style_.ensure_ascii);
    } else if (key.is_numeric() || key.is_none()) {
      out_.append("\"");
      append(key, 0);
      out_.append("\"");
    } else {
      runtime_.fail("keys must be str, int, float, bool or None, not {}", type_name(key));
    }
  }

  void new_line(int depth) {
    if (style_.indent < 0) return;
    const auto spaces = static_cast<std::size_t>(depth) * static_cast<std::size_t>(style_.indent);
    runtime_.charge(spaces);
    out_.append(fmt::format("\n{:{}}", "", spaces));
  }

  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
    return spell(value);
  }

  Runtime& runtime_;
  const JsonStyle& style_;
  TextBuilder out_;
};

}  // namespace

Value Object::call(Runtime& runtime, const Arguments&) {
  runtime.fail("'{}' object is not callable", type_name());
}

Value Namespace::attribute(Runtime& runtime, std::string_view name) {
  runtime.step(static_cast<std::int64_t>(entries_.size() / 8));
  for (const auto& [known, value] : entries_) {
    if (known == name) return value;
  }
  return Value();
}

void Namespace::set(Runtime& runtime, std::string_view name, Value value) {
  runtime.step(static_cast<std::int64_t>(entries_.size() / 8));
  for (auto& [known, old] : entries_) {
    if (known == name) {
      old = value;
      return;
    }
  }
  runtime.charge(sizeof(entries_[0]));
  entries_.emplace_back(name, value);
}

std::string_view type_name(Value value) {
  switch (value.kind()) {
    case Kind::undefined: return "Undefined";
    case Kind::none: return "NoneType";
    case Kind::boolean: return "bool";
    case Kind::integer:
    case Kind::wide_integer: return "int";
    case Kind::number: return "float";
    case Kind::text: return "str";
    case Kind::mapping: return "dict";
    case Kind::object: return value.as_object().type_name();
    case Kind::sequence: break;
  }
  switch (value.as_sequence().kind) {
    case SequenceKind::list: return "list";
    case SequenceKind::tuple: return "tuple";
    case SequenceKind::range: return "range";
    case SequenceKind::view: return value.as_sequence().label;
    case SequenceKind::generator: return "generator";
  }
  CHECK(false);
}

bool truthy(Value value) {
  switch (value.kind()) {
    case Kind::undefined:
    case Kind::none: return false;
    case Kind::boolean: return value.as_boolean();
    case Kind::integer: return value.as_integer() != 0;
    case Kind::wide_integer: return true;
    case Kind::number: return value.as_number() != 0;
    case Kind::text: return value.as_text().size() != 0;
    case Kind::mapping: return !value.as_mapping().entries.empty();
    case Kind::sequence:
      return value.as_sequence().kind == SequenceKind::generator ||
             !value.as_sequence().items.empty();
    case Kind::object: return true;
  }
  CHECK(false);
}

bool equal(Runtime& runtime, Value a, Value b) {
  runtime.step();
  if (a.is_numeric() && b.is_numeric()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::text:
      if (a.as_text().size() != b.as_text().size()) return false;
      runtime.read(a.as_text().size());
      return a.as_text().bytes() == b.as_text().bytes();
    case Kind::sequence: {
      const Sequence &left = a.as_sequence(), &right = b.as_sequence();
      if (&left == &right) return true;
      if (left.kind != right.kind || left.kind == SequenceKind::generator ||
          left.items.size() != right.items.size())
        return false;
      const Level level(runtime);
      for (std::size_t i = 0; i < left.items.size(); ++i) {
        if (!equal(runtime, left.items[i], right.items[i])) return false;
      }
      return true;
    }
    case Kind::mapping: {
      const Mapping &left = a.as_mapping(), &right = b.as_mapping();
      if (left.entries.size() != right.entries.size()) return false;
      const Level level(runtime);
      for (const auto& [key, value] : left.entries) {
        const Value* const other = find(runtime, right, key);
        if (!other || !equal(runtime, value, *other)) return false;
      }
      return true;
    }
    case Kind::object: return &a.as_object() == &b.as_object();
    default: return true;  // undefined, none
  }
}

bool less(Runtime& runtime, Value a, Value b) {
  runtime.step();
  if (a.is_undefined()) runtime.fail_undefined(a);
  if (b.is_undefined()) runtime.fail_undefined(b);
  if (a.is_numeric() && b.is_numeric()) return compare_numbers(a, b) < 0;
  if (a.is_text() && b.is_text()) {
    const std::string &left = a.as_text().bytes(), &right = b.as_text().bytes();
    runtime.read(std::min(left.size(), right.size()));
    return left < right;  // the order of UTF-8 bytes is that of code points
  }
  if (a.kind() == Kind::sequence && b.kind() == Kind::sequence) {
    const Sequence &left = a.as_sequence(), &right = b.as_sequence();
    if (left.kind == right.kind &&
        (left.kind == SequenceKind::list || left.kind == SequenceKind::tuple)) {
      const Level level(runtime);
      const std::size_t n = std::min(left.items.size(), right.items.size());
      for (std::size_t i = 0; i < n; ++i) {
        if (!equal(runtime, left.items[i], right.items[i]))
          return less(runtime, left.items[i], right.items[i]);
      }
      return left.items.size() < right.items.size();
    }
  }
  runtime.fail("'<' not supported between instances of '{}' and '{}'", type_name(a), type_name(b));
}

bool contains(Runtime& runtime, Value item, Value container) {
  switch (container.kind()) {
    case Kind::undefined: return false;
    case Kind::text:
      if (!item.is_text())
        runtime.fail("'in <string>' requires string as left operand, not {}", type_name(item));
      runtime.read(container.as_text().size() + item.as_text().size());
      return find_bytes(container.as_text().bytes(), item.as_text().bytes()) != std::string::npos;
    case Kind::mapping:
      if (!hashable(item)) runtime.fail("unhashable type: '{}'", type_name(item));
      return find(runtime, container.as_mapping(), item) != nullptr;
    case Kind::sequence: {
      const Sequence& sequence = container.as_sequence();
      const bool once = sequence.kind == SequenceKind::generator;
      for (std::size_t i = once ? sequence.n_read : 0; i < sequence.items.size(); ++i) {
        if (once) sequence.n_read = i + 1;
        if (equal(runtime, sequence.items[i], item)) return true;
      }
      return false;
    }
    default: runtime.fail("argument of type '{}' is not iterable", type_name(container));
  }
}

std::span<const Value> items(Runtime& runtime, Value value) {
  switch (value.kind()) {
    case Kind::undefined: return {};
    case Kind::sequence: {
      const Sequence& sequence = value.as_sequence();
      const std::span<const Value> all = sequence.items;
      if (sequence.kind != SequenceKind::generator) return all;
      return all.subspan(std::exchange(sequence.n_read, all.size()));
    }
    case Kind::text: {
      const Text& text = value.as_text();
      std::vector<Value> characters;
      for (std::size_t at = 0; at < text.size();) {
        const std::size_t end = at + character_at(text.bytes(), at).n_bytes;
        characters.push_back(runtime.slice(text, at, end));
        at = end;
      }
      return runtime.list(std::move(characters)).as_sequence().items;
    }
    case Kind::mapping: {
      std::vector<Value> keys;
      for (const auto& entry : value.as_mapping().entries) keys.push_back(entry.first);
      return runtime.list(std::move(keys)).as_sequence().items;
    }
    default: runtime.fail("'{}' object is not iterable", type_name(value));
  }
}

double to_float(Runtime& runtime, Value value) {
  if (value.is_integral()) return static_cast<double>(value.as_integer());
  if (!value.is_wide()) return value.as_number();
  const std::optional<double> number = outrider::parse_number<double>(value.as_digits());
  if (!number) runtime.fail("int too large to convert to float");
  return *number;
}

std::int64_t length(Runtime& runtime, Value value) {
  const auto whole = [](std::size_t n) { return static_cast<std::int64_t>(n); };
  switch (value.kind()) {
    case Kind::undefined: return 0;
    case Kind::text:
      runtime.read(value.as_text().size());
      return whole(count_characters(value.as_text().bytes()));
    case Kind::mapping: return whole(value.as_mapping().entries.size());
    case Kind::sequence:
      if (value.as_sequence().kind != SequenceKind::generator)
        return whole(value.as_sequence().items.size());
      [[fallthrough]];
    default: runtime.fail("object of type '{}' has no len()", type_name(value));
  }
}

bool hashable(Value value) {
  if (value.kind() != Kind::sequence) return value.kind() != Kind::mapping;
  const Sequence& sequence = value.as_sequence();
  if (sequence.kind != SequenceKind::tuple) return sequence.kind != SequenceKind::list;
  return std::none_of(sequence.items.begin(), sequence.items.end(), [](const Value& item) {
    return item.kind() == Kind::mapping ||
           (item.kind() == Kind::sequence && item.as_sequence().kind == SequenceKind::list);
  });
}

const Value* find(Runtime& runtime, const Mapping& mapping, Value key) {
  for (const auto& [known, value] : mapping.entries) {
    if (equal(runtime, known, key)) return &value;
  }
  return nullptr;
}

const Text& str(Runtime& runtime, Value value) {
  if (value.is_text()) return value.as_text();
  if (value.is_undefined()) return runtime.text("").as_text();
  return repr(runtime, value);
}

const Text& repr(Runtime& runtime, Value value) {
  TextBuilder out(runtime);
  append_repr(runtime, out, value);
  return out.finish();
}

const Text& json(Runtime& runtime, Value value, const JsonStyle& style) {
  return JsonWriter(runtime, style).write(value);
}

}  // namespace outrider::jinja
