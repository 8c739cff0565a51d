// The manual page: man-pages(7)'s sections, in man(7) macros.

#include "cli/commands.h"
#include "cli/console.h"
#include "cli/flags.h"
#include "cli/help.h"
#include "cli/version.h"

namespace outrider {
namespace {

// Text for roff: backslashes, requests and dashes are escaped.
std::string roff(std::string_view text) {
  std::string result;
  for (char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      if ((c == '.' || c == '\'') && (result.empty() || result.back() == '\n')) result += "\\&";
      result += c;
    }
  }
  return result;
}

std::string tagged(std::string_view tag, std::string_view text) {
  return fmt::format(".TP\n.B {}\n{}\n", roff(tag), roff(text));
}

int manual(const Machine&, const Settings&) {
  std::string page =
      fmt::format(".TH OUTRIDER 1 \"\" \"outrider {}\" \"User Commands\"\n", version());
  page += ".SH NAME\noutrider \\- run language models on CPUs, speculatively and exactly\n";
  page += ".SH SYNOPSIS\n";
  for (const Command& command : commands()) {
    page += fmt::format(".B outrider {}\n{}[\\fIFLAGS\\fR]\n.br\n", roff(command.name),
                        command.arguments.empty() ? "" : roff(command.arguments) + " ");
  }
  page += ".B outrider \\-\\-version\n";
  page +=
      ".SH DESCRIPTION\nA language model decodes at the speed at which its weights can be read "
      "from memory: one token per read. Speculation drafts likely continuations cheaply, checks "
      "all of "
      "them in one read and keeps what the model itself would have said. The text is the same, bit "
      "for bit, with and without it, also when sampling;\n.B outrider prove\nchecks this.\n";
  page += ".SH COMMANDS\n";
  for (const Command& command : commands()) {
    page += tagged(fmt::format("{}{}{}", command.name, command.arguments.empty() ? "" : " ",
                               command.arguments),
                   command.description);
  }
  page += ".SH FLAGS\n";
  const FlagGroup* shown = nullptr;
  for (const Flag& flag : flags()) {
    if (!shown || *shown != flag.group) page += fmt::format(".SS {}\n", title(flag.group));
    shown = &flag.group;
    std::string help = flag.help;
    if (!flag.choices.empty()) help += fmt::format(" ({})", fmt::join(flag.choices, ", "));
    if (!flag.standard.empty()) help += fmt::format(" [{}]", flag.standard);
    if (flag.set != FlagSet::every) {
      std::vector<std::string_view> takers;
      for (const Command& command : commands()) {
        if (command.takes(flag)) takers.push_back(command.name);
      }
      help += fmt::format(". Taken by: {}.", fmt::join(takers, ", "));
    }
    page += tagged(spelling(flag), help);
  }
  page += ".SH ENVIRONMENT\n";
  page += tagged("OUTRIDER_CACHE",
                 "where models and profiles are kept, instead of XDG_CACHE_HOME/outrider or "
                 "~/.cache/outrider");
  page += tagged("OUTRIDER_ISA",
                 "the instruction set to compute with: reference, avx2, avxvnni, avx512 or amx, "
                 "instead of the machine's best");
  page +=
      tagged("OUTRIDER_PREFETCH",
             "how passes of one or two tokens read weights where the instruction set has a "
             "choice: processor (left to its prefetching), near or far (requested by the kernels "
             "a little or far ahead), instead of what is measured to be fastest");
  page += tagged("NO_COLOR", "if set and not empty: no colour, unless --color always");
  page += ".SH EXIT STATUS\n";
  page += tagged("0", "success; also when the reader of standard output has closed it");
  page += tagged("1", "an error, or a difference found by prove");
  page += tagged("2", "a mistake in the command line");
  page += tagged("130, 143", "ended by SIGINT, by SIGTERM");
  page += ".SH EXAMPLES\n";
  page += tagged("outrider run", "chat with the default model");
  page += tagged("outrider run -m qwen2.5-coder:1.5b -md qwen2.5-coder:0.5b -p 'Sort a list in C.'",
                 "answer, with a smaller model as drafter");
  page += tagged("outrider run -f task.txt --draft lookup+prediction=old.py",
                 "answer with a changed version of a file");
  page +=
      tagged("outrider prove --draft off --draft lookup -f letter.txt", "compare speed and tokens");
  write_output(page);
  return kDone;
}

}  // namespace

Command manual_command() {
  return {.name = "manual",
          .summary = "print the manual page as roff",
          .description =
              "Prints the manual page, which has the same content as this help. To read it: "
              "outrider manual | man -l -",
          .run = manual};
}

}  // namespace outrider
