#include "training/source_texts.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <fstream>
#include <optional>
#include <set>
#include <system_error>
#include <unordered_set>

#include "base/utf8.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kFileBytesMax = 2 << 20;
constexpr std::size_t kSourceBytesMax = 128 << 20;
constexpr int kDepthMax = 12;
constexpr std::size_t kParagraphBytesMax = 4000;
constexpr std::size_t kFunctionBytesMax = 2000;
constexpr std::size_t kFunctionLinesMax = 60;

bool is_space(char c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}
bool is_letter(char c) {
  return is_upper(c) || (c >= 'a' && c <= 'z');
}
bool is_name(char c) {
  return is_letter(c) || is_digit(c) || c == '_';
}

std::string lower_case(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (is_upper(c)) c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// With one blank for each run of white space, none at the ends.
std::string on_one_line(std::string_view text) {
  std::string line;
  for (const char c : trimmed(text)) {
    if (!is_space(c)) {
      line += c;
    } else if (line.back() != ' ') {
      line += ' ';
    }
  }
  return line;
}

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  std::string replaced;
  std::size_t begin = 0;
  for (std::size_t at; (at = text.find(what, begin)) != text.npos; begin = at + what.size()) {
    replaced.append(text, begin, at - begin);
    replaced += with;
  }
  if (begin > 0) text = replaced.append(text, begin);
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    lines.push_back(line);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

std::size_t indentation(std::string_view line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

// Where a string or comment that begins at text[at] ends; `at` if none begins there.
std::size_t after_string_or_comment(std::string_view text, std::size_t at) {
  if (text[at] == '#') return std::min(text.find('\n', at), text.size());
  if (text[at] != '"' && text[at] != '\'') return at;
  const std::string_view three = text.substr(at, 3);
  const bool is_long = three == "\"\"\"" || three == "'''";
  const std::string_view quote = text.substr(at, is_long ? 3 : 1);
  for (at += quote.size(); at < text.size(); ++at) {
    if (text[at] == '\\') {
      ++at;
    } else if (text.substr(at, quote.size()) == quote) {
      return at + quote.size();
    } else if (!is_long && text[at] == '\n') {
      return at;
    }
  }
  return text.size();
}

// The end of the signature that begins at text[at] with "def": after its colon.
std::optional<std::size_t> signature_end(std::string_view text, std::size_t at) {
  int depth = 0;
  const std::size_t limit = std::min(text.size(), at + kFunctionBytesMax);
  while (at < limit) {
    const std::size_t after = after_string_or_comment(text, at);
    if (after != at) {
      at = after;
      continue;
    }
    const char c = text[at++];
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (c == ':' && depth == 0) return at;
    if (c == '\n' && depth == 0) return {};
  }
  return {};
}

// What a Python file says of itself, between its quotes; empty if it does not.
std::string_view module_docstring(std::string_view source) {
  std::size_t at = 0;
  while (at < source.size() && (is_space(source[at]) || source[at] == '#')) {
    at = is_space(source[at]) ? at + 1 : after_string_or_comment(source, at);
  }
  if (at < source.size() && source[at] == 'r') ++at;
  if (!source.substr(std::min(at, source.size())).starts_with("\"\"\"")) return {};
  const std::size_t end = after_string_or_comment(source, at);
  return end < at + 6 ? std::string_view() : source.substr(at + 3, end - at - 6);
}

// Takes up to n blanks off each line but the first, and white space off their ends.
std::string unindented(std::string_view text, std::size_t n) {
  std::string out;
  bool first = true;
  for (std::string_view line : lines_of(text)) {
    if (!first) {
      out += '\n';
      line.remove_prefix(std::min(n, indentation(line)));
    }
    first = false;
    while (!line.empty() && is_space(line.back())) line.remove_suffix(1);
    out += line;
  }
  return out;
}

// A text of the folder's size at most, no matter who wrote it; nothing if it cannot be used.
std::optional<std::string> file_text(const fs::path& path) {
  std::error_code error;
  const std::uintmax_t size = fs::file_size(path, error);
  if (error || size > kFileBytesMax) return {};
  std::ifstream file(path, std::ios::binary);
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read(text.data(), static_cast<std::streamsize>(size));
  if (!file || text.find('\0') != text.npos || !is_well_formed(text)) return {};
  return text;
}

// Calls read(path) for the regular files below folder, in the order of their names.
template <typename Wanted, typename Read>
void walk(const fs::path& folder, int depth, std::set<fs::path>& seen, const Wanted& wanted,
          const Read& read) {
  std::error_code error;
  const fs::path own = fs::canonical(folder, error);
  if (error || depth > kDepthMax || !seen.insert(own).second) return;
  std::vector<fs::path> entries;
  // An iterator that meets an error becomes the end.
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    entries.push_back(at->path());
  }
  std::sort(entries.begin(), entries.end());
  for (const fs::path& entry : entries) {
    const fs::file_status status = fs::status(entry, error);
    if (error || !wanted(entry.filename().string(), fs::is_directory(status))) continue;
    if (fs::is_directory(status)) {
      walk(entry, depth + 1, seen, wanted, read);
    } else if (fs::is_regular_file(status)) {
      const fs::path file = fs::canonical(entry, error);
      if (!error && seen.insert(file).second) read(file);
    }
  }
}

bool is_wanted_python(const std::string& name, bool is_folder) {
  static constexpr std::string_view kFolders[] = {"site-packages", "dist-packages", "test",
                                                  "tests",         "idle_test",     "__pycache__",
                                                  "lib2to3",       "pydoc_data",    "encodings"};
  if (is_folder)
    return std::find(std::begin(kFolders), std::end(kFolders), name) == std::end(kFolders);
  return name.ends_with(".py");
}

bool is_wanted_document(const std::string& name, bool is_folder) {
  const std::string lower = lower_case(name);
  if (is_folder) return lower != "examples" && lower != "_static" && lower != "_sources";
  for (const char* dull : {"change", "news", "copyright", "copying", "license", "licence", "notice",
                           "authors", "thanks", "todo", "genindex", "search."}) {
    if (lower.find(dull) != lower.npos) return false;
  }
  return lower.ends_with(".html") || lower.ends_with(".htm") || lower.ends_with(".txt") ||
         lower.ends_with(".md") || (lower.starts_with("readme") && !lower.ends_with(".gz"));
}

std::string without_number(std::string heading) {
  for (const char* sign : {"\u00B6", "\uF0C1", "\u00A7"}) replace_all(heading, sign, "");  // links
  replace_all(heading, "\u00A0", " ");
  replace_all(heading, "`", "");
  heading = on_one_line(heading);
  while (heading.ends_with('#') || heading.ends_with(' ')) heading.pop_back();
  for (const char* word : {"Chapter ", "Appendix ", "Section "}) {
    if (heading.starts_with(word)) heading.erase(0, std::string_view(word).size());
  }
  // "3.2.1. ", "A.1 ", "4) "
  std::size_t n = 0;
  if (heading.size() > 1 && is_upper(heading[0]) && heading[1] == '.') n = 1;
  while (n < heading.size() && (is_digit(heading[n]) || heading[n] == '.' || heading[n] == ')'))
    ++n;
  if (n > 0 && n < heading.size() && heading[n] == ' ') heading.erase(0, n + 1);
  return heading;
}

// The words that English uses most.
bool is_frequent_word(const std::string& word) {
  static const std::unordered_set<std::string> kWords = {
      "a",     "all",  "also", "an",   "and",   "any",   "are",   "as",   "at",     "be",
      "been",  "but",  "by",   "can",  "do",    "for",   "from",  "has",  "have",   "how",
      "if",    "in",   "into", "is",   "it",    "its",   "may",   "more", "most",   "no",
      "not",   "of",   "on",   "one",  "only",  "or",    "other", "our",  "should", "so",
      "some",  "such", "than", "that", "the",   "their", "them",  "then", "there",  "these",
      "they",  "this", "to",   "use",  "used",  "was",   "we",    "were", "what",   "when",
      "which", "who",  "will", "with", "would", "you",   "your"};
  return kWords.contains(word);
}

bool is_prose(std::string_view text) {
  if (text.size() > kParagraphBytesMax || !is_upper(text[0])) return false;
  std::string_view end = text;
  if (end.ends_with("\u201D")) end.remove_suffix(3);
  while (!end.empty() && (end.back() == ')' || end.back() == '"')) end.remove_suffix(1);
  if (!end.ends_with('.') && !end.ends_with('!') && !end.ends_with('?')) return false;
  if (end.ends_with("following.") || end.ends_with("below.")) return false;  // a listing came

  std::size_t n = 0, n_frequent = 0, n_letters = 0, n_signs = 0, n_beyond = 0;
  std::string word;
  for (std::size_t at = 0; at <= text.size(); ++at) {
    const char c = at < text.size() ? text[at] : ' ';
    if (is_letter(c)) {
      ++n_letters;
      word += c;
    } else if (static_cast<unsigned char>(c) >= 0x80) {
      ++n_beyond;
      word += c;
    } else {
      n_signs += !is_space(c) && !is_digit(c) &&
                 std::string_view(".,;:'\"()-").find(c) == std::string_view::npos;
      if (!word.empty()) {
        ++n;
        n_frequent += is_frequent_word(lower_case(word));
      }
      word.clear();
    }
  }
  if (n_words(text) < 12 || n_frequent * 4 < n) return false;
  if (n_letters * 100 < text.size() * 72 || n_signs * 25 > text.size()) return false;
  if (n_beyond * 15 > text.size()) return false;

  const std::string lower = lower_case(text);
  for (const char* dull : {"copyright", "licen", "warrant", "all rights reserved", "\u00A9", "http",
                           "www.", "@", "...", "merchantab", "liabilit", " <<", "table of contents",
                           "this page", "navigation", "complete list of", "]["}) {
    if (lower.find(dull) != lower.npos) return false;
  }
  return true;
}

// Collects what is said of a page in order.
class Paragraphs {
 public:
  void set_heading(std::string_view text) {
    heading_ = without_number(std::string(text));
    // What is no heading, or too long to be asked for.
    if (heading_.size() > 90 || heading_.size() < 4 || !is_letter(heading_[0])) heading_.clear();
    goes_on_ = false;
  }
  void add(std::string_view text) {
    if (text.size() > 4 * kParagraphBytesMax) return interrupt();  // with blanks and markup
    std::string line(text);
    replace_all(line, "\u00A0", " ");
    replace_all(line, "\u200B", "");
    line = on_one_line(line);
    if (line.empty()) return;
    const bool follows = goes_on_;
    goes_on_ = is_prose(line);
    if (goes_on_) paragraphs_.push_back({heading_, std::move(line), follows});
  }
  // What is left out stands between: what comes does not go on from what was.
  void interrupt() { goes_on_ = false; }

  std::vector<Paragraph> take() { return std::move(paragraphs_); }

 private:
  std::string heading_;
  bool goes_on_ = false;
  std::vector<Paragraph> paragraphs_;
};

// The character that an entity means, which begins at text[at] with '&'; its end in `at`.
std::string entity(std::string_view text, std::size_t& at) {
  const std::size_t length = text.substr(at, 11).find(';');
  if (length == text.npos) return std::string(1, text[at++]);
  const std::size_t end = at + length;
  const std::string_view name = text.substr(at + 1, end - at - 1);
  std::string character;
  if (name.starts_with('#')) {
    const bool hex = name.size() > 1 && (name[1] == 'x' || name[1] == 'X');
    std::uint32_t code = 0;
    for (const char c : name.substr(hex ? 2 : 1)) {
      const char low = c >= 'A' && c <= 'F' ? static_cast<char>(c - 'A' + 'a') : c;
      const bool is_hex = hex && low >= 'a' && low <= 'f';
      if (!is_digit(low) && !is_hex) return std::string(1, text[at++]);
      code =
          code * (hex ? 16 : 10) + static_cast<std::uint32_t>(is_hex ? low - 'a' + 10 : low - '0');
    }
    const bool is_surrogate = code >= 0xD800 && code <= 0xDFFF;
    if (code < 0x20 || code >= kIllFormed || is_surrogate) code = ' ';
    append_utf8(character, code);
  } else {
    struct Named {
      std::string_view name, character;
    };
    static constexpr Named kNamed[] = {
        {"amp", "&"},         {"lt", "<"},         {"gt", ">"},         {"quot", "\""},
        {"apos", "'"},        {"nbsp", " "},       {"ndash", "\u2013"}, {"mdash", "\u2014"},
        {"lsquo", "\u2018"},  {"rsquo", "\u2019"}, {"ldquo", "\u201C"}, {"rdquo", "\u201D"},
        {"hellip", "\u2026"}, {"copy", "\u00A9"},  {"times", "\u00D7"}, {"para", "\u00B6"}};
    for (const Named& named : kNamed) {
      if (named.name == name) character = named.character;
    }
    if (character.empty()) return std::string(1, text[at++]);
  }
  at = end + 1;
  return character;
}

// Without emphasis, escapes and the targets of links, as Markdown and reStructuredText write them.
std::string without_markup(std::string text) {
  replace_all(text, "**", "");
  replace_all(text, "``", "`");
  replace_all(text, "\\_", "_");
  replace_all(text, "\\*", "*");
  std::string out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const std::size_t middle = text[at] == '[' ? text.find(']', at) : text.npos;
    if (middle == text.npos || middle + 1 >= text.size()) {
      out += text[at];
      continue;
    }
    const char opens = text[middle + 1];
    const std::size_t end =
        opens == '(' || opens == '[' ? text.find(opens == '(' ? ')' : ']', middle + 2) : text.npos;
    if (end == text.npos) {
      out += text[at];
      continue;
    }
    out.append(text, at + 1, middle - at - 1);
    at = end;
  }
  return out;
}

template <std::size_t n>
bool is_one_of(std::string_view name, const std::array<std::string_view, n>& names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::size_t n_words(std::string_view text) {
  std::size_t n = 0;
  bool in_word = false;
  for (const char c : text) {
    n += !in_word && !is_space(c);
    in_word = !is_space(c);
  }
  return n;
}

std::vector<std::string> sentences(std::string_view paragraph) {
  std::vector<std::string> found;
  std::size_t begin = 0;
  for (std::size_t at = 0; at < paragraph.size(); ++at) {
    if (paragraph[at] != '.' && paragraph[at] != '!' && paragraph[at] != '?') continue;
    std::size_t end = at + 1;
    while (end < paragraph.size() && (paragraph[end] == ')' || paragraph[end] == '"')) ++end;
    // A stop, a blank and a capital; not after "e.g." or an initial.
    const bool last = end >= paragraph.size();
    if (!last &&
        (paragraph[end] != ' ' || end + 1 >= paragraph.size() || !is_upper(paragraph[end + 1]))) {
      continue;
    }
    const std::string_view before = paragraph.substr(begin, at - begin);
    if (!last && (before.size() < 3 || before.ends_with("e.g") || before.ends_with("i.e") ||
                  before.ends_with("etc") || before[before.size() - 2] == ' ')) {
      continue;
    }
    found.emplace_back(trimmed(paragraph.substr(begin, end - begin)));
    begin = end;
  }
  return found;
}

std::vector<PythonFunction> python_functions(std::string_view source) {
  std::vector<PythonFunction> functions;
  bool at_line_begin = true;
  for (std::size_t at = 0; at < source.size();) {
    if (at_line_begin) {
      at_line_begin = false;
      const std::string_view rest = source.substr(at);
      const std::size_t indent = indentation(rest);
      std::size_t def = at + indent;
      const bool is_async = source.substr(def).starts_with("async def ");
      if (is_async || source.substr(def).starts_with("def ")) {
        const std::size_t name_begin = def + (is_async ? 10 : 4);
        std::size_t name_end = name_begin;
        while (name_end < source.size() && is_name(source[name_end])) ++name_end;
        const std::string name(source.substr(name_begin, name_end - name_begin));
        const std::optional<std::size_t> end = signature_end(source, def);
        at = end.value_or(name_end);
        if (!end) continue;

        std::size_t quote = *end;
        while (quote < source.size() && (is_space(source[quote]) || source[quote] == '#')) {
          quote = is_space(source[quote]) ? quote + 1 : after_string_or_comment(source, quote);
        }
        if (quote < source.size() && (source[quote] == 'r' || source[quote] == 'R')) ++quote;
        const std::string_view three = source.substr(std::min(quote, source.size()), 3);
        if (three != "\"\"\"" && three != "'''") continue;
        const std::size_t doc_end = after_string_or_comment(source, quote);
        at = doc_end;
        if (doc_end < quote + 6 || doc_end - def > kFunctionBytesMax) continue;
        if (name.empty() || name.starts_with("test") || name.ends_with("__")) continue;

        PythonFunction function;
        function.name = name;
        function.signature = unindented(source.substr(def, *end - def), indent);
        function.docstring =
            trimmed(unindented(source.substr(quote + 3, doc_end - quote - 6), indent));
        if (function.docstring.find('\t') != std::string::npos) continue;
        if (n_words(function.docstring) < 4) continue;
        if (lines_of(function.docstring).size() + lines_of(function.signature).size() >
            kFunctionLinesMax) {
          continue;
        }
        functions.push_back(std::move(function));
        continue;
      }
    }
    const std::size_t after = after_string_or_comment(source, at);
    if (after != at) {
      at = after;
      continue;
    }
    at_line_begin = source[at++] == '\n';
  }
  return functions;
}

std::vector<Paragraph> html_paragraphs(std::string_view page) {
  static constexpr std::array<std::string_view, 12> kLeftOut = {
      "script", "style", "head",   "nav",      "pre", "svg",
      "title",  "form",  "select", "textarea", "sup", "footer"};
  static constexpr std::array<std::string_view, 22> kBlocks = {
      "p",      "div",     "li",   "ul",      "ol",     "dl",      "dt",   "dd",
      "table",  "tr",      "td",   "th",      "hr",     "section", "body", "blockquote",
      "header", "article", "main", "caption", "figure", "tbody"};
  static constexpr std::array<std::string_view, 6> kHeadings = {"h1", "h2", "h3", "h4", "h5", "h6"};

  Paragraphs paragraphs;
  std::string text;
  std::set<std::string> unclosed;
  const auto end_block = [&] {
    paragraphs.add(text);
    text.clear();
  };
  for (std::size_t at = 0; at < page.size();) {
    if (page[at] == '&') {
      text += entity(page, at);
      continue;
    }
    if (page[at] != '<') {
      text += page[at++];
      continue;
    }
    if (page.substr(at).starts_with("<!--")) {
      at = page.find("-->", at);
      if (at == page.npos) break;
      at += 3;
      continue;
    }
    const std::size_t end = page.find('>', at);
    if (end == page.npos) break;
    std::string_view tag = page.substr(at + 1, end - at - 1);
    at = end + 1;
    const bool closes = tag.starts_with('/');
    const bool is_empty = tag.ends_with('/');
    if (closes) tag.remove_prefix(1);
    std::size_t n = 0;
    while (n < tag.size() && (is_letter(tag[n]) || is_digit(tag[n]))) ++n;
    const std::string name = lower_case(tag.substr(0, n));

    // References to footnotes and links to a heading itself are no text.
    const bool is_mark =
        name == "a" && (tag.find("footnote") != tag.npos || tag.find("headerlink") != tag.npos);
    if (!closes && !is_empty && (is_mark || is_one_of(name, kLeftOut))) {
      const std::string close = "</" + name;
      // What was not found once is not looked for again: the page may be long.
      std::size_t close_at = unclosed.contains(name) ? page.npos : page.find(close, at);
      if (close_at == page.npos) {
        unclosed.insert(name);
        close_at = page.find("</", at);
      }
      if (close_at == page.npos) break;
      at = std::min(page.find('>', close_at), page.size() - 1) + 1;
      if (!is_mark && name != "sup") {
        end_block();
        paragraphs.interrupt();
      }
    } else if (is_one_of(name, kHeadings)) {
      if (closes) {
        paragraphs.set_heading(text);
        text.clear();
      } else {
        end_block();
      }
    } else if (is_one_of(name, kBlocks)) {
      end_block();
    } else if (name == "br") {
      text += ' ';
    }
  }
  end_block();
  return paragraphs.take();
}

std::vector<Paragraph> text_paragraphs(std::string_view text) {
  Paragraphs paragraphs;
  std::string block;
  std::vector<std::string_view> block_lines;
  bool in_fence = false;
  const auto end_block = [&] {
    // A paragraph's lines are full but for the last, and begin at one column.
    bool is_even = true;
    for (std::size_t i = 0; i < block_lines.size(); ++i) {
      is_even &= indentation(block_lines[i]) == indentation(block_lines[0]);
      if (i + 1 < block_lines.size()) is_even &= block_lines[i].size() >= 40;
    }
    is_even &= block.size() <= 2 * kParagraphBytesMax;
    if (!block_lines.empty() && is_even && indentation(block_lines[0]) < 4) {
      paragraphs.add(without_markup(block));
    } else if (!block_lines.empty()) {
      paragraphs.interrupt();
    }
    block.clear();
    block_lines.clear();
  };
  for (const std::string_view line : lines_of(text)) {
    const std::string_view bare = trimmed(line);
    if (bare.starts_with("```") || bare.starts_with("~~~")) {
      end_block();
      in_fence = !in_fence;
      paragraphs.interrupt();
      continue;
    }
    if (in_fence) continue;
    const bool is_rule = bare.size() >= 3 &&
                         std::string_view("=-~*#").find(bare[0]) != std::string_view::npos &&
                         bare.find_first_not_of(bare[0]) == bare.npos;
    if (is_rule) {
      if (block_lines.size() == 1) {  // underlines a heading
        paragraphs.set_heading(block_lines[0]);
        block.clear();
        block_lines.clear();
      } else {
        end_block();
      }
    } else if (bare.starts_with('#') && bare.find_first_not_of('#') != bare.npos) {
      end_block();
      const std::string_view heading = bare.substr(bare.find_first_not_of('#'));
      if (heading.starts_with(' ')) paragraphs.set_heading(heading);
    } else if (bare.empty()) {
      end_block();
    } else {
      block_lines.push_back(line);
      block += bare;
      block += ' ';
    }
  }
  end_block();
  return paragraphs.take();
}

TextSources TextSources::of_this_machine() {
  TextSources sources;
  std::error_code error;
  for (fs::directory_iterator at("/usr/lib", error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().filename().string().starts_with("python3")) sources.python.push_back(at->path());
  }
  std::sort(sources.python.begin(), sources.python.end());
  sources.documentation.emplace_back("/usr/share/doc");
  return sources;
}

SourceTexts read_sources(const TextSources& sources) {
  SourceTexts texts;
  std::set<fs::path> seen;
  std::unordered_set<std::string> kept;

  std::size_t n_bytes = 0;
  for (const fs::path& folder : sources.python) {
    walk(folder, 0, seen, is_wanted_python, [&](const fs::path& path) {
      if (n_bytes > kSourceBytesMax) return;
      const std::optional<std::string> text = file_text(path);
      if (!text) return;
      n_bytes += text->size();
      const std::size_t n_before = texts.functions.size();
      for (PythonFunction& function : python_functions(*text)) {
        if (kept.insert(function.signature + function.docstring).second) {
          texts.functions.push_back(std::move(function));
        }
      }
      texts.n_python_files += texts.functions.size() > n_before;
      for (Paragraph& paragraph : text_paragraphs(module_docstring(*text))) {
        if (!kept.insert(paragraph.text).second) continue;
        paragraph.heading.clear();  // what looks like one is often a comment
        paragraph.follows = false;
        texts.paragraphs.push_back(std::move(paragraph));
      }
    });
  }

  n_bytes = 0;
  for (const fs::path& folder : sources.documentation) {
    walk(folder, 0, seen, is_wanted_document, [&](const fs::path& path) {
      if (n_bytes > kSourceBytesMax) return;
      const std::optional<std::string> text = file_text(path);
      if (!text) return;
      n_bytes += text->size();
      const std::size_t n_before = texts.paragraphs.size();
      const bool is_html = lower_case(path.extension().string()).starts_with(".htm");
      bool left_out = false;
      for (Paragraph& paragraph : is_html ? html_paragraphs(*text) : text_paragraphs(*text)) {
        if (!kept.insert(paragraph.text).second) {
          left_out = true;
          continue;
        }
        paragraph.follows &= !left_out;
        left_out = false;
        texts.paragraphs.push_back(std::move(paragraph));
      }
      texts.n_documents += texts.paragraphs.size() > n_before;
    });
  }
  return texts;
}

}  // namespace outrider
