#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "speculation/verifier.h"

namespace outrider {
namespace {

class Typical final : public Verifier {
 public:
  explicit Typical(const TypicalAcceptance& acceptance) : acceptance_(acceptance) {}

  std::string_view name() const override { return "typical"; }
  Guarantee guarantee() const override { return Guarantee::lossy; }
  bool wants_probabilities(const DraftTree& tree, int node) const override {
    return !tree.children(node).empty();
  }

  Verdict verify(const DraftTree& tree, std::span<const NodeAnswer> answers,
                 const Chance&) const override {
    CHECK(static_cast<int>(answers.size()) == tree.size());
    // Parents come before children, so one pass finds all accepted nodes. Of the deepest the first
    // one counts.
    std::vector<bool> is_accepted(tree.size());
    is_accepted[0] = true;
    int end = 0;
    for (int node = 0; node < tree.size(); ++node) {
      if (!is_accepted[node] || !answers[node].choice) continue;
      const double least = least_probability(answers[node].probabilities);
      for (const int child : tree.children(node)) {
        is_accepted[child] = accepts(answers[node], tree[child].token, least);
        if (is_accepted[child] && tree[child].depth > tree[end].depth) end = child;
      }
    }
    Verdict verdict{.accepted = {}, .next = answers[end].choice};
    for (int node = end; node != 0; node = tree[node].parent) verdict.accepted.push_back(node);
    std::ranges::reverse(verdict.accepted);
    return verdict;
  }

 private:
  double least_probability(const Distribution& probabilities) const {
    double entropy = 0;
    for (const auto& [token, p] : probabilities) entropy -= p * std::log(double{p});
    return std::min(acceptance_.epsilon, acceptance_.delta * std::exp(-entropy));
  }

  static bool accepts(const NodeAnswer& answer, Token token, double least) {
    if (answer.probabilities.empty()) return token == answer.choice;
    const auto found =
        std::ranges::lower_bound(answer.probabilities, token, {}, &TokenProbability::token);
    return found != answer.probabilities.end() && found->token == token &&
           found->probability > least;
  }

  TypicalAcceptance acceptance_;
};

}  // namespace

std::shared_ptr<const Verifier> typical_verifier(const TypicalAcceptance& acceptance) {
  return std::make_shared<Typical>(acceptance);
}

}  // namespace outrider
