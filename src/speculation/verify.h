// Coupled verification: the target's choice at a node depends on its path and noise alone, so
// following the choices gives the answer of plain decoding with the same seed, token by token.
// Daliri, Musco, Suresh 2025, arXiv:2408.07978; greedy: Leviathan et al. 2023, arXiv:2211.17192.

#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/token.h"
#include "speculation/tree.h"

namespace outrider {

struct Verdict {
  std::vector<int> accepted;  // nodes of the accepted path in order, the root not among them
  std::optional<Token> next;  // one more token, the target's own; nothing if its row is unusable
};

// choices: [tree.size()], the target's choice at each node (nothing: an unusable row, which matters
// only if reached).
Verdict verify_coupled(const DraftTree& tree, std::span<const std::optional<Token>> choices);

}  // namespace outrider
