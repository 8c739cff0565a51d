// What prompts are built from: Python functions and passages of documentation, found in folders of
// this machine. Nothing here throws for what a file holds: what cannot be used is left out.

#pragma once

#include <cstddef>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace outrider {

struct PythonFunction {
  std::string name;
  std::string signature;  // "def name(...) -> ...:", maybe several lines; nothing before "def"
  std::string docstring;  // without quotes; lines indented as if the function stood at column 0
};

// The functions and methods that have a docstring, with at most 60 lines in all. Names with "_" at
// both ends and tests are left out.
std::vector<PythonFunction> python_functions(std::string_view source);

// One paragraph of English prose.
struct Paragraph {
  std::string heading;   // of the section that it stands in, without its number; may be empty
  std::string text;      // one line
  bool follows = false;  // goes on from the one before it: same file and section, nothing between
};

// Paragraphs of a page in HTML (<p> and list items under <h1> to <h6>; scripts, tables of contents
// and listings are left out), and of plain text or Markdown, where empty lines separate them. Both
// take well-formed UTF-8. Left out is what does not read as English prose: fewer than 12 words, few
// of the most frequent words, no capital at the beginning, no stop at the end, many signs; and what
// licences say.
std::vector<Paragraph> html_paragraphs(std::string_view page);
std::vector<Paragraph> text_paragraphs(std::string_view text);

std::size_t n_words(std::string_view text);  // parts between blanks and line ends
// The sentences of a paragraph, each with its stop.
std::vector<std::string> sentences(std::string_view paragraph);

struct TextSources {
  std::vector<std::filesystem::path> python;         // folders with Python's library
  std::vector<std::filesystem::path> documentation;  // folders with .html, .txt, .md, README

  // Where Debian keeps them: every /usr/lib/python3*, and /usr/share/doc.
  static TextSources of_this_machine();
};

struct SourceTexts {
  std::vector<PythonFunction> functions;
  std::vector<Paragraph>
      paragraphs;  // of documentation, and of what Python's modules say of themselves
  std::size_t n_python_files = 0, n_documents = 0;  // that something was taken from
};

// Reads the folders with everything below them, in the order of the names, whatever order the disk
// has. Links are followed, but no folder or file is read twice, and a function or paragraph is kept
// once. Left out are folders of tests and of packages that are not Python's own, changelogs and
// licences, files of more than 2 MiB, compressed ones, those that cannot be read, and what is no
// UTF-8. Stops after 128 MiB of each kind. A folder that does not exist holds nothing.
SourceTexts read_sources(const TextSources& sources);

}  // namespace outrider
