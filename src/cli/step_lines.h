// What a step did, as lines: for people (--steps), and as JSON for tools that tune drafters
// (--trace):
//   {"draft": "auto",                       the --draft whose step it was
//    "step": 12, "rows": 9, "draft_ms": 0.01, "forward_ms": 31.2, "sequences": [
//     {"sequence": 0, "position": 57,        cached tokens before the step
//      "text_rows": 1,                       rows of text computed: the root, or a part of the
//      prompt "proposed": 16,                       drafted nodes before the plan "nodes":
//      [{"token": 5, "parent": 0, "accepted": true, "by": {"lookup": 0.5}}, ...], "taken": [5, 9],
//      tokens by which the text grew "finish": "stop"}]}                   or "length", "error",
//      null
// Nodes are those checked, numbered from 1 in order; "by" gives the confidence of each drafter.

#pragma once

#include <string>
#include <string_view>

#include "engine/step_report.h"

namespace outrider {

// `draft`: the --draft whose step it was. A line per sequence, without line ends after the last.
std::string step_text(std::string_view draft, const StepReport& report);

// One JSON document without a line end.
std::string step_json(std::string_view draft, const StepReport& report);

}  // namespace outrider
