// How often a head is right: what tells ways to read or to load one apart.

#pragma once

#include <span>
#include <vector>

#include "base/token.h"
#include "model/backend.h"
#include "model/made_for.h"

namespace outrider {

// For each place of a text, teacher-forced, whether the head's most likely token is the target's
// own: of a head that goes on from features, at its first level and at its second; of Medusa's
// heads, the first one's and the second's; of blocks, whose anchors are every fourth place, the
// first guess and the second. As much of the text as the target's context holds. The target has a
// head, a sequence that is free, and rows_to_measure() of it. Throws as Backend does, and
// Error("interrupted") if `progress` says so.
std::vector<bool> measure_agreement(Backend& target, std::span<const Token> text,
                                    const LoadProgress& progress);

// How many rows and slots the target of a head needs at least.
int rows_to_measure(const ModelSpec& head);

double share_of_right(const std::vector<bool>& right);

// Whether the second is right more often than the first by more than two standard errors of the
// difference, which places where both are right or both wrong say nothing about (McNemar 1947).
bool is_clearly_better(const std::vector<bool>& first, const std::vector<bool>& second);

// Whether a share is lower than another one by more than two standard errors of the difference.
// Both are samples: sqrt(p (1 - p) / n + q (1 - q) / m). Measured on one text they are in truth
// pairs, whose difference varies less, but of a head's earlier measurement only the counts are
// known, so a small loss may pass. Without places nothing is lower.
bool is_clearly_lower(const Agreement& found, const Agreement& expected);

}  // namespace outrider
