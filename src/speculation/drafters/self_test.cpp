#include "speculation/drafters/self.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/fake_backend.h"
#include "speculation/drafters/drafter_test.h"

namespace outrider {
namespace {

TEST(Self, ReadsListsOfLayers) {
  EXPECT_EQ(parse_layers("3"), std::vector<int>{3});
  EXPECT_EQ(parse_layers("8-10,3,5,9"), (std::vector<int>{3, 5, 8, 9, 10}));
  EXPECT_EQ(layers_text(parse_layers("8-10,3,5,9")), "3,5,8-10");
  EXPECT_EQ(layers_text({}), "");
  for (const char* wrong : {"", ",", "3,", "a", "3-", "-3", "5-3", "1--2", "3;4", "99999999999"})
    EXPECT_THROW(parse_layers(wrong), Error) << wrong;
}

TEST(Self, LeavesOutLayersThatThereAre) {
  const std::vector<int> some{1, 2}, all{0, 1, 2, 3}, foreign{4};
  EXPECT_EQ(layers_without(some, 4), (std::vector<int>{0, 3}));
  EXPECT_THROW(layers_without(all, 4), Error);
  EXPECT_THROW(layers_without(foreign, 4), Error);
  for (const int n : {1, 2, 3, 4, 28, 30})
    EXPECT_FALSE(layers_without(usual_skipped_layers(n), n).empty()) << n;
  EXPECT_EQ(usual_skipped_layers(8), (std::vector<int>{2, 4}));
}

// It drafts what a model of its layers says after the text, and leaves the target's sequence as it
// was.
TEST(Self, DraftsWithSomeLayers) {
  FakeModel model;
  model.layer_disagreement = 1;
  model.whole_path = 0;
  const auto target = std::make_shared<FakeBackend>(model, LoadOptions{.context = 64});
  const OwnedSequence sequence(*target);
  const Row row{.sequence = sequence.id(), .token = 5};
  target->commit(sequence.id(), target->forward({&row, 1}, {}).slots);
  SelfDrafter drafter(target, {0});
  drafter.begin({1});
  drafter.bind({1}, sequence.id());
  drafter.observe({1}, std::vector<Token>{5, 6});
  DraftTree tree(6);
  const DraftRequest request{{1},      &tree,  0, {.nodes = 4, .depth = 4, .width = 1},
                             &kGreedy, &kState};
  drafter.propose({&request, 1});
  tree.check_integrity();
  ASSERT_EQ(tree.depth(), 4);
  FakeModel some = model;
  some.disagreement = 1;
  std::vector<Token> text{5, 6};
  for (const Token token : tree.path(4)) {
    const std::vector<float> logits = some.logits(text);
    EXPECT_EQ(token, std::ranges::max_element(logits) - logits.begin());
    text.push_back(token);
  }
  EXPECT_EQ(drafter.n_passes(), 4);
  EXPECT_EQ(target->committed(sequence.id()), 1);
  EXPECT_EQ(target->free_slots(sequence.id()), target->options().n_slots);
  // Where the target lacks more than the last token, it waits.
  drafter.observe({1}, std::vector<Token>{7});
  DraftTree later(7);
  const DraftRequest again{{1}, &later, 0, {}, &kGreedy, &kState};
  drafter.propose({&again, 1});
  EXPECT_EQ(later.size(), 1);
}

}  // namespace
}  // namespace outrider
