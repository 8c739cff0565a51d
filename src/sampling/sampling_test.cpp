#include "sampling/sampling.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <new>
#include <random>

#include "base/error.h"
#include "base/sanitizers.h"

// This program's allocations are counted.
namespace {
long allocated = 0;  // bytes
}
#if !OUTRIDER_SANITIZES_MEMORY
// Not inlined: GCC would take malloc and delete for a mismatch.
[[gnu::noinline]] void* operator new(std::size_t size) {
  allocated += static_cast<long>(size);
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
#endif

namespace outrider {
namespace {

std::map<Token, int> as_map(const std::vector<TokenCount>& counts) {
  std::map<Token, int> map;
  for (const TokenCount& count : counts) EXPECT_TRUE(map.emplace(count.token, count.count).second);
  return map;
}

TEST(ChoiceState, CountsTheLastTokens) {
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
    ChoiceState state(params);
    state.advance(text);
    EXPECT_EQ(as_map(state.counts()), c.counts);
  }
}

// The counts at a node are those of a text that ends with the node's path, and the text's stay.
TEST(ChoiceState, CountsAPathAsIfTheTextEndedWithIt) {
  std::mt19937 random(3);
  const auto tokens = [&](std::size_t n) {
    std::vector<Token> tokens(n);
    for (Token& token : tokens) token = static_cast<Token>(random() % 9);
    return tokens;
  };
  for (int round = 0; round < 2000; ++round) {
    const int last_n = static_cast<int>(random() % 12) - 1;
    SCOPED_TRACE(fmt::format("round {}, repeat_last_n {}", round, last_n));
    SamplingParams params;
    params.filters.repeat_penalty = 1.2f;
    params.repeat_last_n = last_n;
    std::vector<Token> text = tokens(random() % 16);
    const std::vector<Token> path = tokens(random() % 16);
    ChoiceState state(params);
    state.advance(text);
    const auto before = as_map(state.counts());
    const auto got = as_map(state.counts(path));
    EXPECT_EQ(as_map(state.counts()), before);

    text.insert(text.end(), path.begin(), path.end());
    std::map<Token, int> expected;
    const std::size_t first =
        last_n < 0 ? 0 : text.size() - std::min(text.size(), static_cast<std::size_t>(last_n));
    for (std::size_t i = first; i < text.size(); ++i) ++expected[text[i]];
    ASSERT_EQ(got, expected);
    state.advance(path);
    ASSERT_EQ(as_map(state.counts()), expected);
  }
}

// A step asks at each node of a tree, so the cost must not grow with the text.
TEST(ChoiceState, TakesNoMoreMemoryForALongerText) {
  if (OUTRIDER_SANITIZES_MEMORY) GTEST_SKIP() << "allocations are the sanitizer's";
  for (const int last_n : {-1, 64}) {
    SamplingParams params;
    params.filters.repeat_penalty = 1.2f;
    params.repeat_last_n = last_n;
    const auto bytes = [&](int length) {
      ChoiceState state(params);
      std::vector<Token> text(length);
      for (int i = 0; i < length; ++i) text[i] = i % 50;
      state.advance(text);
      const std::vector<Token> path{100, 7, 101};
      const long before = allocated;
      EXPECT_FALSE(state.counts(path).empty());
      return allocated - before;
    };
    const long of_short = bytes(100);
    EXPECT_GT(of_short, 0);
    EXPECT_EQ(bytes(8000), of_short);
  }
}

TEST(ChoiceState, CountsAscendByToken) {
  SamplingParams params;
  params.filters.presence_penalty = 1;
  ChoiceState state(params);
  std::mt19937 random(1);
  std::vector<Token> text(200);
  for (Token& token : text) token = static_cast<Token>(random() % 40);
  state.advance(text);
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

TEST(SamplingParams, RefusesTemperaturesThatOverflow) {
  struct Case {
    float temperature;
    bool allowed;
  };
  const Case cases[] = {{0, true},       {kTemperatureMin, true},
                        {0.8f, true},    {1e6f, true},
                        {1e-38f, false}, {std::nextafter(kTemperatureMin, 0.0f), false},
                        {-1, true},      {std::nanf(""), false}};
  for (const Case& c : cases) {
    SCOPED_TRACE(c.temperature);
    SamplingParams params;
    params.filters.temperature = c.temperature;
    if (c.allowed)
      EXPECT_NO_THROW(check_sampling(params));
    else
      EXPECT_THROW(check_sampling(params), Error);
  }
  EXPECT_TRUE(std::isfinite(3.4e32f / kTemperatureMin));
}

TEST(ChoiceState, EndsReasoningThatGetsTooLong) {
  constexpr Token kOpen = 8, kClose = 9;
  const ReasoningLimit begun{
      .n_prompt = 2, .n_tokens = 3, .open = kOpen, .close = kClose, .is_begun = true};
  ReasoningLimit silent = begun;
  silent.is_begun = false;
  ReasoningLimit unopened = begun;
  unopened.open = -1;
  struct Case {
    const char* name;
    std::optional<ReasoningLimit> limit;
    std::vector<Token> text;
    std::optional<Token> forced;
  };
  const Case cases[] = {
      {"no limit", {}, {1, 2, 3, 4, 5}, {}},
      {"begun by the prompt", begun, {1, 2, 3, 4, 5}, kClose},
      {"the prompt's own marks", begun, {1, kClose, 3, 4, 5}, kClose},
      {"too early", begun, {1, 2, 3, 4}, {}},
      {"once only", begun, {1, 2, 3, 4, 5, 6}, {}},
      {"ended already", begun, {1, 2, 3, kClose, 5}, {}},
      {"ended and begun again", begun, {1, 2, kClose, kOpen, 5}, kClose},
      {"no reasoning", silent, {1, kOpen, 3, 4, 5}, {}},
      {"begun by the answer", silent, {1, 2, kOpen, 4, 5}, kClose},
      {"begun without a token", unopened, {1, 2, 3, 4, 5}, kClose},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    SamplingParams params;
    params.reasoning = c.limit;
    const std::span<const Token> text = c.text;
    // Read at once, in pieces, or as a path, it is the same text.
    for (std::size_t first = 0; first <= text.size(); ++first) {
      ChoiceState state(params);
      state.advance(text.first(first));
      if (first >= 2) {
        EXPECT_EQ(state.forced(text.subspan(first)), c.forced);
      }
      state.advance(text.subspan(first));
      EXPECT_EQ(state.forced(), c.forced);
    }
  }
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
