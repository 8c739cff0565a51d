#include <algorithm>
#include <map>

#include "base/error.h"
#include "speculation/verifier.h"

namespace outrider {
namespace {

// Weights of tokens, ids ascending; their sum is kept beside them, so that nothing is normalized
// until it has to be.
class Weights {
 public:
  explicit Weights(const Distribution& distribution) {
    tokens_.reserve(distribution.size());
    weights_.reserve(distribution.size());
    for (const auto& [token, probability] : distribution) {
      tokens_.push_back(token);
      weights_.push_back(probability);
    }
    add_up();
  }

  double sum() const { return sum_; }
  std::span<const double> values() const { return weights_; }
  Token token(std::size_t index) const { return tokens_[index]; }

  double probability(Token token) const {
    const auto found = find(token);
    return found ? weights_[*found] / sum_ : 0;
  }

  void remove(Token token) {
    if (const auto found = find(token)) weights_[*found] = 0;
    add_up();
  }

  // Leaves max(scale * own probability - the other's, 0), token by token.
  void subtract(double scale, const Weights& other) {
    const double sum = sum_, other_sum = other.sum_;
    sum_ = 0;
    std::size_t at = 0;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      while (at < other.tokens_.size() && other.tokens_[at] < tokens_[i]) ++at;
      double left = scale * (weights_[i] / sum);
      if (at < other.tokens_.size() && other.tokens_[at] == tokens_[i])
        left -= other.weights_[at] / other_sum;
      weights_[i] = std::max(left, 0.0);
      sum_ += weights_[i];
    }
  }

 private:
  std::optional<std::size_t> find(Token token) const {
    const auto found = std::ranges::lower_bound(tokens_, token);
    if (found == tokens_.end() || *found != token) return std::nullopt;
    return static_cast<std::size_t>(found - tokens_.begin());
  }
  void add_up() {
    sum_ = 0;
    for (const double weight : weights_) sum_ += weight;
  }

  std::vector<Token> tokens_;
  std::vector<double> weights_;
  double sum_ = 0;
};

// Traversal verification. Let p be the probability with which a node may stand, r what follows it,
// and q what its next proposal x was drawn from: a point mass if x was chosen. Then x may stand
// with probability min(1, p r(x) / q(x)). Over all x, it or a node below it is accepted with
// min(q(x), p r(x)), and all of them are rejected with S + 1 - p, S being the sum of max(p r - q,
// 0). After a rejection r becomes max(p r - q, 0) / S, p becomes S / (S + 1 - p), and the next
// proposal has its turn. A node without any left is accepted with p. So p r follows the node,
// whatever is proposed at it or below.
struct Traversal {
  const DraftTree& tree;
  std::span<const NodeAnswer> answers;
  const Chance& chance;
  Verdict verdict = {};  // accepted nodes from the last one up

  // Whether the node or one below it is accepted; `stands` is p.
  bool visit(int node, double stands) {
    const NodeAnswer& answer = answers[node];
    const std::vector<DraftTree::Offer> offers = tree.offers(node);
    if (offers.empty() || !answer.choice) {
      verdict.next = answer.choice;
      return chance.accepts(node, stands);
    }
    Weights rest(answer.probabilities.empty() ? Distribution{{*answer.choice, 1}}
                                              : answer.probabilities);
    std::map<int, Weights> drafts;  // by drafter: what its next draw comes from
    for (const auto& [child, proposal] : offers) {
      const Token token = tree[child].token;
      Weights point(Distribution{{token, 1}});
      Weights& draft =
          proposal.drawn_from
              ? drafts.try_emplace(proposal.drafter, *proposal.drawn_from).first->second
              : point;
      CHECK(draft.probability(token) > 0);
      // A child that is proposed again after it was rejected has no probability left.
      const double child_stands =
          std::min(1.0, stands * rest.probability(token) / draft.probability(token));
      if (child_stands > 0 && visit(child, child_stands)) {
        verdict.accepted.push_back(child);
        return true;
      }
      rest.subtract(stands, draft);
      draft.remove(token);
      // Of a node that stands for sure nothing is left only where the child did, but for rounding.
      if (rest.sum() <= 0) {
        verdict.next = token;
        return stands == 1;
      }
      stands = rest.sum() / (rest.sum() + (1 - stands));
    }
    if (!chance.accepts(node, stands)) return false;
    verdict.next = rest.token(chance.pick(node, rest.values()));
    return true;
  }
};

class Rejection final : public Verifier {
 public:
  std::string_view name() const override { return "rejection"; }
  Guarantee guarantee() const override { return Guarantee::same_distribution; }
  bool wants_draws() const override { return true; }
  bool wants_probabilities(const DraftTree& tree, int node) const override {
    return !tree.children(node).empty();
  }

  Verdict verify(const DraftTree& tree, std::span<const NodeAnswer> answers,
                 const Chance& chance) const override {
    CHECK(static_cast<int>(answers.size()) == tree.size());
    Traversal traversal{tree, answers, chance};
    CHECK(traversal.visit(0, 1));
    std::ranges::reverse(traversal.verdict.accepted);
    return traversal.verdict;
  }
};

}  // namespace

std::shared_ptr<const Verifier> rejection_verifier() {
  static const auto rejection = std::make_shared<const Rejection>();
  return rejection;
}

}  // namespace outrider
