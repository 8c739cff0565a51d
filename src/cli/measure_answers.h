// Prompts answered with several --draft in turn, as bench generate and train measure them.

#pragma once

#include <span>

#include "cli/generate.h"
#include "cli/generate_report.h"
#include "cli/text_input.h"

namespace outrider {

// Answers every prompt with every draft, which take turns step by step, settings.repetitions times.
// The bench has as many sequences as there are drafts. Throws Error, and Interrupted.
GenerateMeasurements measure_answers(Workbench& bench, const Settings& settings,
                                     std::span<const DraftSetting> drafts,
                                     std::span<const BenchPrompt> prompts, Console& console);

}  // namespace outrider
