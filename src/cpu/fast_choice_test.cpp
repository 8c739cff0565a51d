// The fast choice against the reference: bits, over random requests and rows.

#include "cpu/fast_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

namespace outrider {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

bool same(float a, float b) {
  return a == b || (std::isnan(a) && std::isnan(b));
}
bool same(const Candidate& a, const Candidate& b) {
  return a.token == b.token && same(a.score, b.score) && same(a.probability, b.probability);
}

bool same(const TokenProbability& a, const TokenProbability& b) {
  return a.token == b.token && same(a.probability, b.probability);
}

template <typename T>
void expect_same(const std::vector<T>& found, const std::vector<T>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i)
    ASSERT_TRUE(same(found[i], expected[i])) << "element " << i;
}

void expect_same(const Choice& found, const Choice& expected) {
  ASSERT_EQ(found.token, expected.token);
  ASSERT_NO_FATAL_FAILURE(expect_same(found.best, expected.best));
  ASSERT_NO_FATAL_FAILURE(expect_same(found.probabilities, expected.probabilities));
  ASSERT_NO_FATAL_FAILURE(expect_same(found.logits, expected.logits));
}

// Rows in which only some tokens have logits: as if the others were at -inf.
void expect_same_among(std::span<const float> logits, const ChoiceRequest& request) {
  std::vector<Token> ids;
  std::vector<std::uint32_t> places;
  std::vector<float> given, all(logits.begin(), logits.end());
  std::uint32_t random = request.noise.position;
  for (std::size_t id = 0; id < all.size(); ++id) {
    random = random * 1664525 + 1013904223;
    if (random >> 30 == 0 || (random >> 20 & 7) < id % 64 / 8) {
      all[id] = -kInfinity;
    } else {
      ids.push_back(static_cast<Token>(id));
    }
  }
  // Every third is at the end, as tokens are that add_outputs() has added.
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (i % 3 != 0) given.push_back(all[static_cast<std::size_t>(ids[i])]);
  const std::size_t n_first = given.size();
  for (std::size_t i = 0; i < ids.size(); ++i) {
    places.push_back(static_cast<std::uint32_t>(i % 3 != 0 ? i - i / 3 - 1 : n_first + i / 3));
    if (i % 3 == 0) given.push_back(all[static_cast<std::size_t>(ids[i])]);
  }
  const Choice expected = choose_reference(all, request);
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(name(isa));
    ChoiceMemory memory;
    Choice found;
    choose_among({ids, places}, given, all.size(), request, isa, memory, found);
    ASSERT_NO_FATAL_FAILURE(expect_same(found, expected));
  }
}

// Returns whether the row had a choice at all.
bool expect_reference(std::span<const float> logits, const ChoiceRequest& request) {
  const Choice expected = choose_reference(logits, request);
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(name(isa));
    // Memory and result as an earlier choice leaves them.
    static ChoiceMemory memory;
    static Choice found;
    choose(logits, request, isa, memory, found);
    EXPECT_NO_FATAL_FAILURE(expect_same(found, expected));
  }
  return expected.token.has_value();
}

// Rows and requests of every sort, and what they point to.
class Cases {
 public:
  explicit Cases(std::uint32_t seed) : random_(seed) {}

  std::vector<float> row(std::size_t n) {
    const float spreads[] = {0, 0.1f, 1, 4, 15, 60};
    const float spread = spreads[below(6)];
    const bool ties = below(3) == 0;
    std::vector<float> x(n);
    for (float& value : x) {
      value = spread * std::normal_distribution<float>(0, 1)(random_);
      if (ties) value = std::round(value);
    }
    if (below(4) == 0) x[below(n)] = 3 * spread + 10;  // one stands out
    if (below(4) == 0) {
      for (float& value : x)
        if (below(3) == 0) value = -kInfinity;
    }
    if (below(4) == 0) {
      for (float& value : x) value *= 0x1p-6f;  // flat
    }
    static constexpr float kEdges[] = {kNan,   kInfinity, -kInfinity, 3e38f,
                                       -3e38f, 0,         -0.0f,      1e-42f};
    if (below(4) == 0) x[below(n)] = kEdges[below(std::size(kEdges))];
    return x;
  }

  // Valid until the next call.
  ChoiceRequest request(std::size_t n) {
    ChoiceRequest r;
    Filters& f = r.filters;
    f.top_k = pick({0, 1, 2, 5, 40, 1000});
    f.typical_p = pick({1.0f, 1.0f, 1.0f, 0.9f, 0.3f, 0.0f});
    f.top_p = pick({1.0f, 0.95f, 0.95f, 0.5f, 0.9999f, 0.0f});
    f.min_p = pick({0.0f, 0.05f, 0.05f, 0.9f, 1.5f, 1e-30f});
    f.temperature = pick({0.0f, 0.0f, 0.8f, 0.8f, 1.0f, 0.01f, 30.0f, 1e-30f, kInfinity});
    r.noise = {.seed = random_(),
               .stream = pick({0u, 0u, 3u}),
               .position = static_cast<std::uint32_t>(below(5000)),
               .use = pick({NoiseUse::choice, NoiseUse::choice, NoiseUse::draft}),
               .node = pick({0u, 9u})};
    bias_.clear();
    counts_.clear();
    allowed_.clear();
    if (below(3) == 0) {
      for (int i = 0; i < 4; ++i)
        bias_.push_back({token(n), pick({-kInfinity, 2.5f, -1.0f, 100.0f, kInfinity})});
    }
    if (below(3) == 0) {
      f.repeat_penalty = pick({1.0f, 1.3f, 0.8f});
      f.frequency_penalty = pick({0.0f, 0.7f, -0.2f});
      f.presence_penalty = pick({0.0f, 1.5f});
      for (Token id = 0; id < static_cast<Token>(n) + 2 && counts_.size() < 64;
           id += 1 + static_cast<Token>(below(7)))
        counts_.push_back({id, static_cast<int>(below(4))});
    }
    if (below(4) == 0) {
      allowed_.resize((n + 63) / 64 - below(2));
      for (std::uint64_t& word : allowed_) word = random_() & random_();
    }
    r.bias = bias_;
    r.counts = counts_;
    r.allowed = allowed_;
    r.n_best = pick({0, 0, 1, 4, 16, 3000});
    r.wants_probabilities = below(3) == 0;
    r.wants_logits = below(5) == 0;
    return r;
  }

  std::size_t below(std::size_t n) { return random_() % n; }

 private:
  template <typename T>
  T pick(std::initializer_list<T> from) {
    return *(from.begin() + below(from.size()));
  }
  // Sometimes outside the vocabulary.
  Token token(std::size_t n) { return static_cast<Token>(below(n + 2)) - 1; }

  std::mt19937_64 random_;
  std::vector<TokenBias> bias_;
  std::vector<TokenCount> counts_;
  std::vector<std::uint64_t> allowed_;
};

TEST(Choice, GivesTheReferencesBits) {
  Cases cases(1);
  const std::size_t sizes[] = {1, 2, 15, 16, 17, 63, 64, 65, 100, 640, 1000, 2600};
  int usable = 0;
  for (int round = 0; round < 6000; ++round) {
    SCOPED_TRACE(round);
    const std::size_t n = sizes[cases.below(round % 8 == 0 ? std::size(sizes) : 9)];
    const std::vector<float> row = cases.row(n);
    const ChoiceRequest request = cases.request(n);
    usable += expect_reference(row, request);
    expect_same_among(row, request);
    if (HasFailure()) return;
  }
  EXPECT_GT(usable, 4000);
}

TEST(Choice, GivesTheReferencesBitsOnLargeVocabularies) {
  Cases cases(2);
  const std::size_t n = 151936;
  for (int round = 0; round < 16; ++round) {
    SCOPED_TRACE(round);
    const std::vector<float> row = cases.row(n);
    const ChoiceRequest request = cases.request(n);
    expect_reference(row, request);
    expect_same_among(row, request);
    if (HasFailure()) return;
  }
  // Flat rows without top-k: the walks through rankings are long.
  for (int round = 0; round < 6; ++round) {
    SCOPED_TRACE(round);
    std::vector<float> row = cases.row(n);
    for (float& value : row) value = std::isfinite(value) ? std::fmod(value, 1.0f) : value;
    ChoiceRequest request;
    request.filters = {.top_k = 0,
                       .typical_p = round % 2 == 0 ? 0.95f : 1.0f,
                       .top_p = round % 3 == 0 ? 1.0f : 0.93f};
    request.n_best = 5;
    expect_reference(row, request);
    if (HasFailure()) return;
  }
  ChoiceRequest plain;
  plain.noise.seed = 9;
  const std::vector<float> row = cases.row(n);
  expect_reference(row, plain);
  plain.filters = {.top_k = 0, .top_p = 1, .min_p = 0, .temperature = 1};
  expect_reference(row, plain);
  expect_reference(std::vector<float>(n, 1.0f), plain);  // all alike: noise alone decides
}

}  // namespace
}  // namespace outrider
