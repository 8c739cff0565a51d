// As toy_test.cpp, of further kinds of heads (scripts/golden/toy_heads.py): EAGLE-1, multi-token
// prediction, DFlash and DSpark. A head that is read wrongly is right less often.

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <utility>
#include <variant>

#include "formats/safetensors.h"
#include "formats/safetensors_writer.h"
#include "model/block_rows.h"
#include "numerics/dequantize.h"
#include "runtime/head_file.h"
#include "speculation/head_agreement.h"
#include "support/toy.h"

namespace outrider {
namespace {

namespace fs = std::filesystem;

// What is asked of a head of blocks, and how.
struct Asking {
  int shift = 0;          // of the position whose features a row of the text takes
  int token_shift = 0;    // of the tokens that complete rows
  bool completes = true;  // rows, where the head has a Markov head
};

class ToyHeads : public ::testing::Test, protected testing::ToyModel {
 protected:
  static constexpr int kAnchorsApart = 4;  // in the files

  ToyHeads() : ToyModel("toy_heads") {}

  struct BlockAnswers {
    Answers tokens;                                              // [guess][text][anchor]
    std::vector<std::vector<std::optional<float>>> confidences;  // the same way
  };

  // After anchors at positions kFirst, kFirst + kAnchorsApart and so on.
  BlockAnswers answers_of_blocks(const Head& read, const Asking& asking = {}) const {
    const auto backend = load(read);
    Backend& head = *backend->head();
    const BlockInput& block = *head.spec().block;
    const int first = block.first_guess(), n_guesses = block.n_guesses();
    BlockAnswers answers;
    answers.tokens.resize(static_cast<std::size_t>(n_guesses));
    answers.confidences.resize(static_cast<std::size_t>(n_guesses));
    for (int index = 0; index < kTexts; ++index) {
      const OwnedSequence sequence(head);
      const std::span<const Token> tokens = text(index);
      const Pass target = compute_target(*backend, sequence.id(), tokens);
      std::vector<Row> of_text, rows, completing;
      for (int i = 0; i < kLength; ++i)
        of_text.push_back({.sequence = sequence.id(),
                           .token = tokens[i],
                           .position = i,
                           .before = TargetRow{std::clamp(i + asking.shift, 0, kLength - 1)},
                           .slot = target.slots[i]});
      head.forward(of_text);
      for (int anchor = kFirst; anchor < kEnd; anchor += kAnchorsApart) {
        const int begin = static_cast<int>(rows.size());
        const std::vector<Row> asked = block_rows(block,
                                                  {.sequence = sequence.id(),
                                                   .anchor = tokens[anchor],
                                                   .position = anchor,
                                                   .parent = target.slots[anchor - 1],
                                                   .first_row = begin},
                                                  n_guesses);
        rows.insert(rows.end(), asked.begin(), asked.end());
        for (int guess = 0; guess < n_guesses; ++guess)
          completing.push_back({.sequence = sequence.id(),
                                .token = tokens[anchor + guess + asking.token_shift],
                                .position = anchor + guess,
                                .wants_logits = true,
                                .before = BlockRow{begin + first + guess}});
      }
      Pass pass = head.forward(rows);
      const bool completes = block.successor_rank > 0 && asking.completes;
      if (completes) pass = head.forward(completing);
      const std::vector<Token> said = best(head, pass, completes ? completing : rows);
      for (std::size_t i = 0; i < said.size(); ++i) {
        const std::size_t guess = i % static_cast<std::size_t>(n_guesses);
        answers.tokens[guess].push_back(said[i]);
        if (completes)
          answers.confidences[guess].push_back(head.read_confidence(pass, static_cast<int>(i)));
      }
    }
    return answers;
  }

  // By what the runtime tries readings with, of each text by itself.
  std::vector<bool> measured(const Head& read) const {
    const auto backend = load(read);
    std::vector<bool> right;
    for (int index = 0; index < kTexts; ++index)
      for (const bool is_right : measure_agreement(*backend, text(index), {}))
        right.push_back(is_right);
    return right;
  }

  double agreement_of_blocks(const BlockAnswers& answers, int guess) const {
    return agreement(answers.tokens.at(static_cast<std::size_t>(guess)), guess, kAnchorsApart);
  }

  void expect_same(const Answers& answers, const std::string& file) const {
    for (const double share : shares_of_same(answers, file)) EXPECT_GE(share, 99.5);
  }

  // A head of which something is changed. Losses are in points.
  using Change = std::function<void(ModelSpec&)>;
  static Head changed(Head head, const Change& change) {
    change(head.model.spec);
    return head;
  }
  static double said_loss(const std::string& name, double right, double wrong) {
    std::printf("%s: %.2f points\n", name.c_str(), right - wrong);
    return right - wrong;
  }
};

TEST_F(ToyHeads, ChainsSayWhatTheReferencesSay) {
  for (const std::string kind : {"eagle1", "mtp"}) {
    SCOPED_TRACE(kind);
    const Answers answers = answers_of_chain(read(kind));
    expect_same(answers, kind + ".npy");
    EXPECT_GE(agreement(answers[0], 0), bigram_ + 15);
  }
}

// How another producer writes the layer for multi-token prediction.
struct Layout {
  const char *producer, *layer, *fusion, *token_norm, *state_norm, *output_norm;
  bool is_state_first = false, norms_are_less_one = false;

  std::string name_of(std::string_view name) const {
    constexpr std::string_view kLayer = "mtp_layers.0.";
    const std::string own(name.substr(kLayer.size()));
    for (const auto& [known, other] :
         {std::pair("input_proj.weight", fusion), std::pair("token_layernorm.weight", token_norm),
          std::pair("hidden_layernorm.weight", state_norm),
          std::pair("final_layernorm.weight", output_norm)})
      if (own == known) return other;
    return layer + own;
  }
};

// The toy's layer, which speculators wrote, in another layout.
void write_layer(const fs::path& from, const Layout& layout, const fs::path& to) {
  fs::create_directories(to);
  std::ifstream config(from / "config.json");
  std::ofstream(to / "config.json") << nlohmann::json::parse(config)["transformer_layer_config"];
  const Checkpoint file = read_safetensors(from / "model.safetensors");
  std::vector<TensorToWrite> tensors;
  for (const TensorView& tensor : file.tensors) {
    const bool is_norm = tensor.shape.size() == 1;
    const auto n = static_cast<std::size_t>(tensor.elements());
    std::vector<float> values(n);
    dequantize(tensor.type, tensor.bytes, values);
    if (is_norm && layout.norms_are_less_one)
      for (float& value : values) value -= 1;
    const auto columns = static_cast<std::size_t>(tensor.columns());
    if (tensor.name.ends_with("input_proj.weight") && layout.is_state_first)
      for (auto row = values.begin(); row != values.end(); row += columns)
        std::rotate(row, row + columns / 2, row + columns);
    std::vector<std::int64_t> shape{tensor.columns()};
    if (!is_norm) shape.insert(shape.begin(), tensor.rows());
    tensors.push_back({layout.name_of(tensor.name), TensorType::f32, std::move(shape),
                       [values](const TensorToWrite::Append& append) {
                         append(std::as_bytes(std::span(values)));
                       }});
  }
  write_safetensors(to / "model.safetensors", tensors, {{"format", "pt"}});
}

TEST_F(ToyHeads, ALayerSaysTheSameInEveryLayout) {
  const EagleInput right = *read("mtp").model.spec.eagle;
  for (const Layout& layout :
       {Layout{"DeepSeek", "model.layers.8.", "model.layers.8.eh_proj.weight",
               "model.layers.8.enorm.weight", "model.layers.8.hnorm.weight",
               "model.layers.8.shared_head.norm.weight"},
        Layout{"Qwen", "mtp.layers.0.", "mtp.fc.weight", "mtp.pre_fc_norm_embedding.weight",
               "mtp.pre_fc_norm_hidden.weight", "mtp.norm.weight", false,
               /*norms_are_less_one=*/true},
        Layout{"MiMo", "model.mtp_layers.0.", "model.mtp_layers.0.input_proj.weight",
               "model.mtp_layers.0.token_layernorm.weight",
               "model.mtp_layers.0.hidden_layernorm.weight",
               "model.mtp_layers.0.final_layernorm.weight", /*is_state_first=*/true}}) {
    SCOPED_TRACE(layout.producer);
    const fs::path folder =
        fs::path(::testing::TempDir()) / fmt::format("{}_{}", ::getpid(), layout.producer);
    write_layer(path_of("mtp"), layout, folder);
    Head head = open_head(folder.string(), model_);
    fs::remove_all(folder);  // it is mapped
    EXPECT_EQ(head.producer, layout.producer);
    // Which states it takes was speculators' to choose.
    head.model.spec.eagle->taps = right.taps;
    head.model.spec.eagle->state_is_normed = right.state_is_normed;
    expect_same(answers_of_chain(head), "mtp.npy");
  }
}

TEST_F(ToyHeads, BlocksSayWhatTheReferencesSay) {
  for (const std::string kind : {"dflash", "dspark"}) {
    SCOPED_TRACE(kind);
    const BlockAnswers answers = answers_of_blocks(read(kind));
    expect_same(answers.tokens, kind + ".npy");
    EXPECT_GE(agreement_of_blocks(answers, 0), bigram_ + 15);
  }
}

TEST_F(ToyHeads, MistakesOfChainsShow) {
  for (const std::string kind : {"eagle1", "mtp"}) {
    SCOPED_TRACE(kind);
    const Head right = read(kind);
    const Answers answers = answers_of_chain(right);
    const auto loss = [&](const std::string& name, std::size_t depth, const Answers& wrong) {
      return said_loss(kind + ", " + name, agreement(answers[depth], 0),
                       agreement(wrong[depth], 0));
    };
    const auto changing = [&](const Change& change) {
      return answers_of_chain(changed(right, change));
    };
    for (const int shift : {1, -1})
      EXPECT_GE(loss(fmt::format("state of {:+}", shift), 0, answers_of_chain(right, shift)), 15);
    EXPECT_GE(loss("the other side of the final norm", 0, changing([&](ModelSpec& spec) {
                     const int normed = model_.spec.n_layers();
                     int& tap = spec.eagle->taps.at(0);
                     tap = tap == normed ? normed - 1 : normed;
                   })),
              3);
    EXPECT_GE(loss("state before token", 0, changing([](ModelSpec& spec) {
                     spec.eagle->fused = EagleInput::Fused::state_and_token;
                   })),
              15);
    // EAGLE-1's has no norm.
    if (kind == "mtp") {
      EXPECT_GE(loss("own state before its norm", 1,
                     changing([](ModelSpec& spec) { spec.eagle->state_is_normed = false; })),
                3);
    }
  }
}

Attention& attention_of_layer(ModelSpec& spec, std::size_t layer) {
  return std::get<Attention>(spec.layers.at(layer).operations.at(0).body);
}

TEST_F(ToyHeads, MistakesOfBlocksShow) {
  for (const std::string kind : {"dflash", "dspark"}) {
    SCOPED_TRACE(kind);
    const Head right = read(kind);
    const BlockAnswers answers = answers_of_blocks(right);
    const auto loss = [&](const std::string& name, int guess, const BlockAnswers& wrong) {
      return said_loss(kind + ", " + name, agreement_of_blocks(answers, guess),
                       agreement_of_blocks(wrong, guess));
    };
    const auto changing = [&](const Change& change) {
      return answers_of_blocks(changed(right, change));
    };
    for (const int shift : {1, -1})
      EXPECT_GE(
          loss(fmt::format("states of {:+}", shift), 0, answers_of_blocks(right, {.shift = shift})),
          15);
    for (std::size_t tap = 0; tap < right.model.spec.block->taps.size(); ++tap)
      for (const int by : {1, -1})
        EXPECT_GE(loss(fmt::format("tap {} {:+} layer", tap, by), 0,
                       changing([&](ModelSpec& spec) { spec.block->taps[tap] += by; })),
                  3);
    EXPECT_GE(loss("another row", 0,
                   changing([](ModelSpec& spec) { spec.block->anchor_guesses ^= true; })),
              15);
    EXPECT_GE(loss("another mask", 1, changing([](ModelSpec& spec) { ++spec.block->mask; })), 3);
    EXPECT_GE(loss("causal", 0, changing([](ModelSpec& spec) {
                     for (std::size_t layer = 0; layer < spec.layers.size(); ++layer)
                       attention_of_layer(spec, layer).sees_block = false;
                   })),
              3);
  }
}

TEST_F(ToyHeads, MistakesOfDsparkShow) {
  const Head right = read("dspark");
  const BlockAnswers answers = answers_of_blocks(right);
  const auto loss = [&](const std::string& name, int guess, const BlockAnswers& wrong) {
    return said_loss(name, agreement_of_blocks(answers, guess), agreement_of_blocks(wrong, guess));
  };
  EXPECT_GE(loss("no Markov head", 1, answers_of_blocks(right, {.completes = false})), 3);
  for (const int shift : {1, -1})
    EXPECT_GE(loss(fmt::format("tokens before of {:+}", shift), 1,
                   answers_of_blocks(right, {.token_shift = shift})),
              3);
  const auto with_window = [&](std::optional<int> window) {
    return answers_of_blocks(changed(right, [&](ModelSpec& spec) {
      for (std::size_t layer = 0; layer < spec.layers.size(); ++layer)
        attention_of_layer(spec, layer).window = window;
    }));
  };
  EXPECT_GE(loss("twice the window", 0, with_window(24)), 3);
  EXPECT_GE(loss("no window", 0, with_window({})), 3);
}

// The means of the confidence where a row is right and where it is not are the reference's.
TEST_F(ToyHeads, ConfidencesTellRightFromWrong) {
  const BlockAnswers answers = answers_of_blocks(read("dspark"));
  const auto& expected = figures_["dspark_confidence"];
  for (std::size_t guess = 0; guess < answers.tokens.size(); ++guess) {
    SCOPED_TRACE(fmt::format("guess {}", guess));
    const int n_anchors = (kEnd - kFirst) / kAnchorsApart;
    double sums[2] = {}, counts[2] = {};  // of wrong ones, of right ones
    for (int i = 0; i < std::ssize(answers.tokens[guess]); ++i) {
      const int position = kFirst + i % n_anchors * kAnchorsApart + static_cast<int>(guess);
      const auto place = static_cast<std::size_t>(i);
      const bool is_right = answers.tokens[guess][place] == own(i / n_anchors, position);
      sums[is_right] += 100 * answers.confidences[guess][place].value();
      counts[is_right] += 1;
    }
    const double wrong = sums[0] / counts[0], right = sums[1] / counts[1];
    EXPECT_NEAR(right, expected["right"][guess].get<double>(), 0.5);
    EXPECT_NEAR(wrong, expected["wrong"][guess].get<double>(), 0.5);
    EXPECT_GT(right, wrong + 3);
  }
}

// What the runtime does with a file that leaves open which states are meant.
TEST_F(ToyHeads, TheRightReadingIsClearlyBetter) {
  const Head right = read("mtp");
  const std::vector<bool> of_right = measured(right);
  EXPECT_GT(share_of_right(of_right), 0.4);
  EXPECT_EQ(right.other_readings.size(), 3u);
  for (const Head::Reading& reading : right.other_readings) {
    SCOPED_TRACE(reading.name);
    const Head wrong = changed(right, [&](ModelSpec& spec) { spec.eagle = reading.input; });
    const std::vector<bool> of_wrong = measured(wrong);
    EXPECT_TRUE(is_clearly_better(of_wrong, of_right));
    EXPECT_FALSE(is_clearly_better(of_right, of_wrong));
  }
}

TEST_F(ToyHeads, TheRightTapsOfBlocksAreClearlyBetter) {
  for (const std::string kind : {"dflash", "dspark"}) {
    SCOPED_TRACE(kind);
    const Head right = read(kind);
    const std::vector<bool> of_right = measured(right);
    EXPECT_GT(share_of_right(of_right), 0.25);
    const Head wrong = changed(right, [](ModelSpec& spec) {
      for (int& tap : spec.block->taps) ++tap;
    });
    const std::vector<bool> of_wrong = measured(wrong);
    EXPECT_TRUE(is_clearly_better(of_wrong, of_right));
    EXPECT_FALSE(is_clearly_better(of_right, of_wrong));
  }
}

// Trained heads are often right, and change nothing.
TEST_F(ToyHeads, SpeculationGainsAndChangesNothing) {
  struct Case {
    const char *folder, *drafter;
    int n_accepted;  // at least
  };
  for (const Case& c :
       {Case{"eagle1", "eagle", kPredicted / 3}, Case{"mtp", "mtp", kPredicted / 3},
        Case{"dflash", "dflash", kPredicted / 4}, Case{"dspark", "dspark", kPredicted / 4}})
    for (const float temperature : {0.0f, 0.8f}) {
      SCOPED_TRACE(fmt::format("{} at {}", c.folder, temperature));
      const auto [plain, drafted] = decode_both(read(c.folder), c.drafter, temperature);
      EXPECT_EQ(drafted.tokens, plain.tokens);
      EXPECT_GT(drafted.accepted, c.n_accepted);
      std::printf("%s at %.1f: %ld of %d tokens were drafted\n", c.folder, temperature,
                  drafted.accepted, kPredicted);
    }
}

}  // namespace
}  // namespace outrider
