#include "cli/commands.h"

#include <climits>

namespace outrider {

std::span<const Command> commands() {
  static const Command list[] = {
      {kRun, "run", "", 0, 0, "answer a prompt, or chat",
       "Answers the prompt of -p or -f through the model's chat template, or goes on from it with "
       "--raw. Without a prompt it is a chat: /help lists its commands, Ctrl-C stops an answer, "
       "Ctrl-D ends.",
       run_command},
      {kProve, "prove", "", 0, 0, "show that speculation changes speed and nothing else",
       "Answers the same prompts once for each --draft, off and auto if none is given, compares "
       "the "
       "token sequences and measures. Status 1 if any differs.",
       prove_command},
      {kBenchBandwidth, "bench bandwidth", "", 0, 0, "measure what this machine can do at best",
       "Measures the limits that a pass is held against: reading memory in several patterns, and the "
       "arithmetic of each instruction set on registers, with all threads and with one.",
       bench_bandwidth_command},
      {kBenchCurve, "bench curve", "", 0, 0, "measure the cost of a pass over 1 to 32 rows",
       "Measures T(n), the time of one pass over n rows with logits of all, and a pass of 512 with "
       "logits of the last, beside the machine's own limits, reading and int8 work, in the same "
       "rounds.",
       bench_curve_command},
      {kBenchGenerate, "bench generate", "", 0, 0, "measure generation over a file of prompts",
       "Answers every prompt of --prompts with every --draft, settings alternating prompt by "
       "prompt, and gives medians and ratios per group.",
       bench_generate_command},
      {kPull, "pull", "NAME…", 1, INT_MAX, "fetch models of the catalogue",
       "Fetches models into the cache, checks their sums and shows their licences. A pull that was "
       "cut short goes on where it stopped.",
       pull_command},
      {kList, "list", "", 0, 0, "list models that are here",
       "Lists the models in the cache, with --all those that could be pulled too.", list_command},
      {kRm, "rm", "NAME…", 1, INT_MAX, "delete models from the cache",
       "Deletes models, and what unfinished pulls left of them.", rm_command},
      {kInspect, "inspect", "MODEL", 1, 1, "show what a model file holds and needs",
       "Shows metadata, tensors and the memory that running the model takes. A file that can be "
       "read but not run is shown too, with the reason (--json: problem), and status 0.",
       inspect_command},
      {kTokenize, "tokenize", "[TEXT…]", 0, INT_MAX, "turn text into tokens",
       "Prints the tokens of the text, of standard input if there is none or it is -, or of a "
       "conversation (--chat) as the model's template writes it.",
       tokenize_command},
      {kCompletions, "completions", "SHELL", 1, 1, "print completions for bash, zsh or fish",
       "Prints a script that teaches a shell the commands and flags: bash, zsh or fish. For bash: "
       "source <(outrider completions bash)",
       completions_command},
      {kManual, "manual", "", 0, 0, "print the manual page, in roff",
       "Prints the manual page, made from the same tables as this help: outrider manual | man -l -",
       manual_command},
  };
  return list;
}

}  // namespace outrider
