#include "text/json_scanner.h"

#include <fmt/format.h>

#include "formats/parse_json.h"

namespace outrider {
namespace {

bool is_digit(char byte) {
  return byte >= '0' && byte <= '9';
}

// Of numbers and literals.
bool is_scalar(char byte) {
  return is_digit(byte) || (byte >= 'a' && byte <= 'z') || (byte >= 'A' && byte <= 'Z') ||
         byte == '-' || byte == '+' || byte == '.';
}

std::optional<unsigned> hex_digit(char byte) {
  if (is_digit(byte)) return static_cast<unsigned>(byte - '0');
  const char lower = static_cast<char>(byte | 0x20);
  if (lower >= 'a' && lower <= 'f') return static_cast<unsigned>(lower - 'a' + 10);
  return std::nullopt;
}

std::string escaped(char control) {
  switch (control) {
    case '\n': return "\\n";
    case '\r': return "\\r";
    case '\t': return "\\t";
    default: return fmt::format("\\u{:04x}", static_cast<unsigned char>(control));
  }
}

}  // namespace

JsonScanner::Outcome JsonScanner::push(char byte, std::string& out) {
  if (at_ == At::string || at_ == At::escape || at_ == At::hex) return string(byte, out);
  if (at_ == At::scalar) {
    if (!is_scalar(byte)) return scalar_end(byte, out);
    scalar_ += byte;
    return take(byte, At::scalar, out);
  }
  if (is_white(byte)) return take(byte, at_, out);
  switch (at_) {
    case At::item_or_end: return byte == ']' ? close(byte, out) : value(byte, out);
    case At::key_or_end:
      if (byte == '}') return close(byte, out);
      [[fallthrough]];
    case At::key: is_key_ = true; return byte == '"' ? take(byte, At::string, out) : Outcome::wrong;
    case At::colon: return byte == ':' ? take(byte, At::value, out) : Outcome::wrong;
    case At::next:
      if (byte != ',') return close(byte, out);
      return take(byte, open_.back() == '{' ? At::key : At::value, out);
    default: return value(byte, out);
  }
}

JsonScanner::Outcome JsonScanner::value(char byte, std::string& out) {
  if (byte == '{') return open(byte, At::key_or_end, out);
  if (byte == '[') return open(byte, At::item_or_end, out);
  if (byte == '"') {
    is_key_ = false;
    return take(byte, At::string, out);
  }
  if (!is_digit(byte) && byte != '-' && byte != 't' && byte != 'f' && byte != 'n')
    return Outcome::wrong;
  scalar_ = byte;
  return take(byte, At::scalar, out);
}

JsonScanner::Outcome JsonScanner::string(char byte, std::string& out) {
  if (at_ == At::hex) {
    const std::optional<unsigned> digit = hex_digit(byte);
    if (!digit) return Outcome::wrong;
    unit_ = unit_ * 16 + *digit;
    if (++n_hex_ < 4) return take(byte, At::hex, out);
    const bool is_low = unit_ >= 0xDC00 && unit_ <= 0xDFFF;
    if (is_low != high_) return Outcome::wrong;
    high_ = unit_ >= 0xD800 && unit_ < 0xDC00;
    return take(byte, At::string, out);
  }
  if (at_ == At::escape) {
    if (byte == 'u') {
      n_hex_ = 0;
      unit_ = 0;
      return take(byte, At::hex, out);
    }
    const bool is_known = std::string_view("\"\\/bfnrt").find(byte) != std::string_view::npos;
    return is_known && !high_ ? take(byte, At::string, out) : Outcome::wrong;
  }
  if (byte == '\\') return take(byte, At::escape, out);
  if (high_) return Outcome::wrong;
  if (byte != '"') {
    if (static_cast<unsigned char>(byte) >= 0x20) return take(byte, At::string, out);
    out += escaped(byte);
    return Outcome::more;
  }
  out += byte;
  if (!is_key_) return ended();
  at_ = At::colon;
  return Outcome::more;
}

JsonScanner::Outcome JsonScanner::scalar_end(char byte, std::string& out) {
  if (!is_json_text(scalar_)) return Outcome::wrong;
  if (ended() == Outcome::last) return Outcome::beyond;
  return push(byte, out);
}

JsonScanner::Outcome JsonScanner::open(char byte, At inside, std::string& out) {
  if (open_.size() == kDepthMax) return Outcome::wrong;
  open_ += byte;
  return take(byte, inside, out);
}

JsonScanner::Outcome JsonScanner::close(char byte, std::string& out) {
  if (byte != (open_.back() == '{' ? '}' : ']')) return Outcome::wrong;
  out += byte;
  open_.pop_back();
  return ended();
}

JsonScanner::Outcome JsonScanner::take(char byte, At then, std::string& out) {
  out += byte;
  at_ = then;
  return Outcome::more;
}

JsonScanner::Outcome JsonScanner::ended() {
  at_ = At::next;
  return open_.empty() ? Outcome::last : Outcome::more;
}

std::optional<std::string> scanned_json(std::string_view text) {
  while (!text.empty() && is_white(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_white(text.back())) text.remove_suffix(1);
  JsonScanner scanner;
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const JsonScanner::Outcome outcome = scanner.push(text[i], out);
    if (outcome == JsonScanner::Outcome::last && i + 1 == text.size()) return out;
    if (outcome != JsonScanner::Outcome::more) return std::nullopt;
  }
  // Only a number or a literal ends with the text.
  if (text.empty() || scanner.push(' ', out) != JsonScanner::Outcome::beyond) return std::nullopt;
  return out;
}

}  // namespace outrider
