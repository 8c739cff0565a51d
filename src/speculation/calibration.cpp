#include "speculation/calibration.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "base/error.h"

namespace outrider {
namespace {

// Confidences are told apart by these edges: finer towards both ends, where a path's product is
// made or lost.
constexpr std::array kConfidenceEdges = {0.02f, 0.05f, 0.1f, 0.2f, 0.3f,  0.4f,  0.5f,
                                         0.6f,  0.7f,  0.8f, 0.9f, 0.95f, 0.98f, 0.995f};
constexpr std::size_t kConfidences = kConfidenceEdges.size() + 1;

// Depths 1, 2, 3 and 4, 5 to 8, more.
constexpr std::array kDepthEdges = {2, 3, 5, 9};
constexpr std::size_t kDepths = kDepthEdges.size() + 1;

// A prior weighs as much as this many outcomes, and at most kMemory outcomes are remembered.
constexpr double kPriorWeight = 4;
constexpr double kMemory = 64;

template <typename Edges, typename Value>
std::size_t bin(const Edges& edges, Value value) {
  return std::upper_bound(edges.begin(), edges.end(), value) - edges.begin();
}

}  // namespace

void Calibration::Cell::add(bool was_accepted) {
  if (seen >= kMemory) {
    const double fade = (kMemory - 1) / seen;
    accepted *= fade;
    seen *= fade;
  }
  accepted += was_accepted;
  seen += 1;
}

double Calibration::Cell::estimate(double prior) const {
  return (accepted + kPriorWeight * prior) / (seen + kPriorWeight);
}

Calibration::Calibration(int n_drafters) : cells_(n_drafters * kConfidences) {
  for (Cells& cells : cells_) cells.by_depth.resize(kDepths);
}

double Calibration::acceptance(const Proposal& proposal, int depth) const {
  const Cells& seen = cells(proposal);
  return seen.by_depth[bin(kDepthEdges, depth)].estimate(seen.all.estimate(proposal.confidence));
}

double Calibration::acceptance(const DraftNode& node) const {
  double best = 0;
  for (const Proposal& proposal : node.proposals)
    best = std::max(best, acceptance(proposal, node.depth));
  return best;
}

void Calibration::observe(const DraftTree& tree, std::span<const Token> taken) {
  std::optional<int> parent = 0;
  for (Token token : taken) {
    for (int child : tree.children(*parent)) {
      const DraftNode& node = tree[child];
      for (const Proposal& proposal : node.proposals) {
        Cells& seen = cells(proposal);
        seen.all.add(node.token == token);
        seen.by_depth[bin(kDepthEdges, node.depth)].add(node.token == token);
      }
    }
    parent = tree.child(*parent, token);
    if (!parent) return;
  }
}

Calibration::Cells& Calibration::cells(const Proposal& proposal) {
  return const_cast<Cells&>(std::as_const(*this).cells(proposal));
}

const Calibration::Cells& Calibration::cells(const Proposal& proposal) const {
  const std::size_t index =
      proposal.drafter * kConfidences + bin(kConfidenceEdges, proposal.confidence);
  CHECK(proposal.drafter >= 0 && index < cells_.size());
  return cells_[index];
}

}  // namespace outrider
