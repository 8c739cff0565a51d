#include "speculation/calibration.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/error.h"

namespace outrider {
namespace {

// Bounds between ranges of confidences. The ranges are narrower near 0 and 1, where a small error
// changes the product along a path most.
constexpr std::array kConfidenceBounds = {0.02f, 0.05f, 0.1f, 0.2f, 0.3f,  0.4f,  0.5f,
                                          0.6f,  0.7f,  0.8f, 0.9f, 0.95f, 0.98f, 0.995f};
constexpr std::size_t kConfidenceRanges = kConfidenceBounds.size() + 1;

// Depths 1, 2, 3 to 4, 5 to 8, and more.
constexpr std::array kDepthBounds = {2, 3, 5, 9};
constexpr std::size_t kDepthRanges = kDepthBounds.size() + 1;

// A prior weighs as much as this many outcomes, and at most kMemory outcomes are remembered.
constexpr double kPriorWeight = 4;
constexpr double kMemory = 64;

template <typename Bounds, typename Value>
std::size_t range(const Bounds& bounds, Value value) {
  return std::upper_bound(bounds.begin(), bounds.end(), value) - bounds.begin();
}

}  // namespace

void Calibration::Outcomes::add(bool was_accepted) {
  if (total >= kMemory) {
    const double fade = (kMemory - 1) / total;
    accepted *= fade;
    total *= fade;
  }
  accepted += was_accepted;
  total += 1;
}

double Calibration::Outcomes::acceptance(double prior) const {
  return (accepted + kPriorWeight * prior) / (total + kPriorWeight);
}

Calibration::Calibration(int n_drafters) : bins_(n_drafters * kConfidenceRanges) {
  for (Bin& bin : bins_) bin.by_depth.resize(kDepthRanges);
}

double Calibration::acceptance(const DraftNode& node) const {
  double best = 0;
  for (const Proposal& proposal : node.proposals)
    best = std::max(best, acceptance(proposal, node.depth));
  return best;
}

double Calibration::acceptance(const Proposal& proposal, int depth) const {
  const Bin& bin = bins_[this->bin(proposal)];
  const double at_any_depth = bin.all_depths.acceptance(proposal.confidence);
  return bin.by_depth[range(kDepthBounds, depth)].acceptance(at_any_depth);
}

void Calibration::observe(const DraftTree& tree, std::span<const Token> taken) {
  std::optional<int> parent = 0;
  for (Token token : taken) {
    for (int child : tree.children(*parent)) {
      const DraftNode& node = tree[child];
      for (const Proposal& proposal : node.proposals) {
        Bin& bin = bins_[this->bin(proposal)];
        bin.all_depths.add(node.token == token);
        bin.by_depth[range(kDepthBounds, node.depth)].add(node.token == token);
      }
    }
    parent = tree.child(*parent, token);
    if (!parent) return;
  }
}

std::size_t Calibration::bin(const Proposal& proposal) const {
  const std::size_t bin =
      proposal.drafter * kConfidenceRanges + range(kConfidenceBounds, proposal.confidence);
  CHECK(proposal.drafter >= 0 && bin < bins_.size());
  return bin;
}

}  // namespace outrider
