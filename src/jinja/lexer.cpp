#include "jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include "base/error.h"
#include "jinja/unicode.h"

namespace outrider::jinja {
namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_name_part(char c) {
  return is_name_start(c) || is_digit(c);
}

// Line ends become \n, and one at the very end is dropped.
std::string normalized(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else if (i + 1 == source.size() || source[i + 1] != '\n') {
      out += '\n';
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  Lexer(std::string_view source, std::string_view origin)
      : source_(normalized(source)), text_(source_), origin_(origin) {}

  std::vector<Lexeme> run() {
    while (at_ < text_.size()) next_part();
    add(LexemeKind::end);
    return std::move(lexemes_);
  }

 private:
  [[noreturn]] void fail(std::size_t at, std::string_view message) {
    fail_at(origin_, position(at), message);
  }

  // Positions are asked for in ascending order, but for errors; so the lines are counted only once.
  Position position(std::size_t at) {
    if (at < counted_) counted_ = 0, line_ = 1, line_begin_ = 0;
    for (; counted_ < at; ++counted_) {
      if (text_[counted_] == '\n') ++line_, line_begin_ = counted_ + 1;
    }
    return {line_, static_cast<std::uint32_t>(at - line_begin_ + 1)};
  }

  Lexeme& add(LexemeKind kind, std::string text = {}) {
    lexemes_.push_back({kind, position(at_), std::move(text)});
    return lexemes_.back();
  }

  bool looking_at(std::string_view what) const { return text_.substr(at_).starts_with(what); }
  bool accept(std::string_view what) {
    if (!looking_at(what)) return false;
    at_ += what.size();
    return true;
  }
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < text_.size() ? text_[at_ + ahead] : '\0';
  }
  void skip_space() { at_ = past_space(at_); }
  std::size_t past_space(std::size_t at) const {
    while (at < text_.size()) {
      const Character c = character_at(text_, at);
      if (!is_space(c.code)) break;
      at += c.n_bytes;
    }
    return at;
  }

  // Data up to the next tag, then that tag.
  void next_part() {
    std::size_t tag = at_;
    do {
      tag = text_.find('{', tag);
    } while (tag != text_.npos && tag + 1 < text_.size() &&
             std::string_view("{%#").find(text_[tag + 1]) == text_.npos && ++tag);
    if (tag == text_.npos || tag + 1 >= text_.size()) {
      add(LexemeKind::data, std::string(text_.substr(at_)));
      at_ = text_.size();
      return;
    }
    const char kind = text_[tag + 1];
    const char sign = tag + 2 < text_.size() ? text_[tag + 2] : '\0';
    add_data(tag, sign, kind != '{');
    const std::optional<std::size_t> raw = kind == '%' ? raw_begin(tag) : std::nullopt;
    at_ = tag;
    if (raw) {
      at_ = *raw;
      close_tag();
      raw_part(tag);
      return;
    }
    if (kind != '#') add(kind == '{' ? LexemeKind::variable_begin : LexemeKind::block_begin);
    at_ += 2 + (sign == '-' || sign == '+' ? 1 : 0);
    if (kind == '#') {
      comment(tag);
    } else {
      inside_tag(kind == '%');
    }
  }

  // Data [at_, end) before a tag whose whitespace control is `sign`; '{{' tags do not strip their
  // line's indentation.
  void add_data(std::size_t end, char sign, bool is_block) {
    std::size_t keep = end;
    if (sign == '-') {
      while (keep > at_) {
        const Character before = character_before(text_, keep);
        if (keep - before.n_bytes < at_ || !is_space(before.code)) break;
        keep -= before.n_bytes;
      }
    } else if (sign != '+' && is_block) {
      const std::size_t newline = text_.substr(at_, end - at_).rfind('\n');
      const std::size_t line = newline == text_.npos ? at_ : at_ + newline + 1;
      if ((newline != text_.npos || line_starting_) && past_space(line) >= end) keep = line;
    }
    if (keep > at_) add(LexemeKind::data, std::string(text_.substr(at_, keep - at_)));
  }

  // Where the body begins if a {% raw %} tag starts at `tag`.
  std::optional<std::size_t> raw_begin(std::size_t tag) const {
    std::size_t at = tag + 2;
    if (at < text_.size() && (text_[at] == '-' || text_[at] == '+')) ++at;
    at = past_space(at);
    if (!text_.substr(at).starts_with("raw")) return std::nullopt;
    at = past_space(at + 3);
    if (text_.substr(at).starts_with("-%}")) return past_space(at + 3);
    if (text_.substr(at).starts_with("%}")) return at + 2;
    return std::nullopt;
  }

  // Data up to {% endraw %}.
  void raw_part(std::size_t tag) {
    for (std::size_t end = text_.find("{%", at_); end != text_.npos;
         end = text_.find("{%", end + 1)) {
      const char sign = end + 2 < text_.size() ? text_[end + 2] : '\0';
      std::size_t at = past_space(end + 2 + (sign == '-' || sign == '+' ? 1 : 0));
      if (!text_.substr(at).starts_with("endraw")) continue;
      at = past_space(at + 6);
      const std::string_view rest = text_.substr(at);
      if (!rest.starts_with("%}") && !rest.starts_with("+%}") && !rest.starts_with("-%}")) continue;
      add_data(end, sign, true);
      at_ = at;
      accept_block_end();
      return;
    }
    fail(tag, "missing end of raw directive");
  }

  void comment(std::size_t tag) {
    const std::size_t end = text_.find("#}", at_);
    if (end == text_.npos) fail(tag, "missing end of comment");
    const char sign = end > at_ ? text_[end - 1] : '\0';
    at_ = end + 2;
    if (sign == '-') {
      skip_space();
    } else if (sign != '+') {
      accept("\n");
    }
    close_tag();
  }

  void close_tag() { line_starting_ = at_ > 0 && text_[at_ - 1] == '\n'; }

  bool accept_block_end() {
    if (accept("-%}")) {
      skip_space();
    } else if (accept("%}")) {
      accept("\n");
    } else if (!accept("+%}")) {
      return false;
    }
    close_tag();
    return true;
  }
  bool accept_variable_end() {
    if (accept("-}}")) {
      skip_space();
    } else if (!accept("}}")) {
      return false;
    }
    close_tag();
    return true;
  }

  void inside_tag(bool is_block) {
    std::vector<char> open;  // closing brackets that are expected
    while (at_ < text_.size()) {
      if (open.empty()) {
        const std::size_t begin = at_;
        const Position position_before = position(begin);
        if (is_block ? accept_block_end() : accept_variable_end()) {
          lexemes_.push_back(
              {is_block ? LexemeKind::block_end : LexemeKind::variable_end, position_before, {}});
          return;
        }
      }
      const std::size_t past = past_space(at_);
      if (past > at_) {
        at_ = past;
      } else if (is_digit(peek())) {
        number();
      } else if (is_name_start(peek())) {
        std::size_t end = at_;
        while (end < text_.size() && is_name_part(text_[end])) ++end;
        add(LexemeKind::name, std::string(text_.substr(at_, end - at_)));
        at_ = end;
      } else if (peek() == '\'' || peek() == '"') {
        string();
      } else {
        symbol(open);
      }
    }
  }

  void symbol(std::vector<char>& open) {
    static constexpr std::array<std::string_view, 26> kSymbols = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    const auto found = std::find_if(kSymbols.begin(), kSymbols.end(),
                                    [&](std::string_view symbol) { return looking_at(symbol); });
    if (found == kSymbols.end()) {
      const Character c = character_at(text_, at_);
      fail(at_, fmt::format("unexpected character '{}'", text_.substr(at_, c.n_bytes)));
    }
    switch ((*found)[0]) {
      case '(': open.push_back(')'); break;
      case '[': open.push_back(']'); break;
      case '{': open.push_back('}'); break;
      case ')':
      case ']':
      case '}':
        if (open.empty()) fail(at_, fmt::format("unexpected '{}'", *found));
        if (open.back() != (*found)[0])
          fail(at_, fmt::format("unexpected '{}', expected '{}'", *found, open.back()));
        open.pop_back();
        break;
      default: break;
    }
    add(LexemeKind::symbol, std::string(*found));
    at_ += found->size();
  }

  // Past digits from `at`, with single underscores between them allowed; `at` itself if there is no
  // digit.
  template <typename IsDigit>
  std::size_t past_digits(std::size_t at, IsDigit&& accepts) const {
    if (at >= text_.size() || !accepts(text_[at])) return at;
    for (++at; at < text_.size(); ++at) {
      if (accepts(text_[at])) continue;
      if (text_[at] != '_' || at + 1 >= text_.size() || !accepts(text_[at + 1])) break;
    }
    return at;
  }

  void number() {
    std::size_t end = past_digits(at_, is_digit);
    bool is_float = false;
    if (at_ == 0 || text_[at_ - 1] != '.') {  // "x.0.1" is two subscripts
      const auto part = [&](std::size_t begin) {
        const std::size_t past = past_digits(begin, is_digit);
        if (past > begin) end = past, is_float = true;
      };
      if (end < text_.size() && text_[end] == '.') part(end + 1);
      if (end < text_.size() && (text_[end] == 'e' || text_[end] == 'E')) {
        const bool sign =
            end + 1 < text_.size() && (text_[end + 1] == '+' || text_[end + 1] == '-');
        part(end + (sign ? 2 : 1));
      }
    }
    if (is_float) {
      const std::string digits = without_underscores(text_.substr(at_, end - at_));
      double value = 0;
      const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value);
      if (result.ec != std::errc()) fail(at_, fmt::format("the number {} is out of range", digits));
      add(LexemeKind::number).number = value;
      at_ = end;
      return;
    }
    integer();
  }

  void integer() {
    int base = 10;
    std::size_t digits = at_, end = at_ + 1;
    if (peek() == '0') {
      const auto prefixed = [&](char letter, int new_base, auto&& accepts) {
        if ((peek(1) | 0x20) != letter) return;
        const std::size_t begin = at_ + 2 + (peek(2) == '_' ? 1 : 0);
        const std::size_t past = past_digits(begin, accepts);
        if (past > begin) digits = begin, end = past, base = new_base;
      };
      prefixed('b', 2, [](char c) { return c == '0' || c == '1'; });
      prefixed('o', 8, [](char c) { return c >= '0' && c <= '7'; });
      prefixed('x', 16,
               [](char c) { return is_digit(c) || ((c | 0x20) >= 'a' && (c | 0x20) <= 'f'); });
      if (base == 10) end = past_digits(at_, [](char c) { return c == '0'; });
    } else {
      end = past_digits(at_, is_digit);
    }
    const std::string spelled = without_underscores(text_.substr(digits, end - digits));
    std::int64_t value = 0;
    const auto result =
        std::from_chars(spelled.data(), spelled.data() + spelled.size(), value, base);
    const bool fits = result.ec == std::errc();
    if (!fits && base != 10) fail(at_, fmt::format("the integer {} does not fit 64 bits", spelled));
    add(LexemeKind::integer, fits ? "" : spelled).integer = value;
    at_ = end;
  }

  static std::string without_underscores(std::string_view digits) {
    std::string out(digits);
    std::erase(out, '_');
    return out;
  }

  void string() {
    const char quote = peek();
    std::string value;
    std::size_t at = at_ + 1;
    for (;;) {
      if (at >= text_.size()) fail(at_, "missing end of string");
      const char c = text_[at++];
      if (c == quote) break;
      if (c == '\\') {
        if (at >= text_.size()) fail(at_, "missing end of string");
        escape(value, at);
      } else {
        value += c;
      }
    }
    add(LexemeKind::string, std::move(value));
    at_ = at;
  }

  // The escape whose backslash is before `at`: Python's; unknown ones keep the backslash.
  void escape(std::string& value, std::size_t& at) {
    const auto hexadecimal = [&](std::size_t n) {
      std::uint32_t code = 0;
      const char* const first = text_.data() + at + 1;
      const std::size_t available = std::min(n, text_.size() - at - 1);
      const auto result = std::from_chars(first, first + available, code, 16);
      if (result.ec != std::errc() || result.ptr != first + n) fail(at - 1, "truncated escape");
      if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000))
        fail(at - 1, fmt::format("no character has the code {:#x}", code));
      append_utf8(value, code);
      at += n + 1;
    };
    static constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const char c = text_[at];
    if (const std::size_t found = kLetters.find(c); found != kLetters.npos) {
      value += kMeanings[found];
      ++at;
    } else if (c == '\n') {
      ++at;
    } else if (c == 'x') {
      hexadecimal(2);
    } else if (c == 'u') {
      hexadecimal(4);
    } else if (c == 'U') {
      hexadecimal(8);
    } else if (c == 'N') {
      fail(at - 1, "characters by name (\\N{...}) are not supported");
    } else if (c >= '0' && c <= '7') {
      std::uint32_t code = 0;
      for (int i = 0; i < 3 && at < text_.size() && text_[at] >= '0' && text_[at] <= '7'; ++i)
        code = code * 8 + static_cast<std::uint32_t>(text_[at++] - '0');
      append_utf8(value, code);
    } else {
      value += '\\';
    }
  }

  const std::string source_;
  const std::string_view text_;
  const std::string_view origin_;
  std::vector<Lexeme> lexemes_;
  std::size_t at_ = 0;
  bool line_starting_ = true;  // whether what was read last ends with a line end
  std::size_t counted_ = 0, line_begin_ = 0;
  std::uint32_t line_ = 1;
};

}  // namespace

std::vector<Lexeme> tokenize(std::string_view source, std::string_view origin) {
  return Lexer(source, origin).run();
}

}  // namespace outrider::jinja
