#include "cli/measure_answers.h"

namespace outrider {
namespace {

int bench_generate(const Machine& machine, const Settings& settings) {
  if (!settings.prompts_file) throw UsageError("bench generate: needs --prompts FILE");
  if (settings.json && settings.csv) throw UsageError("--csv: takes no --json beside it");
  const std::vector<DraftSetting> drafts = parse_draft_settings(settings, {"off", "auto"});
  check_draft_flags(settings, drafts);
  const std::vector<BenchPrompt> prompts =
      parse_prompts(read_text(*settings.prompts_file), *settings.prompts_file);

  Console console(settings);
  Workbench bench(
      machine, settings, drafts, console,
      {.n_sequences = static_cast<int>(drafts.size()), .reads_profiles = settings.stored_profile});
  bench.note_sampling();
  const GenerateMeasurements measured = measure_answers(bench, settings, drafts, prompts, console);

  if (settings.json) {
    write_json(generate_json(measured));
  } else if (settings.csv) {
    write_output(generate_csv(measured));
  } else {
    write_output(generate_text(measured, settings.all, output_width()));
  }
  return all_identical(measured) ? kDone : kFailed;
}

}  // namespace

Command bench_generate_command() {
  return {
      .name = "bench generate",
      .summary = "measure generation over a file of prompts",
      .description =
          "Answers every prompt of --prompts with every --draft, which take turns step by step, "
          "and prints medians per group of prompts: tokens per second, how many times that is the "
          "first --draft's (speed), and the same of the whole time from prompt to last token "
          "(whole), with 95 % intervals by the bootstrap. Drafters forget each answer before the "
          "next.",
      .flag_set = FlagSet::generating,
      .flags = {"--prompts", "--repeat", "--csv", "--all", "--keep-learned", "--stored-profile"},
      .run = bench_generate};
}

}  // namespace outrider
