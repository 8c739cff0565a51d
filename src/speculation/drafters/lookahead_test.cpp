#include "speculation/drafters/lookahead.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <set>

#include "speculation/drafters/drafter_test.h"

namespace outrider {
namespace {

// What a target says at a place after a path's last token.
using Says = std::function<std::optional<Token>(int place, Token last)>;

class Lookahead : public testing::Test {
 protected:
  void SetUp() override {
    drafter_.begin({1});
    observe({100, 101, 102});
  }
  void observe(std::vector<Token> tokens) {
    drafter_.observe({1}, tokens);
    length_ += static_cast<int>(tokens.size());
  }

  std::vector<Rider> riders(int rows, int depth = 99) {
    std::vector<Rider> riders = drafter_.riders({1}, rows, depth);
    EXPECT_LE(std::ssize(riders), rows);
    std::vector<int> depths;
    std::set<std::pair<int, int>> places;
    for (const auto& [token, parent] : riders) {
      EXPECT_GE(parent, -1);
      EXPECT_LT(parent, std::ssize(depths));
      depths.push_back(parent < 0 ? 1 : depths[parent] + 1);
      EXPECT_LE(depths.back(), depth);
    }
    return riders;
  }

  // One step whose riders the target answers, and which brings n tokens.
  void step(const Says& says, int rows, std::vector<Token> brings) {
    std::vector<int> places;
    std::vector<std::optional<Token>> answers;
    for (const auto& [token, parent] : riders(rows)) {
      places.push_back(parent < 0 ? length_ : places[parent] + 1);
      answers.push_back(says(places.back() + 1, token));
    }
    drafter_.answered({1}, answers);
    observe(std::move(brings));
  }

  std::vector<std::vector<Token>> propose(DraftLimits limits = {}) {
    tree_.emplace(0);
    const DraftRequest request{{1}, &*tree_, 0, limits, &kGreedy, &kState};
    drafter_.propose({&request, 1});
    tree_->check_integrity();
    std::vector<std::vector<Token>> paths;
    for (int node = 1; node < tree_->size(); ++node) paths.push_back(tree_->path(node));
    return paths;
  }

  LookaheadDrafter drafter_;
  int length_ = 0;
  std::optional<DraftTree> tree_;
};

using Paths = std::vector<std::vector<Token>>;

TEST_F(Lookahead, WindowsFitTheRows) {
  for (const int rows : {0, 1, 2, 3, 7, 12, 31, 32, 60})
    for (const int depth : {1, 2, 3, 5, 99}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, depth " << depth);
      LookaheadDrafter fresh;
      fresh.begin({1});
      EXPECT_TRUE(fresh.riders({1}, rows, depth).empty());  // there is no text
      drafter_.truncate({1}, 3);
      const std::size_t n_first = riders(rows, depth).size();
      for (int i = 0; i < 9 && n_first > 0; ++i)
        drafter_.answered({1}, std::vector<std::optional<Token>>(riders(rows, depth).size(), 7));
      const std::size_t n_full = riders(rows, depth).size();
      EXPECT_GE(n_full, n_first);
      if (rows >= 1) {
        EXPECT_GT(n_full, 0u);
      }
      if (rows == 60 && depth == 99) {
        EXPECT_GT(n_full, 45u);  // the first columns begin anew
      }
    }
}

// What the target says of a place, whatever stands before it, becomes an n-gram.
TEST_F(Lookahead, ProposesWhatWasSaid) {
  const auto counts_on = [](int, Token last) { return (last + 1) % 50; };
  int n_said = 0;
  for (int i = 0; i < 6; ++i) {
    step(counts_on, 40, {7});
    const Paths paths = propose();
    for (const std::vector<Token>& path : paths)
      for (std::size_t at = 0; at < path.size(); ++at)
        EXPECT_EQ(path[at], 8 + static_cast<Token>(at));
    n_said += static_cast<int>(paths.size());
  }
  EXPECT_EQ(n_said, 0);  // no n-gram begins with 7: the window began with 100, 101, 102
  // A place's column goes on where the text goes on.
  const auto by_place = [](int place, Token) { return place; };
  for (int i = 0; i < 6; ++i) step(by_place, 40, {length_});
  EXPECT_EQ(propose(), (Paths{{length_},
                              {length_, length_ + 1},
                              {length_, length_ + 1, length_ + 2},
                              {length_, length_ + 1, length_ + 2, length_ + 3}}));
  EXPECT_EQ(propose({.nodes = 2}).size(), 2u);
  EXPECT_EQ(propose({.depth = 3}).size(), 3u);
}

// However many tokens a step brings, columns stay at their places.
TEST_F(Lookahead, ColumnsStayAtTheirPlaces) {
  const auto by_place = [](int place, Token) { return place; };
  for (const int rows : {6, 20, 40}) {
    int n_right = 0;
    for (int i = 0; i < 40; ++i) {
      std::vector<Token> brings(1 + i % 4);
      std::iota(brings.begin(), brings.end(), length_);
      step(by_place, rows, brings);
      int place = length_;  // of the chain of columns' first tokens
      for (const auto& [token, parent] : riders(rows)) {
        if (parent != place - length_ - 1) break;
        // A new column begins with a token of the text.
        const bool is_new = token >= 100 || token < length_;
        EXPECT_TRUE(is_new || token == place) << token << " at " << place;
        n_right += token == place ? 1 : 0;
        ++place;
      }
    }
    EXPECT_GT(n_right, 5) << rows;
  }
}

TEST_F(Lookahead, CountsWhatIsSaidAgain) {
  const auto constant = [](int, Token last) { return last >= 100 ? 1 : last == 1 ? 2 : 1; };
  for (int i = 0; i < 12; ++i) step(constant, 6, {1});
  const Paths paths = propose({.nodes = 2});
  EXPECT_EQ(paths, (Paths{{2}, {2, 1}}));
  EXPECT_GT((*tree_)[1].proposals[0].confidence, 0.8f);
  EXPECT_LT((*tree_)[1].proposals[0].confidence, 1.0f);
}

TEST_F(Lookahead, RowsThatCannotBeUsedAreLeftOut) {
  for (int i = 0; i < 9; ++i) step([](int, Token) { return std::nullopt; }, 40, {7});
  EXPECT_TRUE(propose().empty());
  const auto by_place = [](int place, Token) { return place; };
  for (int i = 0; i < 9; ++i) step(by_place, 40, {length_});
  EXPECT_FALSE(propose().empty());
}

TEST_F(Lookahead, ATruncatedTextHasANewWindow) {
  const auto by_place = [](int place, Token) { return place; };
  for (int i = 0; i < 9; ++i) step(by_place, 40, {length_});
  drafter_.truncate({1}, 2);
  length_ = 2;
  for (const auto& [token, parent] : riders(40)) EXPECT_GE(token, 100);
}

}  // namespace
}  // namespace outrider
