// A small language model with heads that were trained on it (scripts/golden/toy.py). A head that is
// read in the wrong way, by one layer, one position or one norm, says something all the same, but
// is right less often: that random weights cannot show.

#include "support/toy.h"

#include <gtest/gtest.h>

#include "speculation/head_agreement.h"

namespace outrider {
namespace {

class Toy : public ::testing::Test, protected testing::ToyModel {
 protected:
  Toy() : ToyModel("toy") {}

  // Head h for the token two and h places after each position, from the state `shift` places on.
  Answers answers_of_medusa(const Head& read, int shift = 0) const {
    const auto backend = load(read);
    Backend& head = *backend->head();
    Answers answers(kDepths);
    for (int index = 0; index < kTexts; ++index) {
      const OwnedSequence sequence(head);
      compute_target(*backend, sequence.id(), text(index));
      std::vector<Row> rows;
      for (int depth = 0; depth < kDepths; ++depth)
        for (int position = kFirst; position < kEnd; ++position)
          rows.push_back({.sequence = sequence.id(),
                          .token = 0,
                          .position = depth,
                          .wants_logits = true,
                          .before = TargetRow{position + shift}});
      const std::vector<Token> said = best(head, head.forward(rows), rows);
      constexpr int kOfDepth = kEnd - kFirst;
      for (int depth = 0; depth < kDepths; ++depth)
        answers[depth].insert(answers[depth].end(), said.begin() + depth * kOfDepth,
                              said.begin() + (depth + 1) * kOfDepth);
    }
    return answers;
  }

  void expect_same(const Answers& answers, const std::string& file) const {
    for (const double share : shares_of_same(answers, file)) EXPECT_GE(share, 99.5);
  }
};

TEST_F(Toy, TheTargetSaysWhatTransformersSays) {
  const auto backend = load(read("eagle3"));
  int n_same = 0;
  for (int index = 0; index < kTexts; ++index) {
    const OwnedSequence sequence(*backend);
    std::vector<Row> rows;
    for (int i = 0; i < kLength; ++i)
      rows.push_back({.sequence = sequence.id(),
                      .token = text(index)[i],
                      .position = i,
                      .parent = i == 0 ? Parent{CommittedEnd{}} : Parent{EarlierRow{i - 1}},
                      .wants_logits = true});
    const std::vector<Token> said = best(*backend, backend->forward(rows), rows);
    for (int i = 0; i < kLength; ++i) n_same += said[i] == own(index, i) ? 1 : 0;
  }
  EXPECT_GE(n_same, 0.995 * kTexts * kLength);
}

TEST_F(Toy, EagleSaysWhatTheReferenceSays) {
  const Answers answers = answers_of_chain(read("eagle3"));
  expect_same(answers, "eagle3.npy");
  EXPECT_GE(agreement(answers[0], 0), bigram_ + 15);
}

TEST_F(Toy, MedusaSaysWhatTheReferenceSays) {
  expect_same(answers_of_medusa(read("medusa")), "medusa.npy");
}

// What is lost by each mistake, in points, at the first depth or, where it acts only there, at the
// second.
TEST_F(Toy, MistakesShow) {
  const Head right = read("eagle3");
  const Answers answers = answers_of_chain(right);
  const auto loss = [&](const char* name, int depth, const auto& change) {
    Head wrong = right;
    change(wrong);
    const double lost = agreement(answers[depth], 0) - agreement(answers_of_chain(wrong)[depth], 0);
    std::printf("%s: %.2f points\n", name, lost);
    return lost;
  };
  for (const int shift : {1, -1}) {
    const double lost = agreement(answers[0], 0) - agreement(answers_of_chain(right, shift)[0], 0);
    std::printf("features of %+d: %.2f points\n", shift, lost);
    EXPECT_GE(lost, 15);
  }
  const auto eagle = [](Head& head) -> EagleInput& { return *head.model.spec.eagle; };
  EXPECT_GE(loss("d2t as tokens", 0,
                 [](Head& head) {
                   for (std::size_t row = 0; row < head.output_tokens.size(); ++row)
                     head.output_tokens[row] -= static_cast<Token>(row);
                   // Each token once, as the loader wants it.
                   std::vector<bool> used(512 + 512);
                   for (Token& token : head.output_tokens) {
                     while (used[static_cast<std::size_t>(token)]) ++token;
                     used[static_cast<std::size_t>(token)] = true;
                   }
                 }),
            15);
  for (std::size_t tap = 0; tap < right.model.spec.eagle->taps.size(); ++tap)
    for (const int by : {1, -1})
      EXPECT_GE(loss(fmt::format("tap {} {:+} layer", tap, by).c_str(), 0,
                     [&](Head& head) { eagle(head).taps[tap] += by; }),
                3);
  EXPECT_GE(loss("normed residual", 0, [&](Head& head) { eagle(head).residual_is_normed ^= true; }),
            3);
  EXPECT_GE(loss("normed state", 1, [&](Head& head) { eagle(head).state_is_normed ^= true; }), 3);
}

TEST_F(Toy, MistakesOfMedusaShow) {
  const Head right = read("medusa");
  const double sound = agreement(answers_of_medusa(right)[0], 1);
  for (const int shift : {1, -1}) {
    const double lost = sound - agreement(answers_of_medusa(right, shift)[0], 1);
    std::printf("state of %+d: %.2f points\n", shift, lost);
    EXPECT_GE(lost, 15);
  }
}

// What the runtime does with a file that leaves open which layers are meant.
TEST_F(Toy, TheRightReadingIsClearlyBetter) {
  const Head right = read("eagle3");
  const auto backend = load(right);
  std::vector<bool> of_right = measure_agreement(*backend, tokens_, {}), of_wrong;
  Head wrong = right;
  for (int& tap : wrong.model.spec.eagle->taps) ++tap;
  of_wrong = measure_agreement(*load(wrong), tokens_, {});
  EXPECT_GT(share_of_right(of_right), 0.3);
  EXPECT_TRUE(is_clearly_better(of_wrong, of_right));
  EXPECT_FALSE(is_clearly_better(of_right, of_wrong));
  EXPECT_FALSE(is_clearly_better(of_right, of_right));
}

// Pages that one reading left in the cache are of no use to another one.
TEST_F(Toy, AReplacedHeadSaysWhatAFreshOneDoes) {
  const Head right = read("eagle3");
  Head wrong = right;
  for (int& tap : wrong.model.spec.eagle->taps) ++tap;
  const auto backend = load(right, true);
  const std::vector<bool> first = measure_agreement(*backend, tokens_, {});
  backend->replace_head(*to_load(wrong));
  EXPECT_EQ(measure_agreement(*backend, tokens_, {}), measure_agreement(*load(wrong), tokens_, {}));
  backend->replace_head(*to_load(right));
  EXPECT_EQ(measure_agreement(*backend, tokens_, {}), first);
}

// Trained heads are often right, and change nothing.
TEST_F(Toy, SpeculationGainsAndChangesNothing) {
  for (const char* const folder : {"eagle3", "medusa"}) {
    for (const float temperature : {0.0f, 0.8f}) {
      SCOPED_TRACE(fmt::format("{} at {}", folder, temperature));
      const bool is_medusa = folder == std::string("medusa");
      const auto [plain, drafted] =
          decode_both(read(folder), is_medusa ? "medusa" : "eagle", temperature);
      EXPECT_EQ(drafted.tokens, plain.tokens);
      EXPECT_GT(drafted.accepted, kPredicted / (is_medusa ? 6 : 2));
      std::printf("%s at %.1f: %ld of %d tokens were drafted\n", folder, temperature,
                  drafted.accepted, kPredicted);
    }
  }
}

}  // namespace
}  // namespace outrider
