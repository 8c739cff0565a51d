// parallel=MODEL guesses what PARD's models guess in transformers, which computes each whole text
// and its mask tokens anew, without a cache: small random models, texts that grow by one token or
// by many between the drafts (scripts/golden/parallel.py).

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "cpu/backend.h"
#include "formats/gguf.h"
#include "runtime/drafter_registry.h"
#include "sampling/fake_tokenizer.h"

namespace outrider {
namespace {

using Json = nlohmann::json;

constexpr int kVocabulary = 64;
constexpr int kTokensMax = 8;  // that the drafter guesses
// Of probabilities: both sides compute in float32.
constexpr float kTolerance = 2e-5f;

// Row i of both, in order: the most probable tokens i + 1 places after the text.
struct ExpectedDraft {
  int length;  // of the text so far
  std::vector<std::vector<Token>> tokens;
  std::vector<std::vector<float>> probabilities;

  int n_levels() const { return static_cast<int>(tokens.size()); }
};
struct ExpectedText {
  std::vector<Token> tokens;
  std::vector<ExpectedDraft> drafts;
};

// How texts are drafted.
struct Way {
  bool together;   // all texts in one pass, or each in passes of its own
  int batch_rows;  // few: a prompt takes several passes, and the last may lack room for the masks
};
constexpr Way kWays[] = {{false, 512}, {true, 512}, {false, 12}, {true, 12}};

class Parallel : public ::testing::TestWithParam<const char*> {
 protected:
  Parallel() {
    const Json expected = Json::parse(std::ifstream(folder_ + "/expected.json"));
    mask_ = expected["mask"];
    for (const Json& text : expected["texts"]) {
      texts_.push_back({text["tokens"], {}});
      for (const Json& draft : text["drafts"])
        texts_.back().drafts.push_back({draft["length"], draft["tokens"], draft["probabilities"]});
    }
  }

  // With the mask token that the file names. All texts have begun.
  std::unique_ptr<Drafter> make_drafter(int batch_rows) const {
    const DrafterKind& kind = *parse_draft("parallel=model", "").at(0).kind;
    const FakeTokenizer tokenizer(std::vector<std::string>(kVocabulary, "x"));
    const DrafterFlagValues flags{{"--draft-quantize", "off"}};
    const LoadOptions options = kind.load_options({.context = 128,
                                                   .n_sequences = static_cast<int>(texts_.size()),
                                                   .batch_rows = batch_rows,
                                                   .cache_type = CacheType::f32,
                                                   .n_threads = 2},
                                                  tokenizer, model_.spec, tokenizer, flags);
    auto drafter = kind.make({.tokenizer = tokenizer,
                              .vocabulary = kVocabulary,
                              .flags = flags,
                              .model = load_cpu(model_, options, available_isas().back()),
                              .model_tokenizer = &tokenizer,
                              .model_metadata = &model_.checkpoint->metadata});
    for (int text = 0; text < std::ssize(texts_); ++text) drafter->begin({text});
    return drafter;
  }

  // Every draft of every text in order. limits: of a draft; check: is given it and its tree.
  void draft_all(const Way& way, const SamplingParams& sampling, bool draws,
                 DraftLimits (*limits)(const ExpectedDraft&),
                 void (*check)(const ExpectedDraft&, const DraftTree&)) const {
    const auto drafter = make_drafter(way.batch_rows);
    const ChoiceState state(sampling);
    for (std::size_t at = 0; at < texts_[0].drafts.size(); ++at) {
      std::vector<DraftTree> trees;
      std::vector<DraftRequest> requests;
      for (int text = 0; text < std::ssize(texts_); ++text) {
        const auto& [tokens, drafts] = texts_[text];
        const int seen = at == 0 ? 0 : drafts[at - 1].length;
        drafter->observe({text}, std::span(tokens).subspan(seen, drafts[at].length - seen));
        trees.emplace_back(tokens[drafts[at].length - 1]);
      }
      for (int text = 0; text < std::ssize(texts_); ++text)
        requests.push_back({.sequence = {text},
                            .tree = &trees[text],
                            .drafter = 0,
                            .limits = limits(texts_[text].drafts[at]),
                            .sampling = &sampling,
                            .state = &state,
                            .draws = draws});
      if (way.together)
        drafter->propose(requests);
      else
        for (const DraftRequest& request : requests) drafter->propose({&request, 1});
      for (int text = 0; text < std::ssize(texts_); ++text) {
        SCOPED_TRACE(fmt::format("text {} draft {}", text, at));
        trees[text].check_integrity();
        check(texts_[text].drafts[at], trees[text]);
      }
    }
  }

  const std::string folder_ = std::string(OUTRIDER_GOLDEN_DIR "/parallel/") + GetParam();
  const Model model_ =
      interpret_checkpoint(std::make_shared<const Checkpoint>(read_gguf(folder_ + "/model.gguf")));
  Token mask_;
  std::vector<ExpectedText> texts_;
};

SamplingParams greedy() {
  SamplingParams params;
  params.filters.temperature = 0;
  return params;
}

// Of the two most probable tokens of a row.
float confidence(std::span<const float> probabilities, int token) {
  return probabilities[token] / (probabilities[0] + probabilities[1]);
}

// One branch: levels beyond those that the drafter guesses are not there.
TEST_P(Parallel, GuessesTheMostProbableTokens) {
  for (const Way& way : kWays) {
    SCOPED_TRACE(fmt::format("together {} batch_rows {}", way.together, way.batch_rows));
    draft_all(
        way, greedy(), false,
        [](const ExpectedDraft& expected) {
          const int depth = expected.n_levels() == kTokensMax ? 12 : expected.n_levels();
          return DraftLimits{.nodes = depth, .depth = depth, .width = 1};
        },
        [](const ExpectedDraft& expected, const DraftTree& tree) {
          ASSERT_EQ(tree.size(), 1 + expected.n_levels());
          for (int level = 0; level < expected.n_levels(); ++level) {
            const DraftNode& node = tree[level + 1];
            EXPECT_EQ(node.parent, level);
            EXPECT_EQ(node.token, expected.tokens[level][0]) << level;
            EXPECT_NEAR(node.proposals[0].confidence, confidence(expected.probabilities[level], 0),
                        kTolerance)
                << level;
          }
        });
  }
}

// A tree: the two most probable tokens of a level follow each node of the level above.
TEST_P(Parallel, GuessesTheSameBelowEachNode) {
  for (const Way& way : kWays) {
    SCOPED_TRACE(fmt::format("together {} batch_rows {}", way.together, way.batch_rows));
    draft_all(
        way, greedy(), false,
        [](const ExpectedDraft& expected) {
          const int depth = std::min(expected.n_levels(), 3);
          return DraftLimits{.nodes = (2 << depth) - 2, .depth = depth, .width = 2};
        },
        [](const ExpectedDraft& expected, const DraftTree& tree) {
          const int depth = std::min(expected.n_levels(), 3);
          ASSERT_EQ(tree.size(), (2 << depth) - 1);
          for (int node = 0; node < tree.size(); ++node) {
            const int level = tree[node].depth;
            ASSERT_EQ(tree.children(node).size(), level < depth ? 2u : 0u);
            for (int i = 0; i < std::ssize(tree.children(node)); ++i) {
              const DraftNode& child = tree[tree.children(node)[i]];
              EXPECT_EQ(child.token, expected.tokens[level][i]);
              EXPECT_NEAR(child.proposals[0].confidence,
                          confidence(expected.probabilities[level], i), kTolerance);
            }
          }
        });
  }
}

TEST_P(Parallel, DrawsFromTheDistributions) {
  SamplingParams sampling;
  sampling.filters = {.top_k = 0, .top_p = 1, .min_p = 0, .temperature = 1};
  for (const Way& way : kWays) {
    SCOPED_TRACE(fmt::format("together {} batch_rows {}", way.together, way.batch_rows));
    draft_all(
        way, sampling, true,
        [](const ExpectedDraft& expected) {
          return DraftLimits{.nodes = expected.n_levels(), .depth = expected.n_levels()};
        },
        [](const ExpectedDraft& expected, const DraftTree& tree) {
          ASSERT_EQ(tree.size(), 1 + expected.n_levels());
          for (int level = 0; level < expected.n_levels(); ++level) {
            const auto& drawn_from = tree[level + 1].proposals[0].drawn_from;
            ASSERT_TRUE(drawn_from);
            for (std::size_t i = 0; i < expected.tokens[level].size(); ++i) {
              const auto found = std::ranges::find(*drawn_from, expected.tokens[level][i],
                                                   &TokenProbability::token);
              ASSERT_NE(found, drawn_from->end());
              EXPECT_NEAR(found->probability, expected.probabilities[level][i], kTolerance)
                  << level;
            }
          }
        });
  }
}

// Otherwise the comparisons would say little.
TEST_P(Parallel, TextsAndGuessesVary) {
  int n_masks = 0, n_rows = 0;
  std::map<Token, int> first;
  for (const ExpectedText& text : texts_) {
    n_masks += static_cast<int>(std::ranges::count(text.tokens, mask_));
    EXPECT_GT(text.tokens.size(), 64u);  // of more than a page
    for (const ExpectedDraft& draft : text.drafts) {
      n_rows += draft.n_levels();
      for (const auto& row : draft.tokens) ++first[row[0]];
    }
  }
  EXPECT_GE(n_masks, 3);
  EXPECT_GE(n_rows, 150);
  EXPECT_GE(first.size(), 15u);
  for (const auto& [token, n] : first) EXPECT_LE(n, n_rows / 4) << token;
}

INSTANTIATE_TEST_SUITE_P(, Parallel, ::testing::Values("llama", "qwen2"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace outrider
