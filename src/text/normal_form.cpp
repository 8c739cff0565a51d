#include "text/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <bitset>
#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"

namespace outrider {
namespace {

using CodePoint = utf8proc_int32_t;

constexpr CodePoint kCodePoints = 0x110000;
constexpr auto kDecompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE);
constexpr auto kCompose = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE);

// U+0300 is the first code point that can change or change its neighbours. It begins with this
// byte.
constexpr unsigned char kFirstLead = 0xCC;

unsigned combining_class(CodePoint code) {
  return static_cast<unsigned>(utf8proc_get_property(code)->combining_class);
}

// The longest canonical decomposition has four code points.
struct Decomposition {
  CodePoint codes[4];
  int n;
};
Decomposition decomposition(CodePoint code) {
  Decomposition made{};
  int last_boundary_class = 0;  // not used: it belongs to other options
  made.n = static_cast<int>(
      utf8proc_decompose_char(code, made.codes, 4, kDecompose, &last_boundary_class));
  CHECK(made.n >= 1 && made.n <= 4);
  return made;
}

// Code points that are not always themselves in a text: they have another form, stand in the order
// of their class, or may combine with what is before them.
class Unstable {
 public:
  bool operator[](CodePoint code) const { return codes_[static_cast<std::size_t>(code)]; }

  static const Unstable& get() {
    static const Unstable made;  // takes 4 ms, once, when a text has a character of U+0300 or later
    return made;
  }

 private:
  Unstable() {
    for (CodePoint code = 0; code < kCodePoints; ++code) {
      const utf8proc_property_t& property = *utf8proc_get_property(code);
      if (property.combining_class != 0) set(code);
      const bool is_hangul = code >= 0xAC00 && code <= 0xD7A3;
      if (is_hangul || property.decomp_seqindex == UINT16_MAX || property.decomp_type != 0)
        continue;
      const Decomposition parts = decomposition(code);
      if (parts.n > 1) set(parts.codes[parts.n - 1]);  // it ends a pair
      Decomposition again = parts;
      if (utf8proc_normalize_utf32(again.codes, again.n, kCompose) != 1 || again.codes[0] != code)
        set(code);
    }
    for (CodePoint vowel = 0x1161; vowel <= 0x1175; ++vowel) set(vowel);
    for (CodePoint last = 0x11A8; last <= 0x11C2; ++last) set(last);
  }

  void set(CodePoint code) { codes_.set(static_cast<std::size_t>(code)); }

  std::bitset<kCodePoints> codes_;
};

// Stretches of well-formed text in normal form, one after another with the same working memory.
class Composer {
 public:
  // Appends the stretch in normal form.
  void compose(std::string_view stretch, std::string& out) {
    decompose(stretch);
    order_marks();
    codes_.assign(marked_.size(), 0);
    std::transform(marked_.begin(), marked_.end(), codes_.begin(), code_of);
    const utf8proc_ssize_t n = utf8proc_normalize_utf32(
        codes_.data(), static_cast<utf8proc_ssize_t>(codes_.size()), kCompose);
    CHECK(n >= 0);
    for (const CodePoint code : std::span(codes_).first(static_cast<std::size_t>(n)))
      append_utf8(out, static_cast<std::uint32_t>(code));
  }

 private:
  // A code point below its class, which takes eight bits.
  using Marked = std::uint32_t;
  static Marked marked(CodePoint code) {
    return combining_class(code) << 21 | static_cast<std::uint32_t>(code);
  }
  static CodePoint code_of(Marked value) { return static_cast<CodePoint>(value & 0x1FFFFF); }
  static unsigned class_of(Marked value) { return value >> 21; }

  void decompose(std::string_view text) {
    marked_.clear();
    while (!text.empty()) {
      const Character character = character_at(text, 0);
      const Decomposition parts = decomposition(static_cast<CodePoint>(character.code));
      for (const CodePoint code : std::span(parts.codes).first(static_cast<std::size_t>(parts.n)))
        marked_.push_back(marked(code));
      text.remove_prefix(character.n_bytes);
    }
  }

  // utf8proc's own sorting takes quadratic time.
  void order_marks() {
    const auto is_mark = [](Marked value) { return class_of(value) != 0; };
    for (auto begin = marked_.begin(); begin != marked_.end();) {
      begin = std::find_if(begin, marked_.end(), is_mark);
      const auto end = std::find_if_not(begin, marked_.end(), is_mark);
      std::stable_sort(begin, end, [](Marked a, Marked b) { return class_of(a) < class_of(b); });
      begin = end;
    }
  }

  std::vector<Marked> marked_;
  std::vector<CodePoint> codes_;
};

bool is_unstable(Character character) {
  return character.code < kIllFormed && Unstable::get()[static_cast<CodePoint>(character.code)];
}

// The end of the unstable characters that text[begin] begins with.
std::size_t unstable_end(std::string_view text, std::size_t begin) {
  for (std::size_t end = begin; end < text.size();) {
    const Character character = character_at(text, end);
    if (!is_unstable(character)) return end;
    end += character.n_bytes;
  }
  return text.size();
}

// Where the character begins that ends before text[end]; `end` if it is not well-formed or begins
// before `least`.
std::size_t begin_before(std::string_view text, std::size_t end, std::size_t least) {
  if (end == least) return end;
  const Character before = character_before(text.substr(least), end - least);
  return before.code < kIllFormed ? end - before.n_bytes : end;
}

}  // namespace

std::optional<std::string> to_nfc(std::string_view text) {
  std::optional<std::string> out;
  // [0, n_written)         in `out`, if there is one
  // [n_written, n_checked) as it was
  std::size_t n_written = 0, n_checked = 0;
  std::string composed;
  Composer composer;
  for (std::size_t i = 0; i < text.size();) {
    if (static_cast<unsigned char>(text[i]) < kFirstLead) {
      ++i;
      continue;
    }
    const std::size_t end = unstable_end(text, i);
    if (end == i) {
      i += character_at(text, i).n_bytes;
      continue;
    }
    // Unstable characters are composed with the stable one before them.
    const std::size_t begin = begin_before(text, i, n_checked);
    const std::string_view stretch = text.substr(begin, end - begin);
    composed.clear();
    composer.compose(stretch, composed);
    if (composed != stretch) {
      if (!out) out.emplace().reserve(text.size());
      out->append(text.substr(n_written, begin - n_written)).append(composed);
      n_written = end;
    }
    i = n_checked = end;
  }
  if (out) out->append(text.substr(n_written));
  return out;
}

}  // namespace outrider
