#include "sampling/sampling.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace outrider {
namespace {

std::map<Token, int> as_map(const std::vector<TokenCount>& counts) {
  std::map<Token, int> map;
  for (const TokenCount& count : counts) EXPECT_TRUE(map.emplace(count.token, count.count).second);
  return map;
}

TEST(ProcessorState, CountsTheLastTokens) {
  struct Case {
    const char* name;
    int repeat_last_n;
    float repeat, frequency, presence;
    std::map<Token, int> counts;
  };
  const Token text[] = {5, 1, 5, 2, 2, 9};
  const Case cases[] = {
      {"no penalty needs no counts", 4, 1, 0, 0, {}},
      {"repetition", 4, 1.1f, 0, 0, {{2, 2}, {5, 1}, {9, 1}}},
      {"frequency", 3, 1, 0.5f, 0, {{2, 2}, {9, 1}}},
      {"presence", 1, 1, 0, 0.5f, {{9, 1}}},
      {"an empty window", 0, 1.1f, 0, 0, {}},
      {"a window beyond the text", 64, 1.1f, 0, 0, {{1, 1}, {2, 2}, {5, 2}, {9, 1}}},
      {"everything", -1, 1.1f, 0, 0, {{1, 1}, {2, 2}, {5, 2}, {9, 1}}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    SamplingParams params;
    params.filters.repeat_penalty = c.repeat;
    params.filters.frequency_penalty = c.frequency;
    params.filters.presence_penalty = c.presence;
    params.repeat_last_n = c.repeat_last_n;
    ProcessorState state(params);
    state.advance(text);
    EXPECT_EQ(as_map(state.counts()), c.counts);
  }
}

// Copies go their own ways: a tree's paths do not see each other.
TEST(ProcessorState, IsAValue) {
  SamplingParams params;
  params.filters.repeat_penalty = 1.2f;
  params.repeat_last_n = 2;
  ProcessorState parent(params);
  parent.advance(Token{7});
  ProcessorState child = parent;
  child.advance(Token{8});
  child.advance(Token{8});
  EXPECT_EQ(as_map(parent.counts()), (std::map<Token, int>{{7, 1}}));
  EXPECT_EQ(as_map(child.counts()), (std::map<Token, int>{{8, 2}}));
}

TEST(ProcessorState, CountsAscendByToken) {
  SamplingParams params;
  params.filters.presence_penalty = 1;
  ProcessorState state(params);
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) state.advance(static_cast<Token>(random() % 40));
  const auto counts = state.counts();
  int total = 0;
  for (std::size_t i = 0; i < counts.size(); ++i) {
    total += counts[i].count;
    if (i > 0) {
      EXPECT_LT(counts[i - 1].token, counts[i].token);
    }
  }
  EXPECT_EQ(total, 64);
}

TEST(ChoiceRequest, CarriesTheNoiseOfItsPosition) {
  SamplingParams params;
  params.seed = 0x123456789abcdef;
  params.stream = 3;
  params.bias = {{4, 1.5f}};
  const std::vector<TokenCount> counts{{2, 1}};
  const ChoiceRequest request = choice_request(params, counts, 6, 41);
  EXPECT_EQ(request.row, 6);
  EXPECT_EQ(request.noise.seed, params.seed);
  EXPECT_EQ(request.noise.stream, 3u);
  EXPECT_EQ(request.noise.position, 41u);
  EXPECT_EQ(request.bias.data(), params.bias.data());
  EXPECT_EQ(request.counts.data(), counts.data());
  EXPECT_TRUE(request.allowed.empty());
}

}  // namespace
}  // namespace outrider
