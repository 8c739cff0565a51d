// What a step did, for people who watch it and for tools that tune drafters. A value: nothing in it
// refers to the engine.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/token.h"
#include "sampling/stop.h"
#include "speculation/drafter.h"
#include "speculation/tree.h"

namespace outrider {

struct StepReport {
  struct Node {  // a drafted node that was checked
    Token token;
    int parent;  // its number in this list + 1; 0: the root
    bool accepted;
    std::vector<Proposal> proposals;
  };
  struct Sequence {
    DraftSequence id;
    Token last;      // of the sequence, before the step
    int position;    // tokens of the sequence in the cache before the step
    int n_tokens;    // tokens of the sequence computed: the root, or a part of the prompt
    int n_proposed;  // drafted nodes before the plan
    std::vector<Node> nodes;
    // The target's choice after the last token of the sequence and after each node, [nodes + 1]
    // (nothing: an unusable row). Empty if the sequence generated nothing.
    std::vector<std::optional<Token>> choices;
    std::vector<Token> emitted;
    std::optional<FinishReason> finish_reason;
    std::optional<std::string> error;
  };

  long step;  // of this engine, from 1
  int rows;   // of the pass
  double draft_ms, forward_ms;
  std::vector<std::string> drafters;  // names, by Proposal::drafter
  std::vector<Sequence> sequences;
};

}  // namespace outrider
