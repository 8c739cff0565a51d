#include "cli/commands.h"

#include <climits>

namespace outrider {

std::span<const Command> commands() {
  static const Command list[] = {
      {kRun, "run", "", 0, 0, "answer a prompt, or chat",
       "Answers the prompt of -p or -f, using the model's chat template; with --raw, continues the "
       "prompt instead. Without a prompt it starts a chat: /help lists its commands, Ctrl-C stops "
       "an "
       "answer, Ctrl-D ends the chat.",
       run_command},
      {kProve, "prove", "", 0, 0, "show that speculation changes speed and nothing else",
       "Answers the same prompts once for each --draft (off and auto if none is given), compares "
       "the "
       "token sequences and measures their speed. Exit status 1 if any sequence differs.",
       prove_command},
      {kBenchBandwidth, "bench bandwidth", "", 0, 0, "measure what this machine can do at best",
       "Measures the machine's limits, with which the cost of a pass is compared: reading memory "
       "in "
       "several patterns, and arithmetic on registers for each instruction set, with all threads "
       "and with one.",
       bench_bandwidth_command},
      {kBenchCurve, "bench curve", "", 0, 0, "measure the cost of a pass over 1 to 32 rows",
       "Measures T(n), the time of one pass over n rows (tokens) with logits for each, and a pass "
       "over 512 rows with logits for the last only. The machine's limits, reading memory and int8 "
       "arithmetic, are measured in the same rounds.",
       bench_curve_command},
      {kBenchGenerate, "bench generate", "", 0, 0, "measure generation over a file of prompts",
       "Answers every prompt of --prompts with every --draft in turn, and prints medians and "
       "ratios "
       "per group of prompts.",
       bench_generate_command},
      {kPull, "pull", "NAME…", 1, INT_MAX, "download models of the catalogue",
       "Downloads models into the cache, verifies their checksums and shows their licences. A "
       "download that was interrupted continues where it stopped.",
       pull_command},
      {kList, "list", "", 0, 0, "list downloaded models",
       "Lists the models in the cache; with --all, also those that can be downloaded.",
       list_command},
      {kRm, "rm", "NAME…", 1, INT_MAX, "delete models from the cache",
       "Deletes models from the cache, also parts that interrupted downloads left.", rm_command},
      {kInspect, "inspect", "MODEL", 1, 1, "show what a model file contains and needs",
       "Shows metadata, tensors and the memory that the model needs to run. A file that can be "
       "read "
       "but not run is shown too, with the reason (--json: problem), and exit status 0.",
       inspect_command},
      {kTokenize, "tokenize", "[TEXT…]", 0, INT_MAX, "turn text into tokens",
       "Prints the tokens of the text, or of a conversation (--chat) as the model's template "
       "writes "
       "it. Reads standard input if there is no text or if it is -.",
       tokenize_command},
      {kCompletions, "completions", "SHELL", 1, 1, "print completions for bash, zsh or fish",
       "Prints a script that completes commands and flags in a shell: bash, zsh or fish. For bash: "
       "source <(outrider completions bash)",
       completions_command},
      {kManual, "manual", "", 0, 0, "print the manual page as roff",
       "Prints the manual page, which has the same content as this help. To read it: "
       "outrider manual | man -l -",
       manual_command},
  };
  return list;
}

}  // namespace outrider
