#include "speculation/verify.h"

#include "base/error.h"

namespace outrider {

Verdict verify_coupled(const DraftTree& tree, std::span<const std::optional<Token>> choices) {
  CHECK(static_cast<int>(choices.size()) == tree.size());
  Verdict verdict;
  int node = 0;
  while (choices[node]) {
    const std::optional<int> child = tree.child(node, *choices[node]);
    if (!child) break;
    verdict.accepted.push_back(node = *child);
  }
  verdict.next = choices[node];
  return verdict;
}

}  // namespace outrider
