#include "cli/cli.h"

#include <algorithm>
#include <cstdio>
#include <new>

#include "base/error.h"
#include "cli/console.h"
#include "cli/failure.h"
#include "cli/help.h"
#include "cli/parse.h"
#include "cli/signals.h"
#include "cli/version.h"

namespace outrider {
namespace {

int fail(ExitStatus status, std::string_view message) {
  std::string line(message);
  std::replace_if(line.begin(), line.end(), is_control, ' ');
  write_error(fmt::format("outrider: {}\n", line));
  return status;
}

int dispatch(std::vector<std::string> words, const Machine& machine) {
  if (words.empty()) {
    if (!output_is_terminal())
      throw UsageError(
          "a command is missing: outrider run starts a chat, outrider --help lists all commands");
    words = {"--help"};
  }
  if (words[0] == "--version") {
    write_output(version_text(machine));
    return kDone;
  }
  if (words[0] == "help" && words.size() > 1) {  // help X is X --help
    words.erase(words.begin());
    words.push_back("--help");
  }
  if (words[0] == "--help" || words[0] == "-h" || words[0] == "help") {
    write_output(overview_help(output_width()));
    return kDone;
  }
  const Invocation invocation = parse(words);
  if (invocation.settings.help) {
    write_output(command_help(*invocation.command, output_width()));
    return kDone;
  }
  try {
    return invocation.command->run(machine, invocation.settings);
  } catch (const Error& error) {
    if (const auto& log_file = invocation.settings.log_file)
      append_log(*log_file, message_of(error));
    throw;
  }
}

}  // namespace

int run_command_line(std::span<const std::string> arguments, const Machine& machine) {
  open_standard_streams();
  watch_signals();
  try {
    return dispatch({arguments.begin(), arguments.end()}, machine);
  } catch (const UsageError& error) {
    return fail(kUsage, error.what());
  } catch (const Interrupted& interrupted) {
    return 128 + interrupted.signal;
  } catch (const PipeClosed&) {
    return kDone;
  } catch (const std::bad_alloc&) {
    return fail(kFailed, "out of memory");
  } catch (const std::exception& error) {
    // Work that looks for signals itself ends with an error of its own.
    if (pending_signal()) return 128 + pending_signal();
    return fail(kFailed, message_of(error));
  }
}

}  // namespace outrider
