// Which drafted tokens become text. One walk through a checked tree, from what the target said at
// its nodes.

#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/token.h"
#include "numerics/noise.h"
#include "speculation/tree.h"

namespace outrider {

// What the target said after a node's path.
struct NodeAnswer {
  // Its choice, with the noise of the token's position: what plain decoding would say there.
  // Nothing: the row is unusable, which matters only if the walk comes to it.
  std::optional<Token> choice;
  // What the choice is a draw from. Empty: not asked for, or there is but one token that may
  // follow.
  Distribution probabilities = {};
};

struct Verdict {
  std::vector<int> accepted;  // nodes of the accepted path in order, the root not among them
  std::optional<Token> next;  // one more token; nothing if the row before it is unusable
};

// A verifier's random decisions in one step. A use is acceptance or residual, a node one of the
// checked tree.
class Chance {
 public:
  virtual ~Chance() = default;
  // Whether the node is accepted: true with this probability, 0 to 1. At most once per node.
  virtual bool accepts(int node, double probability) const = 0;
  // An index, for the token after the node, with a probability in proportion to its weight. Weights
  // are at least 0, their sum is above 0.
  virtual std::size_t pick(int node, std::span<const double> weights) const = 0;
};

// From Philox (numerics/noise.h), keyed by the length of the text at the start of the step.
class PhiloxChance final : public Chance {
 public:
  PhiloxChance(std::uint64_t seed, std::uint32_t stream, int length);
  bool accepts(int node, double probability) const override;
  std::size_t pick(int node, std::span<const double> weights) const override;

 private:
  NoiseKey key_;
};

// What an answer's text has in common with that of plain decoding.
enum class Guarantee {
  same_text,          // for the same seed, whatever else runs
  same_distribution,  // over seeds with which no earlier answer was made that drafts come from
  lossy,              // no guarantee: the distribution changes
};

// Has no state: one verifier serves any number of sequences and threads.
class Verifier {
 public:
  virtual ~Verifier() = default;
  virtual std::string_view name() const = 0;
  virtual Guarantee guarantee() const = 0;

  // Whether drafters with a distribution draw from it, with noise of their own, instead of guessing
  // the target's choice.
  virtual bool wants_draws() const { return false; }
  // Whether a node's answer has to have probabilities.
  virtual bool wants_probabilities(const DraftTree& /*tree*/, int /*node*/) const { return false; }

  // answers: [tree.size()]. A node without proposals is followed by the target's choice.
  virtual Verdict verify(const DraftTree& tree, std::span<const NodeAnswer> answers,
                         const Chance& chance) const = 0;
};

// Coupled: the target's choice at a node depends on its path and noise alone, so following the
// choices gives the answer of plain decoding with the same seed, token by token. Daliri, Musco,
// Suresh 2025, arXiv:2408.07978; greedy: Leviathan et al. 2023, arXiv:2211.17192.
std::shared_ptr<const Verifier> coupled_verifier();

// Rejection sampling: Leviathan et al. 2023, arXiv:2211.17192; Chen et al. 2023, arXiv:2302.01318.
// Paths are accepted or rejected as a whole, from the leaves up: traversal verification, Weng et
// al. 2025, arXiv:2505.12398. Of a chain that is block verification, Sun et al. 2024,
// arXiv:2403.10444, and of proposals for one node recursive rejection: a token drawn from q is
// accepted with probability min(1, r(x) / q(x)), r being the target's probabilities; otherwise r
// becomes norm(max(r - q, 0)), and the next one is tried. Draws are without replacement within a
// drafter: Jeon et al. 2024, arXiv:2402.14160. A chosen token is a draw from a point mass. After
// the accepted node what is left of r is sampled.
std::shared_ptr<const Verifier> rejection_verifier();

// Typical acceptance, which is lossy: Cai et al. 2024, arXiv:2401.10774. A token is accepted if the
// target's probability exceeds min(epsilon, delta * exp(-H)), H the entropy in nats. Of the
// accepted paths the longest is taken. Where one token alone may follow (temperature 0), as
// coupled.
struct TypicalAcceptance {
  double epsilon = 0.09;
  double delta = 0.3;
};
std::shared_ptr<const Verifier> typical_verifier(const TypicalAcceptance& acceptance);

// Their names; the first is the standard one.
inline constexpr std::string_view kVerifierNames[] = {"coupled", "rejection", "typical"};
// The one of this name, which is one of these.
std::shared_ptr<const Verifier> make_verifier(std::string_view name,
                                              const TypicalAcceptance& acceptance);

}  // namespace outrider
