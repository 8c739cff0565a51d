// One sequence's part in a step, handed from one stage to the next.

#pragma once

#include <vector>

#include "engine/step.h"
#include "speculation/tree.h"
#include "speculation/verify.h"

namespace outrider {

struct Turn {
  Generation* generation;

  // text[first, first + n_text) are computed in this pass; the cache has those before.
  int first;
  int n_text;
  bool generates;  // the last of them is the last of the text: node 0

  int depth_max;      // of drafts: what the context and the token limit leave room for
  DraftTree drafted;  // as proposed; node 0 alone unless it generates
  DraftTree checked;  // as planned

  std::vector<int> text_rows;  // rows of the pass, [n_text]
  std::vector<int> node_rows;  // [checked.size()], node 0's is the last text row; if it generates
  std::vector<std::optional<Token>> choices;  // [checked.size()], if it generates

  std::vector<int> accepted;  // nodes
  std::vector<Token> taken;   // how the text goes on: their tokens, and one more unless it was cut
};

}  // namespace outrider
