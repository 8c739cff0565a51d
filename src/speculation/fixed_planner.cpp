#include "speculation/fixed_planner.h"

#include <algorithm>
#include <functional>

namespace outrider {

std::vector<RankedNode> rank_nodes(std::span<const PlannedSequence> sequences,
                                   const std::vector<std::vector<double>>& chances,
                                   const PassLoad& load, const PlannerOptions& options) {
  std::vector<RankedNode> all;
  std::vector<int> room;
  int n_drawn = 0;
  for (int i = 0; i < static_cast<int>(sequences.size()); ++i) {
    room.push_back(std::min(options.rows, sequences[i].rows_max));
    if (sequences[i].drawers > 0) {
      n_drawn += sequences[i].tree->size() - 1;
      continue;
    }
    for (int node = 1; node < static_cast<int>(chances[i].size()); ++node)
      all.push_back({i, node, chances[i][node]});
  }
  // A parent's chance is at least its child's, and its number is lower, so a stable sort puts it
  // first.
  std::ranges::stable_sort(all, std::greater<>{}, &RankedNode::chance);
  const std::size_t n_max = std::max(0, load.rows_max - load.rows - n_drawn);
  std::vector<RankedNode> ranked;
  for (const RankedNode& node : all)
    if (ranked.size() < n_max && room[node.sequence]-- > 0) ranked.push_back(node);
  return ranked;
}

void keep_nodes(std::span<const PlannedSequence> sequences, std::span<const RankedNode> nodes) {
  std::vector<std::vector<bool>> kept;
  for (const PlannedSequence& sequence : sequences) {
    kept.emplace_back(sequence.tree->size(), sequence.drawers > 0);
    kept.back()[0] = true;
  }
  for (const RankedNode& node : nodes) kept[node.sequence][node.node] = true;
  for (std::size_t i = 0; i < sequences.size(); ++i) sequences[i].tree->keep(kept[i]);
}

// Proposals that will be pruned may be more than the pass has room for; draws share what room is
// left.
std::vector<Planner::Ask> FixedPlanner::ask(int, const Drafter& drafter,
                                            std::span<const PlannedSequence> sequences,
                                            const PassLoad& load) {
  std::vector<Ask> asks;
  int n_left = load.rows_left();
  for (const PlannedSequence& sequence : sequences)
    if (sequence.drawers > 0) n_left -= sequence.tree->size() - 1;
  const int share = n_left / std::max(1, static_cast<int>(sequences.size()));
  for (const PlannedSequence& sequence : sequences) {
    Ask& ask = asks.emplace_back();
    DraftLimits limits{std::min(options_.rows, sequence.rows_max),
                       std::min(options_.depth, sequence.depth_max), options_.width};
    if (sequence.drawers > 0 && drafter.can_draw())
      limits.nodes = std::min(limits.nodes - (sequence.tree->size() - 1), share) / sequence.drawers;
    if (limits.nodes > 0 && limits.depth > 0 && limits.width > 0) ask.limits = limits;
  }
  return asks;
}

void FixedPlanner::prune(std::span<const PlannedSequence> sequences, const PassLoad& load) {
  std::vector<std::vector<double>> chances;
  for (const PlannedSequence& sequence : sequences) {
    const DraftTree& tree = *sequence.tree;
    std::vector<double>& of_tree = chances.emplace_back(tree.size(), 1);
    for (int node = 1; node < tree.size(); ++node)
      of_tree[node] = of_tree[tree[node].parent] *
                      std::ranges::max(tree[node].proposals, {}, &Proposal::confidence).confidence;
  }
  keep_nodes(sequences, rank_nodes(sequences, chances, load, options_));
}

std::vector<int> FixedPlanner::riders(int, const Drafter& asked,
                                      std::span<const PlannedSequence> sequences,
                                      const PassLoad& load, int n_riders) {
  int n_left = load.rows_left() - n_riders;
  for (const PlannedSequence& sequence : sequences) n_left -= sequence.tree->size() - 1;
  std::vector<int> riders;
  for (const PlannedSequence& sequence : sequences) {
    const int n_own = std::min(options_.rows, sequence.rows_max) - (sequence.tree->size() - 1);
    riders.push_back(std::max(0, std::min({asked.riders_max(), n_own, n_left})));
    n_left -= riders.back();
  }
  return riders;
}

}  // namespace outrider
