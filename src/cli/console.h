// Where output goes: results to standard output, everything else to standard error, progress only
// where a person sees it.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/progress.h"
#include "cli/failure.h"
#include "cli/settings.h"

namespace outrider {

// Writes all of it to standard output, at once. Throws PipeClosed if nobody reads, Error if it
// cannot be written.
void write_output(std::string_view text);

bool output_is_terminal();
bool error_is_terminal();
// Columns of the terminal there, at least 20; 80 if it is none.
int output_width();
int error_width();

// The text in lines of at most `width` columns (longer words stand alone), each after the first
// indented.
std::string wrap(std::string_view text, int width, int indent = 0);

// How a person sees accepted draft tokens and headings. Empty strings where there is no colour.
struct Palette {
  std::string_view accepted, dim, reset;
};
Palette output_palette(ColorMode mode);

// Appends a line to the file of --log-file, with the time in front. Throws Error if it cannot be
// written.
void append_log(const std::string& path, std::string_view line);

// Lines on standard error while a command runs, and all of them in the file of --log-file. A
// progress line stands below them on a terminal and vanishes at the end.
class Console {
 public:
  explicit Console(const Settings& settings);  // throws Error if the log file cannot be opened
  ~Console();                                  // removes the progress line
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void note(std::string_view line);    // unless --quiet
  void detail(std::string_view line);  // with --verbose
  // `fraction` of 0 to 1; `label` such as "loading".
  void advance(std::string_view label, double fraction, std::string_view more = "");
  void clear();  // takes the progress line away

  // For pulling: the progress line, notes, and Ctrl-C.
  Progress progress();

 private:
  void show(std::string_view line);

  bool quiet_, verbose_, draws_;
  std::string drawn_;  // the progress line on the screen
  std::optional<std::string> log_file_;
};

// Lines of equal cells under a header: columns where the terminal is wide enough, else a block of
// "header  cell" lines per line. Cells hold no line ends.
class Table {
 public:
  // alignment: a letter a column, l or r.
  Table(std::vector<std::string> header, std::string alignment)
      : header_(std::move(header)), alignment_(std::move(alignment)) {}
  void add(std::vector<std::string> cells) { lines_.push_back(std::move(cells)); }
  std::string text(int width) const;

 private:
  std::vector<std::string> header_;
  std::string alignment_;
  std::vector<std::vector<std::string>> lines_;
};

}  // namespace outrider
