// Runs another program to its end, without a shell.

#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace outrider {

// All but argv may be empty. The callbacks run on the calling thread, on_tick and interrupted some
// five times per second.
struct Subprocess {
  std::vector<std::string> argv;                                   // argv[0] is looked up in PATH
  std::vector<std::pair<std::string, std::string>> environment{};  // added to ours
  std::function<void(std::span<const std::byte>)> on_output{};     // pieces of its standard output
  std::function<void(std::span<const std::byte>)> on_error{};      // pieces of its standard error
  std::function<void()> on_tick{};
  std::function<bool()> interrupted{};  // not asked again once it was true
  // What the program has for its own end between SIGTERM and SIGKILL. Output is still read.
  std::chrono::milliseconds grace = std::chrono::seconds(2);
};

struct SubprocessResult {
  int status = 0;      // its exit status, or 128 + the signal that ended it
  std::string errors;  // the last 16 KiB of its standard error
  bool was_interrupted = false;
  std::string start_problem;  // why it could not be started; empty if it could
};

// Runs the program with an empty standard input, in a process group of its own, and waits for its
// end. If `interrupted` returns true or a callback throws, the whole group is ended: SIGTERM, and
// SIGKILL if the program is still there after its grace. What the callback threw is thrown again.
// If the calling thread dies, the program gets SIGTERM. Throws Error if the system has no more
// processes or pipes.
SubprocessResult run_subprocess(const Subprocess& subprocess);

// The line of a program's errors that is shown: the last that begins with ERROR, as pip's do, else
// the last that is not empty.
std::string complaint(std::string_view errors);

}  // namespace outrider
