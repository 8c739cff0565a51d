#include "speculation/tree.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace outrider {
namespace {

bool was_drawn(const DraftNode& node) {
  return std::ranges::any_of(node.proposals,
                             [](const Proposal& p) { return p.drawn_from != nullptr; });
}

bool has(const std::vector<Proposal>& proposals, int drafter) {
  return std::ranges::find(proposals, drafter, &Proposal::drafter) != proposals.end();
}

}  // namespace

DraftTree::DraftTree(Token last) : nodes_{{last, -1, 0, {}}}, children_(1), made_(1) {}

int DraftTree::propose(int parent, Token token, Proposal proposal) {
  CHECK(parent >= 0 && parent < size());
  if (const auto existing = child(parent, token)) {
    auto& proposals = nodes_[*existing].proposals;
    if (!has(proposals, proposal.drafter)) {
      made_[parent].push_back({*existing, static_cast<int>(proposals.size())});
      proposals.push_back(std::move(proposal));
    }
    return *existing;
  }
  const int node = size();
  nodes_.push_back({token, parent, nodes_[parent].depth + 1, {std::move(proposal)}});
  children_[parent].push_back(node);
  children_.emplace_back();
  made_[parent].push_back({node, 0});
  made_.emplace_back();
  return node;
}

std::vector<DraftTree::Offer> DraftTree::offers(int node) const {
  std::vector<Offer> offers;
  for (const auto& [child, proposal] : made_[node])
    offers.push_back({child, nodes_[child].proposals[proposal]});
  return offers;
}

bool DraftTree::has_draws() const {
  return std::ranges::any_of(nodes_, [](const DraftNode& node) { return was_drawn(node); });
}

std::optional<int> DraftTree::child(int node, Token token) const {
  for (int child : children_[node])
    if (nodes_[child].token == token) return child;
  return std::nullopt;
}

int DraftTree::depth() const {
  return std::ranges::max(nodes_, {}, &DraftNode::depth).depth;
}

int DraftTree::depth(int drafter) const {
  int depth = 0;
  for (const DraftNode& node : nodes_)
    if (has(node.proposals, drafter)) depth = std::max(depth, node.depth);
  return depth;
}

bool DraftTree::guesses(int drafter) const {
  return std::ranges::any_of(children_[0],
                             [&](int child) { return has(nodes_[child].proposals, drafter); });
}

bool DraftTree::guesses(int drafter, Token token) const {
  const std::optional<int> found = child(0, token);
  return found && has(nodes_[*found].proposals, drafter);
}

std::vector<Token> DraftTree::path(int node) const {
  std::vector<Token> tokens;
  for (; node != 0; node = nodes_[node].parent) tokens.push_back(nodes_[node].token);
  std::ranges::reverse(tokens);
  return tokens;
}

void DraftTree::keep(const std::vector<bool>& kept) {
  CHECK(static_cast<int>(kept.size()) == size());
  std::vector<DraftNode> nodes{std::move(nodes_[0])};
  std::vector<std::vector<int>> children(1);
  std::vector<int> moved(kept.size(), -1);
  moved[0] = 0;
  for (int node = 1; node < static_cast<int>(kept.size()); ++node) {
    DraftNode& old = nodes_[node];
    if (!kept[node]) {
      CHECK(!was_drawn(old));
      continue;
    }
    CHECK(moved[old.parent] >= 0);
    moved[node] = static_cast<int>(nodes.size());
    old.parent = moved[old.parent];
    children[old.parent].push_back(moved[node]);
    children.emplace_back();
    nodes.push_back(std::move(old));
  }
  std::vector<std::vector<Made>> made(nodes.size());
  for (std::size_t node = 0; node < kept.size(); ++node)
    for (const auto& [child, proposal] : made_[node])
      if (kept[child]) made[moved[node]].push_back({moved[child], proposal});
  nodes_ = std::move(nodes);
  children_ = std::move(children);
  made_ = std::move(made);
}

void DraftTree::check_integrity() const {
  CHECK(!nodes_.empty() && nodes_.size() == children_.size());
  CHECK(nodes_[0].parent == -1 && nodes_[0].depth == 0 && nodes_[0].proposals.empty());
  std::size_t n_children = 0;
  for (int node = 0; node < size(); ++node) {
    for (int child : children_[node]) {
      ++n_children;
      CHECK(child > node && child < size());
      CHECK(nodes_[child].parent == node && nodes_[child].depth == nodes_[node].depth + 1);
      CHECK(this->child(node, nodes_[child].token) == child);
      const auto& proposals = nodes_[child].proposals;
      CHECK(!proposals.empty());
      for (const Proposal& proposal : proposals) {
        CHECK(proposal.confidence >= 0 && proposal.confidence <= 1);
        CHECK(std::ranges::count(proposals, proposal.drafter, &Proposal::drafter) == 1);
        CHECK(!proposal.drawn_from ||
              std::ranges::binary_search(*proposal.drawn_from, nodes_[child].token, {},
                                         &TokenProbability::token));
      }
    }
    std::size_t n_proposals = 0;
    for (int child : children_[node]) n_proposals += nodes_[child].proposals.size();
    CHECK(made_[node].size() == n_proposals);
    for (const Offer& offer : offers(node)) CHECK(nodes_[offer.child].parent == node);
  }
  CHECK(n_children + 1 == nodes_.size());
}

}  // namespace outrider
