#include "speculation/drafters/rest.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "sampling/fake_tokenizer.h"
#include "speculation/drafters/drafter_test.h"

namespace outrider {
namespace {

class Rest : public testing::Test {
 protected:
  // Documents of letters, a token each.
  void build(const std::vector<std::string>& documents) {
    std::vector<std::string> entries;
    for (char letter = 'a'; letter <= 'z'; ++letter) entries.emplace_back(1, letter);
    const FakeTokenizer tokenizer(entries);
    DatastoreBuilder builder(tokenizer);
    for (const std::string& document : documents) builder.add(tokens(document));
    builder.write(file_, {});
    drafter_ = std::make_unique<RestDrafter>(
        std::make_shared<Datastore>(file_, vocabulary_fingerprint(tokenizer), 26));
    drafter_->begin({1});
  }
  void TearDown() override { std::filesystem::remove(file_); }

  static std::vector<Token> tokens(const std::string& text) {
    std::vector<Token> tokens;
    for (const char letter : text) tokens.push_back(letter - 'a');
    return tokens;
  }

  // The paths of all nodes, as text.
  std::vector<std::string> propose(DraftLimits limits = {}) {
    tree_.emplace(0);
    const DraftRequest request{{1}, &*tree_, 0, limits, &kGreedy, &kState};
    drafter_->propose({&request, 1});
    tree_->check_integrity();
    std::vector<std::string> paths;
    for (int node = 1; node < tree_->size(); ++node) {
      std::string& path = paths.emplace_back();
      for (const Token token : tree_->path(node)) path += static_cast<char>('a' + token);
    }
    return paths;
  }
  float confidence(int node) const { return (*tree_)[node].proposals[0].confidence; }

  const std::filesystem::path file_ =
      std::filesystem::temp_directory_path() / ("rest-test-" + std::to_string(getpid()));
  std::unique_ptr<RestDrafter> drafter_;
  std::optional<DraftTree> tree_;
};

using Continuations = std::vector<std::string>;

TEST_F(Rest, ProposesWhatFollowedTheLongestEnd) {
  build({"xabcq", "xabcr", "xabcr", "yabcs", "bct"});
  drafter_->observe({1}, tokens("nxabc"));
  EXPECT_EQ(propose({.nodes = 8, .depth = 1, .width = 4}), (Continuations{"r", "q"}));
  EXPECT_FLOAT_EQ(confidence(1),
                  static_cast<float>(std::sqrt(3) * 4 / (std::sqrt(3) * 4 + 2) * 2 / 3));
  EXPECT_EQ(confidence(1), 2 * confidence(2));
  EXPECT_EQ(propose({.nodes = 1, .depth = 1, .width = 4}), Continuations{"r"});
  EXPECT_EQ(propose({.nodes = 8, .depth = 1, .width = 1}), Continuations{"r"});
  drafter_->truncate({1}, 1);
  drafter_->observe({1}, tokens("bc"));  // "nbc" does not occur
  EXPECT_EQ(propose({.nodes = 8, .depth = 1, .width = 4}), (Continuations{"r", "q", "s", "t"}));
}

TEST_F(Rest, GrowsWhereItIsMostLikely) {
  build({"abcde", "abcde", "abxyz", "abcdq"});
  drafter_->observe({1}, tokens("ab"));
  EXPECT_EQ(propose({.nodes = 4, .depth = 8, .width = 4}), (Continuations{"c", "x", "cd", "cde"}));
  EXPECT_EQ(propose({.nodes = 99, .depth = 2, .width = 4}), (Continuations{"c", "x", "cd", "xy"}));
}

TEST_F(Rest, KnowsNothingOfOtherTexts) {
  build({"abc", "zz"});
  EXPECT_EQ(propose(), Continuations{});
  drafter_->observe({1}, tokens("b"));  // one token tells too little
  EXPECT_EQ(propose(), Continuations{});
  drafter_->observe({1}, tokens("q"));
  EXPECT_EQ(propose(), Continuations{});
  drafter_->observe({1}, tokens("bc"));  // a document ends there
  EXPECT_EQ(propose(), Continuations{});
}

}  // namespace
}  // namespace outrider
