// Small random models of every family, written by llama.cpp's converter, and what transformers says
// of texts by them (scripts/golden/families.py).

#pragma once

#include <string>
#include <vector>

#include "model/model.h"

namespace outrider::testing {

// Sorted.
std::vector<std::string> golden_families();
Model golden_model(const std::string& name);

// The next token after each token of some texts: the most probable ones.
struct GoldenTexts {
  std::size_t length = 0, n_texts = 0, n_best = 0;
  std::vector<float> tokens;  // [n_texts][length]
  std::vector<float> best;    // [n_texts][length][n_best]
  // [n_texts][length][n_best]: of `best` but for the first, then of all other tokens together
  std::vector<float> log_probabilities;
};
GoldenTexts golden_texts(const std::string& name);

}  // namespace outrider::testing
