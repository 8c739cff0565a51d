#include "cli/line_reader.h"

#include <histedit.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <utility>

#include "cli/failure.h"
#include "cli/signals.h"

namespace outrider {

struct LineReader::Editor {
  EditLine* line = nullptr;
  History* history = nullptr;
  std::string interrupted_text;  // what had been typed when a signal came

  static int read_character(EditLine* line, wchar_t* character);
};

namespace {

char prompt_text[] = "> ";
char* prompt(EditLine*) {
  return prompt_text;
}

std::optional<LineReader::Line> read_plain() {
  LineReader::Line line;
  for (bool any = false;; any = true) {
    char byte;
    const ssize_t n = read_unless_signalled(STDIN_FILENO, &byte, 1);
    if (n == 0) return any ? std::optional(line) : std::nullopt;
    if (n < 0) {
      if (errno != EINTR) throw Error("standard input: {}", std::strerror(errno));
      stop_if_interrupted();
      continue;
    }
    if (byte == '\n') return line;
    line.text += byte;
  }
}

}  // namespace

// One character of the keyboard. libedit's own reader tries again after a signal; this one gives
// up, so that Ctrl-C reaches the conversation.
int LineReader::Editor::read_character(EditLine* line, wchar_t* character) {
  std::mbstate_t state = {};
  for (;;) {
    char byte;
    const ssize_t n = read_unless_signalled(STDIN_FILENO, &byte, 1);
    if (n == 0) return 0;
    if (n < 0) {
      if (errno == EINTR && !pending_signal()) continue;
      Editor* editor = nullptr;
      el_get(line, EL_CLIENTDATA, &editor);
      // libedit forgets the line when reading fails.
      const LineInfo* info = el_line(line);
      editor->interrupted_text.assign(info->buffer, info->lastchar);
      return -1;
    }
    const std::size_t used = std::mbrtowc(character, &byte, 1, &state);
    if (used == static_cast<std::size_t>(-2)) continue;  // more bytes follow
    if (used == static_cast<std::size_t>(-1)) {
      state = {};
      continue;  // not of this locale's encoding
    }
    return 1;
  }
}

LineReader::LineReader() {
  if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO)) return;
  // The encoding of the keyboard; the format of numbers does not change.
  std::setlocale(LC_CTYPE, "");
  editor_ = std::make_unique<Editor>();
  // The prompt is not part of the answers, so it goes to standard error.
  editor_->line = el_init("outrider", stdin, stderr, stderr);
  editor_->history = history_init();
  if (!editor_->line || !editor_->history) throw Error("the terminal cannot be used for editing");
  HistEvent event;
  history(editor_->history, &event, H_SETSIZE, 1000);
  history(editor_->history, &event, H_SETUNIQUE, 1);
  el_set(editor_->line, EL_PROMPT, prompt);
  el_set(editor_->line, EL_EDITOR, "emacs");
  el_set(editor_->line, EL_HIST, history, editor_->history);
  el_set(editor_->line, EL_SIGNAL, 0);
  el_set(editor_->line, EL_CLIENTDATA, editor_.get());
  el_set(editor_->line, EL_GETCFN, Editor::read_character);
  el_source(editor_->line, nullptr);  // ~/.editrc
}

LineReader::~LineReader() {
  if (!editor_) return;
  if (editor_->line) el_end(editor_->line);
  if (editor_->history) history_end(editor_->history);
}

std::optional<LineReader::Line> LineReader::read() {
  if (!editor_) return read_plain();
  int count = 0;
  const char* text = el_gets(editor_->line, &count);
  Line line;
  if (pending_signal()) {
    line.text = std::exchange(editor_->interrupted_text, {});
    line.interrupted = true;
    std::fputs("^C\n", stderr);
    el_reset(editor_->line);  // the next line begins empty
    return line;
  }
  if (!text || count <= 0) {
    std::fputc('\n', stderr);  // Ctrl-D leaves the cursor behind the prompt
    return {};
  }
  line.text.assign(text, static_cast<std::size_t>(count));
  while (!line.text.empty() && (line.text.back() == '\n' || line.text.back() == '\r'))
    line.text.pop_back();
  if (line.text.find_first_not_of(" \t") != std::string::npos) {
    HistEvent event;
    history(editor_->history, &event, H_ENTER, line.text.c_str());
  }
  return line;
}

}  // namespace outrider
