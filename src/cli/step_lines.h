// What a step did: for people, with drafts as a tree (--steps), and as JSON for tools that tune
// drafters (--trace), a line per step:
//
//   {"draft": "auto", "step": 12, "rows": 9, "draft_ms": 0.01, "forward_ms": 31.2,
//    "sequences": [{"sequence": 0, "position": 57, "text_rows": 1, "proposed": 16,
//                   "nodes": [{"token": 5, "parent": 0, "accepted": true, "by": {"lookup": 0.5}}],
//                   "choices": [5, 9], "taken": [5, 9], "finish": "stop"}]}
//
//   draft      the --draft whose step it was
//   position   tokens of the sequence in the cache before the step
//   text_rows  rows of tokens that are part of the sequence: of the prompt, or the root
//   proposed   drafted nodes before the plan
//   nodes      those checked, numbered from 1 in order; parent 0 is the root. "by": the confidence
//              of each drafter that proposed the node
//   choices    the target's after the root and after each node; none during prefill
//   taken      tokens by which the sequence grew
//   finish     "stop", "length", "error" or null

#pragma once

#include <string>
#include <string_view>

#include "engine/step_report.h"
#include "text/tokenizer.h"

namespace outrider {

// `draft`: the --draft whose step it was. A line per sequence, and if it had drafts a line for the
// root and each node, below its parent and marked with + if accepted: who drafted it with which
// confidence, and the target's choice after it (under rejection sampling not what decides); then
// the token that ended the step, a correction or a bonus token. No line end after the last.
std::string step_text(std::string_view draft, const StepReport& report, const Tokenizer& tokenizer);

// One JSON document without a line end.
std::string step_json(std::string_view draft, const StepReport& report);

}  // namespace outrider
