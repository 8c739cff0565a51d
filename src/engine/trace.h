// What a step did, as one line of JSON, for --trace and for people who tune drafters:
//   {"step": 12, "rows": 9, "draft_ms": 0.01, "forward_ms": 31.2, "sequences": [
//     {"sequence": 0, "position": 57,        cached tokens before the step
//      "text_rows": 1,                       rows of text computed: node 0, or a part of the prompt
//      "proposed": 16,                       drafted nodes before the plan
//      "nodes": [{"token": 5, "parent": 0, "accepted": true, "by": {"lookup": 0.5}}, ...],
//      "taken": [5, 9],                      tokens by which the text grew
//      "finish": "stop"}]}                   or null
// Nodes are those checked, numbered from 1 in order; "by" gives the confidence of each drafter.

#pragma once

#include <memory>
#include <span>
#include <string>

#include "engine/turn.h"

namespace outrider {

struct StepFigures {
  long step;
  int rows;
  double draft_ms, forward_ms;
};

std::string trace_line(std::span<const Turn> turns, const StepFigures& figures,
                       std::span<const std::unique_ptr<Drafter>> drafters);

}  // namespace outrider
