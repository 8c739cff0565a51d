// How a command ends other than by finishing. Thrown anywhere in cli/, turned into an exit status
// in cli.cpp alone.

#pragma once

#include <string>

#include "base/error.h"

namespace outrider {

// The message with the flag that may help, where there is one.
std::string message_of(const std::exception& error);

enum ExitStatus { kDone = 0, kFailed = 1, kUsage = 2 };

// The command line asks for something that does not exist. Status 2.
class UsageError : public Error {
 public:
  using Error::Error;
};

// Of a message everything is shown but these: it stays one line and leaves the terminal as it is,
// whatever a name on the command line holds.
inline bool is_control(char c) {
  return static_cast<unsigned char>(c) < ' ' || c == 0x7f;
}

// A signal ended the command: status 128 + signal, nothing printed.
struct Interrupted {
  int signal;
};

// Nobody reads standard output any more: a quiet end, status 0.
struct PipeClosed {};

}  // namespace outrider
