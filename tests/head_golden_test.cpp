// Heads say what the reference classes of their producers say: small random heads in each layout,
// teacher-forced over one text that crosses the end of a page (scripts/golden/heads.py).

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "cpu/backend.h"
#include "formats/gguf.h"
#include "formats/npy.h"
#include "model/block_rows.h"
#include "runtime/drafter_registry.h"
#include "runtime/head_file.h"
#include "sampling/fake_tokenizer.h"

namespace outrider {
namespace {

using Json = nlohmann::json;

constexpr int kDepths = 3;
constexpr float kTolerance = 1e-4f;  // of the largest logit of a depth

std::string folder_of(const std::string& name) {
  return OUTRIDER_GOLDEN_DIR "/heads/" + name;
}

// The head of an archive, which may be in the file of its target.
std::string head_in(const std::string& folder) {
  for (const char* name : {"/head", "/head.gguf"})
    if (std::filesystem::exists(folder + name)) return folder + name;
  return folder + "/model.gguf";
}

class HeadGolden : public ::testing::TestWithParam<const char*> {
 protected:
  HeadGolden() {
    const Json expected = Json::parse(std::ifstream(folder_ + "/expected.json"));
    tokens_ = expected["tokens"].get<std::vector<Token>>();
    columns_ = expected["columns"].get<std::vector<Token>>();
    model_ = interpret_checkpoint(std::make_shared<const Checkpoint>(
        read_gguf(folder_of(expected["target"]) + "/model.gguf")));
    head_ = open_head(head_in(folder_), model_);
    // MiMo's makers give its layer the state before the norm, the reference the normed one.
    if (head_.producer == "MiMo") head_.model.spec.eagle->taps = {model_.spec.n_layers()};
    load();
  }

  // The head as it is read now.
  void load() {
    const DrafterKind& kind = *parse_draft("eagle=head", "").at(0).kind;  // which loads as all do
    const FakeTokenizer tokenizer(
        std::vector<std::string>(static_cast<std::size_t>(model_.spec.vocabulary), "x"));
    LoadOptions options = kind.head_options(
        head_, tokenizer, {{"--draft-quantize", "off"}, {"--draft-vocab", "all"}});
    backend_ = load_cpu(
        model_,
        {.context = 128,
         .n_slots = 256,
         .batch_rows = 128,
         .cache_type = CacheType::f32,
         .n_threads = 2,
         .head = std::make_shared<const HeadToLoad>(HeadToLoad{head_.model, std::move(options)})});
    sequence_ = backend_->head()->begin();
  }

  // Logits with the rows from `first` on of what is expected.
  void compare(const std::vector<Choice>& choices, const NpyMatrix& expected, std::size_t first) {
    float largest = 0;
    for (std::size_t row = 0; row < expected.rows(); ++row)
      for (const float logit : expected.row(row)) largest = std::max(largest, std::abs(logit));
    ASSERT_LE(first + choices.size(), expected.rows());
    for (std::size_t row = 0; row < choices.size(); ++row) {
      const std::vector<float> logits = expected.row(first + row);
      ASSERT_EQ(logits.size(), columns_.size());
      for (std::size_t column = 0; column < logits.size(); ++column)
        ASSERT_NEAR(choices[row].logits.at(columns_[column]), logits[column], kTolerance * largest)
            << "row " << first + row << " token " << columns_[column];
    }
  }

  NpyMatrix expected_of(int depth, std::string_view reading = "") const {
    return NpyMatrix(fmt::format("{}/depth{}{}.npy", folder_, depth, reading));
  }

  Pass compute_target() {
    std::vector<Row> rows;
    for (int i = 0; i < std::ssize(tokens_); ++i)
      rows.push_back({.sequence = sequence_,
                      .token = tokens_[i],
                      .position = i,
                      .parent = i == 0 ? Parent{CommittedEnd{}} : Parent{EarlierRow{i - 1}}});
    return backend_->forward(rows);
  }

  void compare_levels(std::string_view reading);

  const std::string folder_ = folder_of(GetParam());
  std::vector<Token> tokens_, columns_;  // columns_: tokens of the expected logits
  Model model_;
  Head head_;
  std::unique_ptr<Backend> backend_;
  SequenceId sequence_;
};

// Depth 1 goes on from the target's features at every position; depth d from the head's own state
// of depth d - 1, along the text, of which there may be another reading.
void HeadGolden::compare_levels(std::string_view reading) {
  const Pass target = compute_target();
  Backend& head = *backend_->head();
  const int n = static_cast<int>(tokens_.size());
  const ModelSpec& spec = head.spec();
  const int state = spec.eagle->state_is_normed ? spec.n_layers() : spec.n_layers() - 1;
  std::vector<SlotId> slots;  // of the rows of one depth, by the position they began at
  std::vector<std::vector<float>> states;  // the head's there
  for (int depth = 1; depth <= kDepths; ++depth) {
    SCOPED_TRACE(fmt::format("depth {}", depth));
    std::vector<Row> rows;
    if (depth == 1)
      rows.push_back(
          {.sequence = sequence_, .token = tokens_[0], .position = 0, .slot = target.slots[0]});
    const int n_before = static_cast<int>(rows.size());
    // Row i begins at position i + 1.
    for (int i = 0; i + depth < n; ++i) {
      Row& row = rows.emplace_back(Row{.sequence = sequence_,
                                       .token = tokens_[i + depth],
                                       .position = i + depth,
                                       .wants_logits = true});
      if (depth == 1) {
        row.before = TargetRow{i};
        row.slot = target.slots[i + 1];
      } else {
        row.before = std::span<const float>(states[i]);
        row.parent = slots[i];
      }
    }
    const Pass pass = head.forward(rows, {.taps = {state}});
    std::vector<std::vector<float>> next;
    std::vector<ChoiceRequest> requests;
    for (int row = n_before; row < std::ssize(rows); ++row) {
      next.push_back(head.read_tap(pass, 0, row));
      requests.push_back({.row = row, .filters = {.temperature = 0}, .wants_logits = true});
    }
    const std::vector<Choice> choices = head.choose(pass, requests);
    compare(choices, expected_of(depth, depth == 1 ? "" : reading), 0);
    states = std::move(next);
    slots.assign(pass.slots.begin() + n_before, pass.slots.end());
  }
}

TEST_P(HeadGolden, SaysWhatTheReferenceSays) {
  compare_levels("");
}

// With its own state fed back before the norm.
class RawStateGolden : public HeadGolden {};

TEST_P(RawStateGolden, SaysWhatTheReferenceSays) {
  head_.model.spec.eagle->state_is_normed = false;
  load();
  compare_levels("-raw");
}

// Each head from the state of each position, one token of the text after another.
class MedusaGolden : public HeadGolden {};

TEST_P(MedusaGolden, SaysWhatTheReferenceSays) {
  Backend& head = *backend_->head();
  const int n_heads = head.spec().medusa->n_heads;
  for (int position = 0; position < std::ssize(tokens_); ++position) {
    SCOPED_TRACE(fmt::format("position {}", position));
    const Row row{.sequence = sequence_, .token = tokens_[position], .position = position};
    const Pass target = backend_->forward({&row, 1});
    backend_->commit(sequence_, target.slots);
    std::vector<Row> rows;
    std::vector<ChoiceRequest> requests;
    for (int i = 0; i < n_heads; ++i) {
      rows.push_back(
          {.sequence = sequence_, .token = 0, .position = position + 1 + i, .wants_logits = true});
      requests.push_back({.row = i, .filters = {.temperature = 0}, .wants_logits = true});
    }
    const std::vector<Choice> choices = head.choose(head.forward(rows), requests);
    for (int i = 0; i < n_heads; ++i)
      compare({choices[i]}, expected_of(i + 1), static_cast<std::size_t>(position));
  }
}

// Blocks after anchors in the text, and what the text's tokens make of them.
class BlockGolden : public HeadGolden {
 protected:
  std::optional<NpyMatrix> matrix(const char* name) const {
    const std::string path = fmt::format("{}/{}.npy", folder_, name);
    if (!std::filesystem::exists(path)) return {};
    return NpyMatrix(path);
  }
  void compare_blocks(const char* reading);
};

void BlockGolden::compare_blocks(const char* reading) {
  Backend& head = *backend_->head();
  const BlockInput& block = *head.spec().block;
  const Json expected = Json::parse(std::ifstream(folder_ + "/expected.json"));
  EXPECT_EQ(block.anchor_guesses, expected["sample_from_anchor"].get<bool>());
  const auto base = matrix(reading), completed = matrix("markov"),
             confidences = matrix("confidence");
  EXPECT_EQ(block.successor_rank > 0, completed.has_value());
  EXPECT_EQ(block.has_confidence, confidences.has_value());
  const Pass target = compute_target();
  std::vector<Row> text;
  for (int i = 0; i < std::ssize(tokens_); ++i)
    text.push_back({.sequence = sequence_,
                    .token = tokens_[i],
                    .position = i,
                    .before = TargetRow{i},
                    .slot = target.slots[i]});
  head.forward(text);
  std::size_t first = 0;
  for (const int anchor : expected["anchors"].get<std::vector<int>>()) {
    SCOPED_TRACE(fmt::format("anchor {}", anchor));
    const std::vector<Row> rows = block_rows(block,
                                             {.sequence = sequence_,
                                              .anchor = tokens_[anchor],
                                              .position = anchor,
                                              .parent = target.slots[anchor - 1]},
                                             block.n_rows);
    const auto answers = [&](const Pass& pass, std::span<const Row> asked) {
      std::vector<ChoiceRequest> requests;
      for (int row = 0; row < std::ssize(asked); ++row)
        if (asked[row].wants_logits)
          requests.push_back({.row = row, .filters = {.temperature = 0}, .wants_logits = true});
      return head.choose(pass, requests);
    };
    const std::vector<Choice> said = answers(head.forward(rows), rows);
    compare(said, *base, first);
    if (completed) {
      // In two passes, so that the second one finds the block as the first one did; with a memory
      // one after another.
      const int n = static_cast<int>(said.size());
      std::vector<float> memory;
      for (int begin = 0, end = 0; begin < n; begin = end) {
        end = block.successors_remember ? begin + 1 : begin == 0 ? 2 : n;
        std::vector<Row> completing;
        for (int i = begin; i < end; ++i)
          completing.push_back({.sequence = sequence_,
                                .token = tokens_[anchor + i],
                                .position = anchor + i,
                                .wants_logits = true,
                                .before = BlockRow{block.first_guess() + i, memory}});
        ForwardOptions options;
        if (block.successors_remember) options.taps = {kMemoryTap};
        const Pass pass = head.forward(completing, options);
        compare(answers(pass, completing), *completed, first + static_cast<std::size_t>(begin));
        if (block.successors_remember) memory = head.read_tap(pass, 0, 0);
        for (int i = begin; confidences && i < end; ++i) {
          const float sum = confidences->row(first + static_cast<std::size_t>(i))[0];
          ASSERT_NEAR(head.read_confidence(pass, i - begin).value(), 1 / (1 + std::exp(-sum)),
                      1e-5);
        }
      }
    }
    first += said.size();
  }
  EXPECT_EQ(first, base->rows());
}

TEST_P(BlockGolden, SaysWhatTheReferenceSays) {
  compare_blocks("base");
}

// Where speculators has the window of the position before the anchor for all rows, other programs
// have each row's own.
class OwnWindowGolden : public BlockGolden {};

TEST_P(OwnWindowGolden, SaysWhatTheReferenceSays) {
  ASSERT_TRUE(head_.model.spec.block->windows_end_at_anchor);
  head_.model.spec.block->windows_end_at_anchor = false;
  load();
  compare_blocks("base-window-by-row");
}

// A model with a head in its own file is no head unless that is asked for.
TEST(HeadGoldenFiles, AModelWithAHeadIsAModel) {
  const std::string file = folder_of("gguf-mtp") + "/model.gguf";
  EXPECT_FALSE(names_head(file));
  const Model model = interpret_checkpoint(std::make_shared<const Checkpoint>(read_gguf(file)));
  EXPECT_TRUE(has_prediction_layer(*model.checkpoint));
  EXPECT_EQ(open_head(file, model).model.checkpoint, model.checkpoint);
  EXPECT_TRUE(left_out_texts(model, true).empty());
  EXPECT_THROW(open_head(folder_of("target-llama") + "/model.gguf", model), Error);
}

std::string test_name(const ::testing::TestParamInfo<const char*>& tested) {
  std::string name = tested.param;
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(, MedusaGolden,
                         ::testing::Values("medusa", "medusa-tgi", "medusa-vllm",
                                           "medusa-vllm-shared"),
                         test_name);
INSTANTIATE_TEST_SUITE_P(, BlockGolden,
                         ::testing::Values("dflash", "dflash-sliding", "dflash-speculators",
                                           "dflash-speculators-sliding",
                                           "dflash-speculators-causal", "dflash-deepspec", "dspark",
                                           "dspark-gated", "dspark-mask-first", "dspark-deepspec",
                                           "dspark-specforge", "gguf-dflash", "gguf-dspark",
                                           "gguf-dspark-mask-first"),
                         test_name);
INSTANTIATE_TEST_SUITE_P(, OwnWindowGolden,
                         ::testing::Values("dflash-speculators-sliding",
                                           "dflash-speculators-causal"),
                         test_name);
INSTANTIATE_TEST_SUITE_P(, RawStateGolden, ::testing::Values("mtp-deepseek"), test_name);
INSTANTIATE_TEST_SUITE_P(, HeadGolden,
                         ::testing::Values("eagle1", "eagle1-nobias", "eagle1-qwen2",
                                           "mtp-deepseek", "mtp-mimo", "mtp-qwen",
                                           "mtp-speculators", "speculators", "speculators-residual",
                                           "speculators-input-norm", "speculators-qwen3",
                                           "speculators-eagle31", "specforge", "specforge-fc-norm",
                                           "official", "deepspec", "gguf", "gguf-input-norm",
                                           "gguf-mtp"),
                         test_name);

}  // namespace
}  // namespace outrider
