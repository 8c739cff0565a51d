// The draft tree: guesses at how a text goes on, checked in one pass. SpecInfer, Miao et al. 2023,
// arXiv:2305.09781.

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/token.h"
#include "numerics/choice.h"

namespace outrider {

// Token ids ascending, each with a probability above 0; together about 1, as rounding leaves it.
using Distribution = std::vector<TokenProbability>;

struct Proposal {
  int drafter = 0;       // index in the engine's list
  float confidence = 0;  // the drafter's estimate of the probability, 0 to 1, that this node is
                         // accepted if its parent is
  // What the token was drawn from, without replacement: of one drafter's proposals for children of
  // a node all have the same. Null: it was chosen, a function of the text before the step.
  std::shared_ptr<const Distribution> drawn_from = {};
};

struct DraftNode {
  Token token;
  int parent;                       // an earlier node; -1 for the root
  int depth;                        // edges from the root
  std::vector<Proposal> proposals;  // in the order made; empty for the root
};

// The root, node 0, is the last token of the text, not yet in the cache. Equal children of a node
// share one node; each proposal is kept, and the order of all proposals at a node. A value.
//
// Verification by rejection is exact only if which proposals a node gets, in which order, and how
// many draws, is fixed before the first draw at that node, and nothing is removed afterwards. It
// may depend on draws elsewhere in the tree, not on draws at or below the node.
class DraftTree {
 public:
  explicit DraftTree(Token last);

  // The child of `parent` with this token, made if it is new. A second proposal of the same drafter
  // for one node is dropped.
  int propose(int parent, Token token, Proposal proposal);

  const DraftNode& operator[](int node) const { return nodes_[node]; }
  int size() const { return static_cast<int>(nodes_.size()); }
  std::span<const int> children(int node) const { return children_[node]; }  // in the order made

  // The proposals for children of a node, in the order made. References hold until the tree
  // changes.
  struct Offer {
    int child;
    const Proposal& proposal;
  };
  std::vector<Offer> offers(int node) const;
  bool has_draws() const;  // whether any proposal was drawn

  std::optional<int> child(int node, Token token) const;
  int depth() const;             // of the deepest node; 0: the root alone
  int depth(int drafter) const;  // of the deepest that this drafter proposed; 0: none
  // Whether the drafter has proposals for the root's children; whether one of them is this token.
  bool guesses(int drafter) const;
  bool guesses(int drafter, Token token) const;
  // Tokens of the path to `node`, the root's not among them.
  std::vector<Token> path(int node) const;

  // Keeps the nodes marked true, [size()] (the root always; parents of kept nodes must be kept, and
  // nodes that were drawn); order is preserved.
  void keep(const std::vector<bool>& kept);

  // A child has a higher number than its parent, is one level deeper and is in its parent's list;
  // siblings have different tokens; every node but the root has proposals, of different drafters;
  // a token that was drawn has a probability in what it was drawn from.
  void check_integrity() const;

 private:
  std::vector<DraftNode> nodes_;
  std::vector<std::vector<int>> children_;
  struct Made {
    int child, proposal;  // an index among the child's
  };
  std::vector<std::vector<Made>> made_;  // [nodes]: proposals for their children, in order
};

}  // namespace outrider
