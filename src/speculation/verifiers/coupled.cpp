#include "base/error.h"
#include "speculation/verifier.h"

namespace outrider {
namespace {

class Coupled final : public Verifier {
 public:
  std::string_view name() const override { return "coupled"; }
  Guarantee guarantee() const override { return Guarantee::same_text; }

  Verdict verify(const DraftTree& tree, std::span<const NodeAnswer> answers,
                 const Chance&) const override {
    CHECK(static_cast<int>(answers.size()) == tree.size());
    Verdict verdict;
    int node = 0;
    while (answers[node].choice) {
      const std::optional<int> child = tree.child(node, *answers[node].choice);
      if (!child) break;
      verdict.accepted.push_back(node = *child);
    }
    verdict.next = answers[node].choice;
    return verdict;
  }
};

}  // namespace

std::shared_ptr<const Verifier> coupled_verifier() {
  static const auto coupled = std::make_shared<const Coupled>();
  return coupled;
}

}  // namespace outrider
