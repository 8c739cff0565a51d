// Lines from the keyboard with editing and history, or plain lines if standard input is not a
// terminal.

#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace outrider {

// Lines as plain_text() has them. Letters are UTF-8 whatever the locale is, and bytes that are none
// are kept as they are.
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

  std::optional<Line> read_plain();
  std::string plain(std::string_view line, std::string_view name);

  std::unique_ptr<Editor> editor_;  // null without a terminal
  bool has_begun_ = false;          // a line has been read
};

}  // namespace outrider
