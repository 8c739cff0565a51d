// Coupled verification: the model's choice at every node exists before any draft does, so following
// it gives the text of plain decoding with the same seed, token by token. Daliri, Musco, Suresh
// 2025, arXiv:2408.07978; greedy: Leviathan et al. 2023, arXiv:2211.17192.

#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/token.h"
#include "speculation/tree.h"

namespace outrider {

struct Verdict {
  std::vector<int> accepted;  // nodes of the accepted path in order, the root not among them
  std::optional<Token> next;  // one more token, from the model itself; nothing if its row could not
                              // be used
};

// choices: [tree.size()], the model's choice at each node (nothing: an unusable row, which matters
// only if reached).
Verdict verify_coupled(const DraftTree& tree, std::span<const std::optional<Token>> choices);

}  // namespace outrider
