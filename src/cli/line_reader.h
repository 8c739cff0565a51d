// Lines from the keyboard with editing and history, or plain lines if standard input is not a
// terminal.

#pragma once

#include <memory>
#include <optional>
#include <string>

namespace outrider {

class LineReader {
 public:
  LineReader();
  ~LineReader();

  struct Line {
    std::string text;          // without its end
    bool interrupted = false;  // by Ctrl-C; text is what had been typed
  };
  // The next line; nothing at the end of input. A prompt is shown on a terminal.
  std::optional<Line> read();

 private:
  struct Editor;
  std::unique_ptr<Editor> editor_;  // null without a terminal
};

}  // namespace outrider
