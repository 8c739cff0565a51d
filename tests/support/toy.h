// A base of fixtures: a small language model with heads that were trained on it
// (scripts/golden/toy.py, toy_heads.py), and what heads say of its held-out texts.

#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "cpu/backend.h"
#include "model/head.h"
#include "sampling/fake_tokenizer.h"
#include "support/decoding.h"

namespace outrider::testing {

class ToyModel {
 protected:
  static constexpr int kTexts = 32, kLength = 264, kDepths = 3;
  static constexpr int kFirst = 4, kEnd = 260;  // [kFirst, kEnd): the positions that count

  // Most likely tokens: [depth][text][place].
  using Answers = std::vector<std::vector<Token>>;

  // archive: tests/golden/NAME.tar.xz, unpacked, with heads and answers of their references, and
  // NAME.json with figures.
  explicit ToyModel(const std::string& archive);

  // Of a file or folder in the archive.
  std::string path_of(const std::string& name) const;
  Head read(const std::string& folder) const;
  // With weights as they are, and an output for each token.
  std::shared_ptr<const HeadToLoad> to_load(const Head& head) const;
  std::unique_ptr<Backend> load(const Head& head, bool shares_texts = false) const;

  std::span<const Token> text(int index) const;
  // The target's own token after positions 0 to p of a text.
  Token own(int index, int position) const;

  static Pass compute_target(Backend& backend, SequenceId sequence, std::span<const Token> text);
  // Of the rows of a pass that want logits.
  static std::vector<Token> best(Backend& backend, const Pass& pass, std::span<const Row> rows);

  // What a head that goes on from states says after positions kFirst to kEnd - 1 of each text, at
  // each depth, as toy.py defines them. shift: of the position whose features a row takes.
  Answers answers_of_chain(const Head& head, int shift = 0) const;

  // In percent: how many are the target's own tokens after positions kFirst, kFirst + apart and so
  // on to kEnd of each text and `further` places.
  double agreement(const std::vector<Token>& answers, int further, int apart = 1) const;
  // In percent: how many of a depth's answers are those of the file, which has as many depths.
  std::vector<double> shares_of_same(const Answers& answers, const std::string& file) const;

  // A text with drafts of a head that --draft calls `drafter`, and without.
  struct Decodings {
    Decoded plain, drafted;
  };
  static constexpr int kPredicted = 120;
  Decodings decode_both(const Head& head, const std::string& drafter, float temperature) const;

  const std::string archive_;
  const nlohmann::json figures_;
  const double bigram_;  // agreement of the most frequent next token
  const Model model_;
  const FakeTokenizer tokenizer_;
  const std::vector<Token> tokens_;  // [kTexts][kLength]
  const std::vector<Token> own_;
};

}  // namespace outrider::testing
