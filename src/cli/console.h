// Where output goes: results to standard output, everything else to standard error, progress only
// where a person sees it.

#pragma once

#include <chrono>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>

#include "base/progress.h"
#include "cli/failure.h"
#include "cli/settings.h"

namespace outrider {

// Writes all of it to standard output, unbuffered. Throws PipeClosed if the reader has closed the
// pipe, Error for other failures.
void write_output(std::string_view text);

// Writes to standard error. Failures are ignored: there is nowhere to report them.
void write_error(std::string_view text);

bool output_is_terminal();
bool error_is_terminal();
// Columns of the terminal there, at least 20; 80 if it is none.
int output_width();
int error_width();

// "2026-03-01 17:05", where the user is.
std::string local_time(std::chrono::sys_seconds time);

// The text in lines of at most `width` columns (longer words get a line of their own). Lines after
// the first are indented.
std::string wrap(std::string_view text, int width, int indent = 0);

// Escape sequences for accepted draft tokens and headings; empty strings without colour.
struct Palette {
  std::string_view accepted, dim, reset;
};
Palette output_palette(ColorMode mode);

// Appends a line to the file of --log-file, with the time in front. Throws Error if it cannot be
// written.
void append_log(const std::string& path, std::string_view line);

// Notes on standard error while a command runs, copied to the file of --log-file. On a terminal, a
// progress line stays below them and disappears at the end. Notes may come from any thread. They
// throw Error if the log file cannot be written.
class Console {
 public:
  explicit Console(const Settings& settings);  // throws Error if the log file cannot be written
  ~Console();                                  // removes the progress line
  Console(const Console&) = delete;
  Console& operator=(const Console&) = delete;

  void note(std::string_view line);    // unless --quiet
  void detail(std::string_view line);  // with --verbose
  // Shows progress: a label such as "loading", and a fraction from 0 to 1.
  void advance(std::string_view label, double fraction, std::string_view more = "");
  void clear();  // removes the progress line

  // Text of an answer went to standard output; not empty.
  void text_written(std::string_view text);
  // The answer's last line has no end yet.
  bool mid_line() const;

  // For pulling: the progress line, notes, and Ctrl-C.
  Progress progress();

 private:
  void show(std::string_view line);
  void erase();  // with mutex_

  const bool quiet_, verbose_, draws_;
  const std::optional<std::string> log_file_;
  mutable std::mutex mutex_;  // of what follows
  bool mid_line_ = false;
  std::string drawn_;  // the progress line on the screen
};

// A table in columns. On a terminal too narrow for it, each row becomes a block of lines "header
// cell". Cells contain no line ends.
class Table {
 public:
  // alignment: one letter per column, l or r.
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
