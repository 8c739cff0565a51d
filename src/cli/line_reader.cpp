#include "cli/line_reader.h"

#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <utility>

#include "base/plain_text.h"
#include "base/utf8.h"
#include "cli/failure.h"
#include "cli/signals.h"

namespace outrider {

struct LineReader::Editor {
  EditLine* line = nullptr;
  HistoryW* history = nullptr;
  std::string bytes;             // of the keyboard, from an unfinished letter on
  std::string interrupted_text;  // what had been typed when a signal came

  static int read_character(EditLine* line, wchar_t* character);
  bool take_character(wchar_t* character, bool at_end);
};

namespace {

char prompt_text[] = "> ";
char* prompt(EditLine*) {
  return prompt_text;
}

// libedit draws letters by the locale, which containers and foreign machines often lack. Without
// any of UTF-8 it draws their numbers.
void draw_utf8() {
  for (const char* name : {"", "C.UTF-8", "en_US.UTF-8"})
    if (std::setlocale(LC_CTYPE, name) && nl_langinfo(CODESET) == std::string_view("UTF-8")) return;
  std::setlocale(LC_CTYPE, "C");
}

std::string utf8_of(std::wstring_view characters) {
  std::string text;
  for (const wchar_t c : characters) append_utf8(text, static_cast<std::uint32_t>(c));
  return text;
}

}  // namespace

// False if there is none, or only the beginning of one.
bool LineReader::Editor::take_character(wchar_t* character, bool at_end) {
  if (bytes.empty()) return false;
  if (utf8_step(bytes).unfinished && !at_end) return false;
  // A byte that is no UTF-8 becomes a number beyond all characters.
  const Character next = character_at(bytes, 0);
  *character = static_cast<wchar_t>(next.code);
  bytes.erase(0, next.n_bytes);
  return true;
}

// One character of the keyboard. libedit's own reader takes the locale's, and tries again after a
// signal; this one gives up, so that Ctrl-C reaches the conversation.
int LineReader::Editor::read_character(EditLine* line, wchar_t* character) {
  Editor* editor = nullptr;
  el_get(line, EL_CLIENTDATA, &editor);
  while (!editor->take_character(character, false)) {
    char byte;
    const ssize_t n = read_unless_signalled(STDIN_FILENO, &byte, 1);
    if (n == 0) return editor->take_character(character, true);
    if (n < 0) {
      if (errno == EINTR && !pending_signal()) continue;
      // libedit forgets the line when reading fails.
      const LineInfoW* info = el_wline(line);
      editor->interrupted_text = utf8_of({info->buffer, info->lastchar});
      editor->bytes.clear();
      return -1;
    }
    editor->bytes += byte;
  }
  return 1;
}

LineReader::LineReader() {
  if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) return;
  draw_utf8();
  editor_ = std::make_unique<Editor>();
  // The prompt is not part of the answers, so it goes to standard error.
  editor_->line = el_init("outrider", stdin, stderr, stderr);
  editor_->history = history_winit();
  if (!editor_->line || !editor_->history) throw Error("the terminal cannot be used for editing");
  HistEventW event;
  history_w(editor_->history, &event, H_SETSIZE, 1000);
  history_w(editor_->history, &event, H_SETUNIQUE, 1);
  el_set(editor_->line, EL_PROMPT, prompt);
  el_set(editor_->line, EL_EDITOR, "emacs");
  // libedit takes these for commands, as from terminals that mark Alt by the eighth bit, unless the
  // locale says that they are letters.
  for (wchar_t letter = 0x80; letter <= 0xFF; ++letter) {
    const wchar_t key[] = {letter, 0};
    el_wset(editor_->line, EL_BIND, key, L"ed-insert", nullptr);
  }
  // A tab is text: pasted code keeps its indentation.
  el_wset(editor_->line, EL_BIND, L"\t", L"ed-insert", nullptr);
  el_wset(editor_->line, EL_HIST, history_w, editor_->history);
  el_set(editor_->line, EL_SIGNAL, 0);
  el_set(editor_->line, EL_CLIENTDATA, editor_.get());
  el_set(editor_->line, EL_GETCFN, Editor::read_character);
  el_source(editor_->line, nullptr);  // ~/.editrc
}

LineReader::~LineReader() {
  if (!editor_) return;
  if (editor_->line) el_end(editor_->line);
  if (editor_->history) history_wend(editor_->history);
}

// Of a line with its end, without it.
std::string LineReader::plain(std::string_view line, std::string_view name) {
  std::string text = plain_text(line, name, !std::exchange(has_begun_, true));
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

std::optional<LineReader::Line> LineReader::read_plain() {
  std::string line;
  while (!line.ends_with('\n')) {
    char byte;
    const ssize_t n = read_unless_signalled(STDIN_FILENO, &byte, 1);
    if (n == 0 && line.empty()) return std::nullopt;
    if (n == 0) break;
    if (n > 0) {
      line += byte;
    } else {
      if (errno != EINTR) throw Error("standard input: {}", std::strerror(errno));
      stop_if_interrupted();
    }
  }
  return Line{.text = plain(line, "standard input")};
}

std::optional<LineReader::Line> LineReader::read() {
  if (!editor_) return read_plain();
  int count = 0;
  const wchar_t* typed = el_wgets(editor_->line, &count);
  Line line;
  if (pending_signal()) {
    line.text = std::exchange(editor_->interrupted_text, {});
    line.interrupted = true;
    std::fputs("^C\n", stderr);
    el_reset(editor_->line);  // the next line begins empty
    return line;
  }
  if (!typed || count <= 0) {
    std::fputc('\n', stderr);  // Ctrl-D leaves the cursor behind the prompt
    return {};
  }
  std::wstring_view kept(typed, static_cast<std::size_t>(count));
  while (!kept.empty() && (kept.back() == '\n' || kept.back() == '\r')) kept.remove_suffix(1);
  if (kept.find_first_not_of(L" \t") != kept.npos) {
    HistEventW event;
    history_w(editor_->history, &event, H_ENTER, std::wstring(kept).c_str());
  }
  line.text = plain(utf8_of(kept), "the terminal");
  return line;
}

}  // namespace outrider
