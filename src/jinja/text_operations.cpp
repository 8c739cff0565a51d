#include "jinja/text_operations.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>

#include "jinja/builtins.h"
#include "jinja/unicode.h"

namespace outrider::jinja {

std::size_t find_bytes(std::string_view text, std::string_view needle, std::size_t from) {
  if (from > text.size()) return text.npos;
  // glibc's memmem is linear in the worst case; std::string::find is not.
  const void* const found =
      memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  return found ? static_cast<std::size_t>(static_cast<const char*>(found) - text.data())
               : text.npos;
}

Value strip(Runtime& runtime, const Text& text, const Text* characters, bool left, bool right) {
  const std::string_view bytes = text.bytes();
  runtime.read(bytes.size());
  const auto goes = [&](std::size_t at) {
    const Character c = character_at(bytes, at);
    if (!characters) return is_space(c.code);
    runtime.read(characters->size());
    return find_bytes(characters->bytes(), bytes.substr(at, c.n_bytes)) != bytes.npos;
  };
  std::size_t begin = 0, end = bytes.size();
  while (left && begin < end && goes(begin)) begin += character_at(bytes, begin).n_bytes;
  while (right && end > begin) {
    const std::size_t before = end - character_before(bytes, end).n_bytes;
    if (!goes(before)) break;
    end = before;
  }
  return runtime.slice(text, begin, end);
}

Value change_case(Runtime& runtime, const Text& text, Case to) {
  runtime.read(text.size() * 4);  // tables are looked up for each character
  TextBuilder out(runtime);
  bool at_start = true;
  text.stretches([&](std::string_view bytes, bool user) {
    std::string changed;
    for (std::size_t at = 0; at < bytes.size();) {
      const Character c = character_at(bytes, at);
      const bool upper = to == Case::upper || (to != Case::lower && at_start);
      append_utf8(changed, upper ? to_upper(c.code) : to_lower(c.code));
      switch (to) {
        case Case::title: at_start = !is_cased(c.code); break;
        case Case::title_words:
          at_start = is_space(c.code) ||
                     (c.code < 0x80 && std::strchr("-({[<", static_cast<int>(c.code)) && c.code);
          break;
        default: at_start = false;
      }
      at += c.n_bytes;
    }
    out.append(changed, user);
  });
  return out.finish_value();
}

Value replace(Runtime& runtime, const Text& text, const Text& from, const Text& to,
              std::int64_t count) {
  const std::string_view bytes = text.bytes(), needle = from.bytes();
  runtime.read(bytes.size() + needle.size());
  TextBuilder out(runtime);
  std::size_t at = 0;
  for (; count != 0; --count) {
    if (needle.empty()) {  // before each character, and at the end
      out.append(to);
      if (at == bytes.size()) break;
      const std::size_t next = at + character_at(bytes, at).n_bytes;
      out.append(text, at, next);
      at = next;
    } else {
      const std::size_t found = find_bytes(bytes, needle, at);
      if (found == bytes.npos) break;
      out.append(text, at, found);
      out.append(to);
      at = found + needle.size();
    }
    runtime.step();
  }
  out.append(text, at, bytes.size());
  return out.finish_value();
}

namespace {

// Calls found(begin, end) for the separators of [0, size), in the direction asked for, until it
// returns false.
template <typename Found>
void each_space(std::string_view bytes, bool from_right, Found&& found) {
  if (!from_right) {
    for (std::size_t at = 0; at < bytes.size();) {
      const std::size_t begin = at;
      while (at < bytes.size() && is_space(character_at(bytes, at).code))
        at += character_at(bytes, at).n_bytes;
      if (at > begin && !found(begin, at)) return;
      if (at < bytes.size() && at == begin) at += character_at(bytes, at).n_bytes;
    }
    return;
  }
  for (std::size_t at = bytes.size(); at > 0;) {
    const std::size_t end = at;
    while (at > 0 && is_space(character_before(bytes, at).code))
      at -= character_before(bytes, at).n_bytes;
    if (at < end && !found(at, end)) return;
    if (at > 0 && at == end) at -= character_before(bytes, at).n_bytes;
  }
}

struct Stretch {
  std::size_t begin, end;
};

}  // namespace

std::vector<Value> split(Runtime& runtime, const Text& text, const Text* separator,
                         std::int64_t most, bool from_right) {
  const std::string_view bytes = text.bytes();
  runtime.read(bytes.size());
  // White space at the ends separates nothing.
  const Text& inner =
      separator ? text : strip(runtime, text, nullptr, !from_right, from_right).as_text();
  std::vector<Stretch> cuts;
  const auto cut = [&](std::size_t begin, std::size_t end) {
    if (most == 0) return false;
    runtime.charge(sizeof(Stretch));
    cuts.push_back({begin, end});
    --most;
    return true;
  };
  const std::string_view searched = inner.bytes();
  if (!separator) {
    each_space(searched, from_right, cut);
  } else if (separator->size() == 0) {
    runtime.fail("empty separator");
  } else if (!from_right) {
    for (std::size_t at = 0; (at = find_bytes(searched, separator->bytes(), at)) != bytes.npos;) {
      if (!cut(at, at + separator->size())) break;
      at += separator->size();
    }
  } else {
    const std::size_t size = separator->size();
    for (std::size_t end = searched.size(); end >= size;) {
      runtime.step();
      runtime.read(size);
      if (searched.substr(end - size, size) != separator->bytes()) {
        --end;
      } else if (cut(end - size, end)) {
        end -= size;
      } else {
        break;
      }
    }
  }
  if (from_right) std::reverse(cuts.begin(), cuts.end());

  std::vector<Value> parts;
  std::size_t begin = 0;
  const auto add = [&](std::size_t end) {
    // Without a separator an empty part can only be the last one, which does not count.
    if (separator || begin < end) parts.push_back(runtime.slice(inner, begin, end));
  };
  for (const Stretch& c : cuts) {
    add(c.begin);
    begin = c.end;
  }
  add(searched.size());
  return parts;
}

std::vector<Value> split_lines(Runtime& runtime, const Text& text) {
  const std::string_view bytes = text.bytes();
  runtime.read(bytes.size());
  std::vector<Value> lines;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < bytes.size();) {
    const Character c = character_at(bytes, at);
    const bool ends = (c.code >= '\n' && c.code <= '\r') || (c.code >= 0x1C && c.code <= 0x1E) ||
                      c.code == 0x85 || c.code == 0x2028 || c.code == 0x2029;
    const std::size_t end = at;
    at += c.n_bytes;
    if (!ends) continue;
    if (c.code == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    lines.push_back(runtime.slice(text, begin, end));
    begin = at;
  }
  if (begin < bytes.size()) lines.push_back(runtime.slice(text, begin, bytes.size()));
  return lines;
}

Value join(Runtime& runtime, const Text& separator, std::span<const Value> items) {
  TextBuilder out(runtime);
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (i > 0) out.append(separator);
    out.append(str(runtime, items[i]));
    runtime.step();
  }
  return out.finish_value();
}

Value repeat(Runtime& runtime, const Text& text, std::int64_t times) {
  if (text.size() == 0 || times <= 0) return runtime.text("");
  const std::size_t once = text.cost() - sizeof(Text);
  std::size_t cost = 0;
  if (__builtin_mul_overflow(once, static_cast<std::size_t>(times), &cost))
    cost = static_cast<std::size_t>(-1);
  runtime.charge(cost);  // at once: a billion repetitions fail before the first
  Text out;
  for (; times > 0; --times) out.append(text);
  return Value(runtime.keep(std::move(out)));
}

namespace {

class PercentFormat {
 public:
  PercentFormat(Runtime& runtime, const Text& format, Value arguments)
      : runtime_(runtime),
        format_(format),
        bytes_(format.bytes()),
        arguments_(arguments),
        out_(runtime) {
    is_tuple_ = arguments.kind() == Value::Kind::sequence &&
                arguments.as_sequence().kind == SequenceKind::tuple;
  }

  Value run() {
    for (;;) {
      const std::size_t percent = find_bytes(bytes_, "%", at_);
      const std::size_t end = percent == bytes_.npos ? bytes_.size() : percent;
      out_.append(format_, at_, end);
      at_ = end;
      if (at_ == bytes_.size()) break;
      ++at_;
      conversion();
    }
    // Python refuses an unused argument only if it is a tuple's, or has no subscripts.
    const bool has_subscripts =
        !is_tuple_ && (arguments_.kind() == Value::Kind::mapping ||
                       arguments_.kind() == Value::Kind::sequence || arguments_.is_undefined());
    const std::size_t given = is_tuple_ ? arguments_.as_sequence().items.size() : 1;
    if (n_used_ < given && !has_subscripts)
      runtime_.fail("not all arguments converted during string formatting");
    return out_.finish_value();
  }

 private:
  char peek() const { return at_ < bytes_.size() ? bytes_[at_] : '\0'; }

  Value next_argument() {
    if (!is_tuple_) {
      if (n_used_++ > 0) runtime_.fail("not enough arguments for format string");
      return arguments_;
    }
    const std::vector<Value>& items = arguments_.as_sequence().items;
    if (n_used_ >= items.size()) runtime_.fail("not enough arguments for format string");
    return items[n_used_++];
  }

  // Digits or '*'; nothing if there are none.
  std::optional<int> size() {
    if (peek() == '*') {
      ++at_;
      const Value value = next_argument();
      runtime_.check_narrow(value);
      if (!value.is_integral()) runtime_.fail("* wants int");
      return checked(value.as_integer());
    }
    if (!is_ascii_digit(static_cast<unsigned char>(peek()))) return std::nullopt;
    std::int64_t value = 0;
    while (is_ascii_digit(static_cast<unsigned char>(peek())))
      value = checked(value * 10 + (bytes_[at_++] - '0'));
    return static_cast<int>(value);
  }
  int checked(std::int64_t value) const {
    if (value < 0 || value > 1000)
      runtime_.fail("a width or precision in a format is at most 1000");
    return static_cast<int>(value);
  }

  void conversion() {
    std::optional<Value> named;
    if (peek() == '(') {
      const std::size_t end = find_bytes(bytes_, ")", at_);
      if (end == bytes_.npos) runtime_.fail("incomplete format key");
      if (arguments_.kind() != Value::Kind::mapping) runtime_.fail("format requires a mapping");
      const Value key = runtime_.slice(format_, at_ + 1, end);
      const Value* const value = find(runtime_, arguments_.as_mapping(), key);
      if (!value) runtime_.fail("the format's key '{}' is missing", key.as_text().bytes());
      named = *value;
      at_ = end + 1;
    }
    std::string flags;
    while (peek() && std::strchr("-+ 0#", peek())) {
      if (flags.find(peek()) == flags.npos) flags += peek();
      ++at_;
    }
    const auto flag = [&](char c) { return flags.find(c) != flags.npos; };
    const int width = size().value_or(0);
    std::optional<int> precision;
    if (peek() == '.') {
      ++at_;
      precision = size().value_or(0);
    }
    const char type = peek();
    if (type == '\0') runtime_.fail("incomplete format");
    ++at_;
    if (type == '%') {
      out_.append("%");
      return;
    }
    const Value value = named ? *named : next_argument();
    if (type == 's' || type == 'r' || type == 'c') {
      padded(text_of(value, type, precision), width, flag('-'));
      return;
    }
    if (!value.is_numeric()) {
      runtime_.fail("%{} format: a number is required, not {}", type, type_name(value));
    }
    std::string spec = fmt::format("%{}{}", flags, width);
    if (precision) spec += fmt::format(".{}", *precision);
    char buffer[2048];  // 309 digits, 1000 places, 1000 of width
    if (std::strchr("diuxXo", type)) {
      if (std::strchr("xXo", type) && value.kind() == Value::Kind::number)
        runtime_.fail("%{} format: an integer is required, not float", type);
      const Value whole = value.kind() == Value::Kind::number
                              ? truncate_to_integer(runtime_, value.as_number())
                              : value;
      const bool is_plain = !precision && flags.find_first_not_of('-') == flags.npos;
      if (whole.is_wide() && std::strchr("diu", type) && is_plain) {
        padded(str(runtime_, whole), width, flag('-'));
        return;
      }
      runtime_.check_narrow(whole);
      const std::int64_t number = whole.as_integer();
      if (number < 0 && std::strchr("xXo", type))
        runtime_.fail("%{} of a negative number is not supported", type);
      spec += "ll";
      spec += type == 'i' || type == 'u' ? 'd' : type;
      std::snprintf(buffer, sizeof buffer, spec.c_str(), static_cast<long long>(number));
    } else if (std::strchr("fFeEgG", type)) {
      spec += type;
      std::snprintf(buffer, sizeof buffer, spec.c_str(), to_float(runtime_, value));
    } else {
      runtime_.fail("unsupported format character '{}'", type);
    }
    out_.append(buffer);
  }

  const Text& text_of(Value value, char type, std::optional<int> precision) {
    if (type == 'c') {
      if (value.is_integral()) {
        const std::int64_t code = value.as_integer();
        if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
          runtime_.fail("%c of {} is no character", code);
        std::string bytes;
        append_utf8(bytes, static_cast<std::uint32_t>(code));
        return runtime_.text(bytes).as_text();
      }
      if (!value.is_text() || count_characters(value.as_text().bytes()) != 1)
        runtime_.fail("%c requires int or char");
    }
    const Text& text = type == 'r' ? repr(runtime_, value) : str(runtime_, value);
    if (!precision) return text;
    const std::size_t end = byte_of_character(text.bytes(), static_cast<std::size_t>(*precision));
    return runtime_.slice(text, 0, end).as_text();
  }

  void padded(const Text& text, int width, bool left) {
    const auto characters = static_cast<std::int64_t>(count_characters(text.bytes()));
    const std::string spaces(
        static_cast<std::size_t>(std::max<std::int64_t>(0, width - characters)), ' ');
    if (!left) out_.append(spaces);
    out_.append(text);
    if (left) out_.append(spaces);
  }

  Runtime& runtime_;
  const Text& format_;
  const std::string_view bytes_;
  const Value arguments_;
  TextBuilder out_;
  bool is_tuple_ = false;
  std::size_t at_ = 0, n_used_ = 0;
};

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(character_at(text, 0).code))
    text.remove_prefix(character_at(text, 0).n_bytes);
  while (!text.empty() && is_space(character_before(text, text.size()).code))
    text.remove_suffix(character_before(text, text.size()).n_bytes);
  return text;
}

// The digits of a number without single underscores between them; nothing if one is elsewhere.
std::optional<std::string> without_underscores(std::string_view text) {
  std::string out;
  const auto digit = [&](std::size_t i) {
    return i < text.size() && std::isxdigit(static_cast<unsigned char>(text[i]));
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      out += text[i];
    } else if (i == 0 || !digit(i - 1) || !digit(i + 1)) {
      return std::nullopt;
    }
  }
  return out;
}

}  // namespace

Value format_percent(Runtime& runtime, const Text& format, Value arguments) {
  return PercentFormat(runtime, format, arguments).run();
}

std::optional<Value> parse_integer(Runtime& runtime, std::string_view text, int base) {
  text = trimmed(text);
  const bool negative = text.starts_with('-');
  if (negative || text.starts_with('+')) text.remove_prefix(1);
  const auto prefix = [&](char letter, int its_base) {
    if (text.size() < 3 || text[0] != '0' || (text[1] | 0x20) != letter) return;
    if (base != 0 && base != its_base) return;
    base = its_base;
    text.remove_prefix(text[2] == '_' ? 3 : 2);
  };
  prefix('b', 2);
  prefix('o', 8);
  prefix('x', 16);
  if (base == 0) base = 10;
  const std::optional<std::string> digits = without_underscores(text);
  if (!digits || digits->empty()) return std::nullopt;
  std::uint64_t magnitude = 0;
  const auto result =
      std::from_chars(digits->data(), digits->data() + digits->size(), magnitude, base);
  if (result.ptr != digits->data() + digits->size() || result.ec == std::errc::invalid_argument)
    return std::nullopt;
  if (base == 10) return runtime.integer(negative ? "-" + *digits : *digits);
  const std::uint64_t most = (std::uint64_t{1} << 63) - (negative ? 0 : 1);
  if (result.ec != std::errc() || magnitude > most) runtime.fail("an integer does not fit 64 bits");
  return Value::integer(static_cast<std::int64_t>(negative ? 0 - magnitude : magnitude));
}

std::optional<double> parse_number(std::string_view text) {
  std::optional<std::string> digits = without_underscores(trimmed(text));
  if (!digits || digits->empty()) return std::nullopt;
  std::transform(digits->begin(), digits->end(), digits->begin(),
                 [](unsigned char c) { return static_cast<char>(to_lower(c)); });
  std::string_view rest = *digits;
  const bool negative = rest.starts_with('-');
  if (negative || rest.starts_with('+')) rest.remove_prefix(1);
  if (rest.starts_with('-') || rest.starts_with("nan(")) return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (result.ptr != rest.data() + rest.size() || result.ec == std::errc::invalid_argument)
    return std::nullopt;
  if (result.ec == std::errc::result_out_of_range) {
    // Python rounds to infinity or zero; the exponent says which.
    const std::size_t e = rest.find('e');
    const bool tiny = e != rest.npos && e + 1 < rest.size() && rest[e + 1] == '-';
    value = tiny ? 0 : HUGE_VAL;
  }
  return negative ? -value : value;
}

Value truncate_to_integer(Runtime& runtime, double number) {
  if (std::isnan(number)) runtime.fail("cannot convert float NaN to integer");
  if (std::isinf(number)) runtime.fail("cannot convert float infinity to integer");
  return runtime.integer(fmt::format("{:.0f}", std::trunc(number)));
}

}  // namespace outrider::jinja
