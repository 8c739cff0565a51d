// Which layers a model leaves out when it drafts for itself (drafters/self.h): sets are tried on
// answers that the model has given, near the best one so far. SWIFT, Xia et al. 2024,
// arXiv:2410.06916, searches so, too.

#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "model/backend.h"

namespace outrider {

class LayerSearch {
 public:
  struct Answer {
    std::vector<Token> tokens;  // of prompt and answer
    int n_prompt;
  };
  struct Candidate {
    std::vector<int> left_out;  // layers, ascending
    double acceptance = 0;      // of the draft's next token
    double pass_ms = 0;         // of one row
    int depth = 0;              // of chains with which the speed is largest
    double speed = 1;           // expected, over plain decoding's
  };

  // answers: chosen greedily by the target, at least one with a token after its first. The target
  // must have a sequence left. Throws Error if no layer of it can be left out.
  LayerSearch(Backend& target, std::vector<Answer> answers, std::uint64_t seed);

  // Tries so many sets: at first the usual one and early exits, then changes of the best.
  // between_passes may throw, and then nothing has changed.
  void try_sets(
      int n, const std::function<void()>& between_passes = [] {});

  const Candidate& best() const { return tried_.front(); }
  std::span<const Candidate> tried() const { return tried_; }  // the best first

 private:
  std::vector<int> next_set();
  void measure(std::vector<Candidate>& candidates, const std::function<void()>& between_passes);
  void expect(Candidate& candidate) const;

  Backend& target_;
  const std::vector<Answer> answers_;
  std::mt19937_64 random_;
  std::vector<double> pass_ms_;          // of all layers over n rows, index n
  std::vector<std::vector<int>> first_;  // sets to begin with, the last first
  std::vector<Candidate> tried_;
};

}  // namespace outrider
