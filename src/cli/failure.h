// How a command can end early. Thrown anywhere in cli/; only cli.cpp turns it into an exit status.

#pragma once

#include <string>

#include "base/error.h"

namespace outrider {

// The message with the flag that may help, where there is one.
std::string message_of(const std::exception& error);

enum ExitStatus { kDone = 0, kFailed = 1, kUsage = 2 };

// The command line is wrong. Status 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// Messages are shown without these characters, so that each stays one line and does not change the
// terminal, whatever a name on the command line contains.
inline bool is_control(char c) {
  return static_cast<unsigned char>(c) < ' ' || c == 0x7f;
}

// A signal ended the command: status 128 + signal, nothing printed.
struct Interrupted {
  int signal;
};

// The reader of standard output has closed it. The command ends quietly, status 0.
struct PipeClosed {};

}  // namespace outrider
