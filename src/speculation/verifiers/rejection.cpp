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
    const auto found = std::ranges::lower_bound(tokens_, token);
    if (found == tokens_.end() || *found != token) return 0;
    return weights_[static_cast<std::size_t>(found - tokens_.begin())] / sum_;
  }

  Weights without(Token token) const {
    Weights rest = *this;
    const auto found = std::ranges::lower_bound(tokens_, token);
    if (found == tokens_.end() || *found != token) return rest;
    rest.weights_[static_cast<std::size_t>(found - tokens_.begin())] = 0;
    rest.add_up();
    return rest;
  }

  // max(scale * own probability - the other's, 0), token by token.
  Weights excess(double scale, const Weights& other) const {
    Weights excess = *this;
    std::size_t at = 0;
    for (std::size_t i = 0; i < tokens_.size(); ++i) {
      while (at < other.tokens_.size() && other.tokens_[at] < tokens_[i]) ++at;
      double rest = scale * weights_[i] / sum_;
      if (at < other.tokens_.size() && other.tokens_[at] == tokens_[i])
        rest -= other.weights_[at] / other.sum_;
      excess.weights_[i] = std::max(rest, 0.0);
    }
    excess.add_up();
    return excess;
  }

 private:
  void add_up() {
    sum_ = 0;
    for (const double weight : weights_) sum_ += weight;
  }

  std::vector<Token> tokens_;
  std::vector<double> weights_;
  double sum_ = 0;
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
    const Walk walk{tree, answers, chance};
    Verdict verdict;
    for (int node = 0;;) {
      if (!answers[node].choice) return verdict;
      const std::vector<DraftTree::Offer> offers = tree.offers(node);
      if (offers.empty()) {
        verdict.next = answers[node].choice;
        return verdict;
      }
      const std::size_t n_accepted = verdict.accepted.size();
      if (offers.size() == 1 && offers[0].proposal.drawn_from)
        verdict.next = walk.verify_block(node, verdict.accepted);
      else
        verdict.next = walk.verify_offers(node, offers, verdict.accepted);
      if (verdict.next || verdict.accepted.size() == n_accepted) return verdict;
      node = verdict.accepted.back();
    }
  }

 private:
  struct Walk {
    const DraftTree& tree;
    std::span<const NodeAnswer> answers;
    const Chance& chance;

    Weights target(int node) const {
      const NodeAnswer& answer = answers[node];
      return Weights(answer.probabilities.empty() ? Distribution{{*answer.choice, 1}}
                                                  : answer.probabilities);
    }

    // Recursive rejection at one node: appends the accepted child, or returns the token in its
    // place.
    std::optional<Token> verify_offers(int node, std::span<const DraftTree::Offer> offers,
                                       std::vector<int>& accepted) const {
      Weights rest = target(node);
      std::map<int, Weights> drafts;  // by drafter: what its next draw comes from
      for (std::size_t i = 0; i < offers.size(); ++i) {
        const auto& [child, proposal] = offers[i];
        const Token token = tree[child].token;
        double probability = rest.probability(token);
        Weights* draft = nullptr;
        if (proposal.drawn_from) {
          draft = &drafts.try_emplace(proposal.drafter, *proposal.drawn_from).first->second;
          CHECK(draft->probability(token) > 0);
          probability = std::min(1.0, probability / draft->probability(token));
        }
        if (chance.accepts(node, static_cast<int>(i), probability)) {
          accepted.push_back(child);
          return std::nullopt;
        }
        Weights left = draft ? rest.excess(1, *draft) : rest.without(token);
        if (draft) *draft = draft->without(token);
        // Nothing is left only where the proposal was sure to be accepted but for rounding.
        if (left.sum() <= 0) {
          accepted.push_back(child);
          return std::nullopt;
        }
        rest = std::move(left);
      }
      return rest.token(chance.pick(node, rest.values()));
    }

    // Block verification of the chain that begins at `start`: as long as a node has one draw and no
    // other proposal. Appends the accepted nodes; returns the token after them, unless all were.
    std::optional<Token> verify_block(int start, std::vector<int>& accepted) const {
      std::vector<int> nodes{start};
      // reached[i]: with what probability the block up to nodes[i] may stand, given its tokens.
      std::vector<double> reached{1};
      std::vector<Weights> excess;  // [i]: what follows nodes[i] if the next one does not stand
      for (;;) {
        const int node = nodes.back();
        const std::vector<DraftTree::Offer> offers = tree.offers(node);
        if (offers.size() != 1 || !offers[0].proposal.drawn_from || !answers[node].choice) break;
        const Weights own = target(node), draft(*offers[0].proposal.drawn_from);
        const Token token = tree[offers[0].child].token;
        CHECK(draft.probability(token) > 0);
        excess.push_back(own.excess(reached.back(), draft));
        nodes.push_back(offers[0].child);
        reached.push_back(
            std::min(1.0, reached.back() * own.probability(token) / draft.probability(token)));
      }
      const std::size_t last = nodes.size() - 1;
      std::size_t n = last;
      for (; n > 0; --n) {
        double probability = reached[n];
        if (n < last) {
          const double more = excess[n].sum(), others = more + 1 - reached[n];
          probability = others > 0 ? std::min(1.0, more / others) : 1;
        }
        if (chance.accepts(nodes[n - 1], 0, probability)) break;
      }
      if (n < last && excess[n].sum() <= 0) n = last;  // as above
      accepted.insert(accepted.end(), nodes.begin() + 1,
                      nodes.begin() + 1 + static_cast<std::ptrdiff_t>(n));
      if (n == last) return std::nullopt;
      return excess[n].token(chance.pick(nodes[n], excess[n].values()));
    }
  };
};

}  // namespace

std::shared_ptr<const Verifier> rejection_verifier() {
  static const auto rejection = std::make_shared<const Rejection>();
  return rejection;
}

}  // namespace outrider
