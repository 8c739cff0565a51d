// The results of bench generate, as JSON, CSV and tables.

#pragma once

#include <map>
#include <string>
#include <vector>

#include "cli/generate.h"
#include "cli/json.h"

namespace outrider {

// One prompt answered with every --draft, in one round.
struct MeasuredPrompt {
  std::string id, group;
  std::size_t prompt;  // its index in the file
  int round;           // from 1
  struct Answer {
    AnswerTotals totals;  // of all turns
    bool identical;       // to the first --draft's tokens
  };
  std::vector<Answer> answers;  // [drafts]
};

struct GenerateMeasurements {
  std::string model;
  int n_threads = 1;
  std::uint64_t seed = 0;
  std::vector<std::string> drafts;  // --draft, as given; the first is what others compare with
  bool keeps_learned = false;       // drafters kept what earlier answers had taught them
  bool reads_profiles = false;      // each setting began with a stored profile, if there was one
  std::vector<MeasuredPrompt> prompts;
  // Milliseconds of passes with logits for all rows, choices included, for some numbers of rows up
  // to the row limit; 1 is among them.
  std::map<int, std::vector<double>> passes;  // [rows]
};

bool all_identical(const GenerateMeasurements& measured);

Json generate_json(const GenerateMeasurements& measured);
// A line per answer, with a header; fields are quoted where RFC 4180 asks for it.
std::string generate_csv(const GenerateMeasurements& measured);
// all: also the speedup that theory expects of drafts like these (Leviathan et al. 2023).
std::string generate_text(const GenerateMeasurements& measured, bool all, int width);

}  // namespace outrider
