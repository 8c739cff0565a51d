// The draft tree: guesses at how a text goes on, checked in one pass. SpecInfer, Miao et al. 2023,
// arXiv:2305.09781.

#pragma once

#include <optional>
#include <span>
#include <vector>

#include "base/token.h"

namespace outrider {

struct Proposal {
  int drafter = 0;       // index in the engine's list
  float confidence = 0;  // the drafter's estimate that this child is taken given that its parent
                         // is, 0 to 1
};

struct DraftNode {
  Token token;
  int parent;                       // an earlier node; -1 for node 0
  int depth;                        // edges from node 0
  std::vector<Proposal> proposals;  // empty for node 0; order of proposing
};

// Node 0 is the last token of the text, not yet in the cache. Equal children of a node share one
// node; each proposal is kept. A value.
class DraftTree {
 public:
  explicit DraftTree(Token last);

  // The child of `parent` with this token, made if it is new. A drafter proposes a child at most
  // once: a second proposal of the same drafter for the same node is dropped.
  int propose(int parent, Token token, Proposal proposal);

  const DraftNode& operator[](int node) const { return nodes_[node]; }
  int size() const { return static_cast<int>(nodes_.size()); }
  std::span<const int> children(int node) const { return children_[node]; }  // in order of making
  std::optional<int> child(int node, Token token) const;
  // Tokens of the path to `node`, node 0's not among them.
  std::vector<Token> path(int node) const;

  // Keeps the nodes marked true, [size()] (node 0 always; parents of kept nodes must be kept);
  // order is preserved.
  void keep(const std::vector<bool>& kept);

  // Every child stands after its parent and in its list, one deeper; siblings differ; every node
  // but node 0 has proposals, of different drafters.
  void check_integrity() const;

 private:
  std::vector<DraftNode> nodes_;
  std::vector<std::vector<int>> children_;
};

}  // namespace outrider
