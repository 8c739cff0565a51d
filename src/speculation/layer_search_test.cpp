#include "speculation/layer_search.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "model/fake_backend.h"

namespace outrider {
namespace {

// Six layers, of which some are needed: without one of them every token is another one.
class Layered final : public FakeBackend {
 public:
  explicit Layered(std::vector<int> needed)
      : FakeBackend({}, {.context = 256, .n_sequences = 2}, 6), needed_(std::move(needed)) {}

  Pass forward(std::span<const Row> rows, const ForwardOptions& options) override {
    is_wrong_ = options.layers && !std::ranges::includes(*options.layers, needed_);
    return FakeBackend::forward(rows, {});
  }
  std::vector<Choice> choose(const Pass& pass, std::span<const ChoiceRequest> requests) override {
    std::vector<Choice> choices = FakeBackend::choose(pass, requests);
    if (is_wrong_)
      for (Choice& choice : choices) choice.token = (*choice.token + 1) % 23;
    return choices;
  }

 private:
  const std::vector<int> needed_;
  bool is_wrong_ = false;
};

LayerSearch::Answer answer(const std::vector<Token>& prompt) {
  LayerSearch::Answer answer{prompt, static_cast<int>(prompt.size())};
  for (int i = 0; i < 21; ++i) {
    const std::vector<float> logits = FakeModel{}.logits(answer.tokens);
    answer.tokens.push_back(static_cast<Token>(std::ranges::max_element(logits) - logits.begin()));
  }
  return answer;
}

TEST(LayerSearch, FindsWhatCanBeLeftOut) {
  Layered target({0, 2, 5});
  LayerSearch search(target, {answer({1, 2, 3}), answer({4})}, 1);
  search.try_sets(99);
  const std::size_t n_first = search.tried().size();
  EXPECT_GE(n_first, 4u);
  for (int i = 0; i < 20; ++i) search.try_sets(8);
  EXPECT_GT(search.tried().size(), n_first);
  EXPECT_EQ(target.n_alive(), 0);
  int n_right = 0;
  for (const auto& [left_out, acceptance, pass_ms, depth, speed] : search.tried()) {
    ASSERT_TRUE(std::ranges::is_sorted(left_out));
    ASSERT_FALSE(left_out.empty());
    const bool is_right = std::ranges::none_of(
        left_out, [](int layer) { return layer == 0 || layer == 2 || layer == 5; });
    // Every token of an answer but its first one is guessed, none of the prompt.
    EXPECT_EQ(acceptance, is_right ? 1 : 0) << testing::PrintToString(left_out);
    n_right += is_right ? 1 : 0;
    EXPECT_GT(pass_ms, 0);
    EXPECT_GE(depth, 1);
    EXPECT_LE(speed, search.best().speed);
  }
  EXPECT_GE(n_right, 1);
  EXPECT_EQ(search.best().acceptance, 1);
}

}  // namespace
}  // namespace outrider
