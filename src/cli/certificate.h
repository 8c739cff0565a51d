// The checks of `prove` without a prompt: what a verifier guarantees, shown on a model's own
// weights.

#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/console.h"

namespace outrider {

// One thing that was tried, and what came of it.
struct CertificateCheck {
  std::string what;
  bool passed;
  std::string result;  // a few words
  // Coupled: how many tokens, each with the logits that it was chosen from, were compared with
  // plain decoding's; how many of them were accepted drafts.
  long tokens = 0, accepted = 0;
  // Rejection: how probable a chi-square is that is at least as large as the one found.
  std::optional<double> p_value = {};
};

// Loads the model as the settings ask for and tries the verifier that they name. Coupled: the same
// tokens from the same logits as plain decoding, greedy and sampled, for every drafter and mix,
// tree sizes, batch mates, prefix hits, preemption, numbers of threads and instruction sets.
// Rejection: three tokens after the first have the target's joint distribution, and a wrong rule is
// found out. Nothing for a lossy verifier. Throws Error like Workbench.
std::vector<CertificateCheck> certificate(const Machine& machine, const Settings& settings,
                                          Console& console);

}  // namespace outrider
