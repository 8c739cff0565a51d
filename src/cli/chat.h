// Chatting at the keyboard, and how answers are printed.

#pragma once

#include "cli/console.h"
#include "cli/generate.h"

namespace outrider {

// Streams an answer to standard output, accepted draft tokens in colour.
class AnswerPrinter {
 public:
  AnswerPrinter(const Settings& settings, Console& console)
      : palette_(output_palette(settings.color)), console_(console) {}
  ~AnswerPrinter();  // ends the line of an answer that failed
  AnswerPrinter(const AnswerPrinter&) = delete;
  AnswerPrinter& operator=(const AnswerPrinter&) = delete;

  // The returned function refers to this object.
  ShowText show();
  // Ends the line if the answer did not.
  void end_line();

 private:
  Palette palette_;
  Console& console_;
};

// "[48 tokens, 31.5 tokens/s; prompt 12 tokens, 0.31 s...]", one line.
std::string answer_summary(const Completion& answer);

// Reads turns from standard input, with editing and history on a terminal, until its end or /exit.
// Returns the exit status.
int chat(Workbench& bench, const DraftSetting& draft, const Settings& settings, Console& console);

}  // namespace outrider
