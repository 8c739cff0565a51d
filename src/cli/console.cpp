#include "cli/console.h"

#include <fmt/chrono.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>

#include "base/error.h"
#include "base/utf8.h"
#include "cli/signals.h"

namespace outrider {
namespace {

void check_log(const std::ofstream& file, const std::string& path) {
  if (!file) throw Error("--log-file {}: cannot be written: {}", path, std::strerror(errno));
}

std::ofstream open_log(const std::string& path) {
  std::ofstream file(path, std::ios::app);
  check_log(file, path);
  return file;
}

// Columns of a UTF-8 text whose characters are all one column wide.
int columns(std::string_view text) {
  return static_cast<int>(n_characters(text));
}

int width_of(int file) {
  winsize size = {};
  if (ioctl(file, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return 80;
  return std::max<int>(size.ws_col, 20);
}

}  // namespace

void write_output(std::string_view text) {
  while (!text.empty()) {
    const ssize_t n = ::write(STDOUT_FILENO, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EPIPE) {
      throw PipeClosed{};
    } else if (errno != EINTR) {
      throw Error("cannot write to standard output: {}", std::strerror(errno));
    }
  }
}

void write_error(std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), stderr);
}

bool output_is_terminal() {
  return isatty(STDOUT_FILENO);
}
bool error_is_terminal() {
  return isatty(STDERR_FILENO);
}

int output_width() {
  return width_of(STDOUT_FILENO);
}
int error_width() {
  return width_of(STDERR_FILENO);
}

std::string local_time(std::chrono::sys_seconds time) {
  return fmt::format("{:%F %R}", fmt::localtime(std::chrono::system_clock::to_time_t(time)));
}

std::string wrap(std::string_view text, int width, int indent) {
  std::string result;
  int column = indent;
  bool first = true;
  while (!text.empty()) {
    const auto end = std::min(text.find(' '), text.size());
    const std::string_view word = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (word.empty()) continue;
    if (!first && column + 1 + columns(word) > width) {
      result += '\n';
      result.append(static_cast<std::size_t>(indent), ' ');
      column = indent;
    } else if (!first) {
      result += ' ';
      ++column;
    }
    result += word;
    column += columns(word);
    first = false;
  }
  return result;
}

Palette output_palette(ColorMode mode) {
  const char* no_color = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  const bool automatic = output_is_terminal() && !(no_color && *no_color) &&
                         !(terminal && std::string_view(terminal) == "dumb");
  if (mode == ColorMode::never || (mode == ColorMode::automatic && !automatic)) return {};
  return {"\x1b[32m", "\x1b[2m", "\x1b[0m"};
}

Console::Console(const Settings& settings)
    : quiet_(settings.quiet),
      verbose_(settings.verbose && !settings.quiet),
      draws_(!settings.quiet && error_is_terminal()),
      log_file_(settings.log_file) {
  if (log_file_) open_log(*log_file_);
}

Console::~Console() {
  clear();
}

void Console::clear() {
  const std::lock_guard lock(mutex_);
  erase();
}

void Console::text_written(std::string_view text) {
  const std::lock_guard lock(mutex_);
  mid_line_ = text.back() != '\n';
}

bool Console::mid_line() const {
  const std::lock_guard lock(mutex_);
  return mid_line_;
}

void Console::erase() {
  if (!drawn_.empty()) write_error("\r\x1b[K");
  drawn_.clear();
}

void append_log(const std::string& path, std::string_view line) {
  std::ofstream file = open_log(path);
  const std::time_t now = std::time(nullptr);
  std::tm utc;
  gmtime_r(&now, &utc);
  char time[32];
  std::strftime(time, sizeof time, "%FT%TZ", &utc);
  file << time << ' ' << line << '\n' << std::flush;
  check_log(file, path);
}

void Console::note(std::string_view line) {
  show(line);
  if (log_file_) append_log(*log_file_, line);
}

void Console::detail(std::string_view line) {
  if (verbose_) show(line);
  if (log_file_) append_log(*log_file_, line);
}

void Console::show(std::string_view line) {
  if (quiet_) return;
  const std::lock_guard lock(mutex_);
  erase();
  // On one terminal a note does not begin behind half a line of an answer.
  if (mid_line_ && output_is_terminal() && error_is_terminal()) {
    write_error("\n");
    mid_line_ = false;
  }
  write_error(fmt::format("{}\n", line));
}

void Console::advance(std::string_view label, double fraction, std::string_view more) {
  if (!draws_) return;
  fraction = std::clamp(fraction, 0.0, 1.0);
  const int width = error_width() - 1;
  std::string line = fmt::format("{} {:3.0f}%", label, 100 * fraction);
  if (!more.empty() && columns(line) + 2 + columns(more) <= width)
    line += fmt::format("  {}", more);
  constexpr int kBar = 20;
  if (columns(line) + kBar + 3 <= width) {
    const int full = static_cast<int>(fraction * kBar);
    line += fmt::format(" [{:#>{}}{: >{}}]", "", full, "", kBar - full);
  }
  // A label that does not fit would wrap and could not be taken back.
  if (columns(line) > width) line = fmt::format("{:3.0f}%", 100 * fraction);
  const std::lock_guard lock(mutex_);
  if (line == drawn_) return;
  write_error(fmt::format("\r\x1b[K{}", line));
  drawn_ = std::move(line);
}

Progress Console::progress() {
  Progress progress;
  progress.advance = [this](std::string_view activity, std::uint64_t done, std::uint64_t total) {
    advance(activity, total ? static_cast<double>(done) / static_cast<double>(total) : 0,
            fmt::format("{} of {}", human_bytes(done), human_bytes(total)));
  };
  progress.note = [this](std::string_view line) { note(line); };
  progress.detail = [this](std::string_view line) { detail(line); };
  progress.interrupted = [] { return pending_signal() != 0; };
  return progress;
}

std::string Table::text(int width) const {
  std::vector<int> widths;
  int total = 0;
  for (std::size_t c = 0; c < header_.size(); ++c) {
    int widest = columns(header_[c]);
    for (const auto& line : lines_) widest = std::max(widest, columns(line[c]));
    widths.push_back(widest);
    total += widest + (c ? 2 : 0);
  }
  const auto pad = [](int n) { return std::string(static_cast<std::size_t>(std::max(n, 0)), ' '); };
  std::string result;
  if (total <= width) {
    const auto add = [&](const std::vector<std::string>& cells) {
      std::string line;
      for (std::size_t c = 0; c < cells.size(); ++c) {
        const std::string space = pad(widths[c] - columns(cells[c]));
        if (c) line += "  ";
        line += alignment_[c] == 'r' ? space + cells[c] : cells[c] + space;
      }
      line.erase(line.find_last_not_of(' ') + 1);
      result += line + "\n";
    };
    add(header_);
    for (const auto& line : lines_) add(line);
    return result;
  }
  int widest = 0;
  for (std::size_t c = 1; c < header_.size(); ++c) widest = std::max(widest, columns(header_[c]));
  for (const auto& line : lines_) {
    result += line[0] + "\n";
    for (std::size_t c = 1; c < line.size(); ++c) {
      result += fmt::format("  {}{}  {}\n", header_[c], pad(widest - columns(header_[c])), line[c]);
    }
  }
  return result;
}

}  // namespace outrider
