// Chatting at the keyboard, and how answers are printed.

#pragma once

#include "cli/console.h"
#include "cli/generate.h"

namespace outrider {

// Streams an answer to standard output, accepted draft tokens in colour.
class AnswerPrinter {
 public:
  explicit AnswerPrinter(const Settings& settings) : palette_(output_palette(settings.color)) {}
  ~AnswerPrinter();  // an answer that failed leaves no colour behind
  AnswerPrinter(const AnswerPrinter&) = delete;
  AnswerPrinter& operator=(const AnswerPrinter&) = delete;

  // The returned function refers to this object.
  ShowText show();
  // Ends the colour, and the line if the answer did not end it.
  void end_line();

 private:
  Palette palette_;
  bool colored_ = false, mid_line_ = false;
};

// "48 tokens, 31.5 a second, ...", one line.
std::string answer_summary(const Completion& answer);

// Reads turns from standard input, with editing and history on a terminal, until its end or /exit.
// Returns the exit status.
int chat(Workbench& bench, const DraftSetting& draft, const Settings& settings, Console& console);

}  // namespace outrider
