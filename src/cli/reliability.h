// Whether drafts came true as often as the planner expected, for people and for programs.

#pragma once

#include <string>

#include "cli/json.h"
#include "speculation/calibration.h"

namespace outrider {

// A line, and a table of the ranges that have predictions.
std::string reliability_text(const Reliability& reliability);
// "guesses", "expected_error", and "ranges" with the means of each.
Json reliability_json(const Reliability& reliability);

}  // namespace outrider
