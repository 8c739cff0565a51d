// What a draft model gives up for speed: logits of some tokens (LoadOptions::output_ids) and bits
// of its weights (LoadOptions::requantize).

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <limits>
#include <random>
#include <set>

#include "base/error.h"
#include "cpu/backend.h"
#include "formats/gguf.h"
#include "formats/gguf_writer.h"
#include "numerics/dequantize.h"
#include "numerics/encode.h"
#include "support/decoding.h"
#include "support/tiny_model.h"

namespace outrider::testing {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<std::vector<float>> logits_of(Backend& backend, std::span<const Token> text) {
  const SequenceId sequence = backend.begin();
  std::vector<Row> rows;
  std::vector<ChoiceRequest> requests;
  for (std::size_t i = 0; i < text.size(); ++i) {
    rows.push_back(
        {.sequence = sequence,
         .token = text[i],
         .position = static_cast<int>(i),
         .parent = i == 0 ? Parent{CommittedEnd{}} : Parent{EarlierRow{static_cast<int>(i) - 1}},
         .wants_logits = true});
    requests.push_back({.row = static_cast<int>(i), .wants_logits = true});
  }
  std::vector<std::vector<float>> logits;
  for (Choice& choice : backend.choose(backend.forward(rows), requests))
    logits.push_back(std::move(choice.logits));
  backend.end(sequence);
  return logits;
}

const std::vector<Token> kText = {1, 70, 33, 200, 256, 5, 5, 90};

LoadOptions options(int n_threads) {
  return {.context = 64, .batch_rows = 16, .n_threads = n_threads};
}

TEST(OutputIds, GiveTheLogitsOfTheWholeHead) {
  for (const bool tied : {true, false}) {
    for (const TensorType type :
         {TensorType::q4_k, TensorType::q8_0, TensorType::f16, TensorType::q3_k, TensorType::iq4_xs,
          TensorType::iq2_s, TensorType::tq1_0, TensorType::q1_0}) {
      SCOPED_TRACE(fmt::format("tied {} type {}", tied, traits(type).name));
      const Model model = tiny_model({.types = {type}, .tied_output = tied});
      const auto whole = load_cpu(model, options(1));
      const auto expected = logits_of(*whole, kText);
      for (const int one_in : {1, 2, 9}) {
        std::mt19937 random(one_in);
        LoadOptions trimmed = options(2);
        for (Token id = 0; id < model.spec.vocabulary; ++id)
          if (random() % one_in == 0) trimmed.output_ids.push_back(id);
        const auto backend = load_cpu(model, trimmed);
        const auto found = logits_of(*backend, kText);
        for (std::size_t row = 0; row < kText.size(); ++row) {
          ASSERT_EQ(found[row].size(), expected[row].size());
          for (Token id = 0; id < model.spec.vocabulary; ++id) {
            const bool kept = std::ranges::count(trimmed.output_ids, id) == 1;
            ASSERT_EQ(found[row][id], kept ? expected[row][id] : -kInfinity) << id;
          }
        }
      }
    }
  }
}

// Logits of tokens that are added later have the same bits, in whatever order they are added, until
// the room is full.
TEST(OutputIds, GrowWhereThereIsRoom) {
  const Model model = tiny_model({.types = {TensorType::q6_k, TensorType::q8_0}});
  const auto expected = logits_of(*load_cpu(model, options(1)), kText);
  LoadOptions growing = options(2);
  growing.output_ids = {3, 50, 51, 90, 200};
  growing.output_room = 40;
  const auto backend = load_cpu(model, growing);
  const auto expect_outputs = [&](const std::set<Token>& outputs) {
    const auto found = logits_of(*backend, kText);
    for (std::size_t row = 0; row < kText.size(); ++row) {
      ASSERT_EQ(found[row].size(), expected[row].size());
      for (Token id = 0; id < model.spec.vocabulary; ++id)
        ASSERT_EQ(found[row][id], outputs.contains(id) ? expected[row][id] : -kInfinity) << id;
    }
  };
  std::set<Token> kept(growing.output_ids.begin(), growing.output_ids.end());
  std::mt19937 random(5);
  while (kept.size() < 45) {
    std::vector<Token> tokens = {50, static_cast<Token>(model.spec.vocabulary), 100000};
    for (int i = 0; i < 9; ++i) tokens.push_back(static_cast<Token>(random() % 270));
    backend->add_outputs(tokens);
    for (const Token token : tokens)
      if (token < model.spec.vocabulary && kept.size() < 45) kept.insert(token);
    expect_outputs(kept);
  }
  // Added outputs can go, all together, and come again.
  backend->remove_added_outputs();
  backend->remove_added_outputs();
  kept = {growing.output_ids.begin(), growing.output_ids.end()};
  expect_outputs(kept);
  backend->add_outputs(std::vector<Token>{51, 7, 260});
  kept.insert({7, 260});
  expect_outputs(kept);

  LoadOptions fixed = growing;
  fixed.output_room = 0;
  EXPECT_GT(cpu_backends().memory_need(model, growing).weights,
            cpu_backends().memory_need(model, fixed).weights);
}

// The limits of a pass come from what it reads, not from what the file has.
TEST(DraftWeights, AreCountedAsTheyWereLoaded) {
  const Model model = tiny_model({.types = {TensorType::q8_0}});
  const auto operations = [](Backend& backend) {
    PassProfile profile;
    ForwardOptions options;
    options.profile = &profile;
    const SequenceId sequence = backend.begin();
    const Row row{.sequence = sequence, .token = 1, .wants_logits = true};
    backend.forward({&row, 1}, options);
    backend.end(sequence);
    return profile.operations;
  };
  const auto sum = [](const std::vector<PassProfile::Operation>& operations,
                      double PassProfile::Operation::*field) {
    double sum = 0;
    for (const PassProfile::Operation& operation : operations) sum += operation.*field;
    return sum;
  };
  const auto whole = operations(*load_cpu(model, options(2)));
  const double weights = sum(whole, &PassProfile::Operation::weights);
  EXPECT_EQ(weights, weights_per_token(model));
  EXPECT_EQ(sum(whole, &PassProfile::Operation::weight_bytes), weights / 32 * 34);

  LoadOptions less = options(2);
  less.requantize = TensorType::q4_128;
  less.output_ids = {3, 50};
  less.output_room = 4;
  const auto backend = load_cpu(model, less);
  const double embedding = model.spec.embedding;
  for (const double n_outputs : {2.0, 3.0}) {
    const auto found = operations(*backend);
    EXPECT_EQ(found.back().weights, n_outputs * embedding);
    const double left = weights - (model.spec.vocabulary - n_outputs) * embedding;
    EXPECT_EQ(sum(found, &PassProfile::Operation::weights), left);
    EXPECT_EQ(sum(found, &PassProfile::Operation::weight_bytes), left / 128 * 70);
    backend->add_outputs(std::vector<Token>{7});
  }
}

// No saving in a draft model changes a text.
TEST(DraftWeights, LeaveTheTextAsItIs) {
  // Narrow, because the reference kernels are slow.
  TinyOptions tiny{.types = {TensorType::q8_0, TensorType::q5_1}, .n_layers = 2, .embedding = 64};
  const Model target = tiny_model(tiny);
  tiny.perturbation = 0.05;
  const Model draft = tiny_model(tiny);
  const auto tokenizer = make_tokenizer(target.checkpoint->metadata);
  std::vector<Token> prompt;
  for (int i = 0; i < 60; ++i) prompt.push_back((i % 11 * 23 + (i % 17 == 0) * 5 + 30) % 256);
  for (const float temperature : {0.0f, 0.9f}) {
    Task task;
    task.target = &target;
    task.draft = &draft;
    task.tokenizer = tokenizer.get();
    task.prompt = prompt;
    task.n_predict = 24;
    task.sampling.seed = 3;
    task.sampling.filters.temperature = temperature;
    const Decoded plain = decode(task, {});
    for (const auto& [requantize, one_in] : {std::pair{std::optional<TensorType>(), 1},
                                             {TensorType::q4_0, 1},
                                             {{}, 3},
                                             {TensorType::q4_0, 3}}) {
      task.draft_options = {};
      task.draft_options.requantize = requantize;
      task.draft_options.output_room = 20;
      for (Token id = 0; one_in > 1 && id < 256; id += one_in)
        task.draft_options.output_ids.push_back(id);
      for (const Isa isa : available_isas()) {
        SCOPED_TRACE(fmt::format("{} temperature {} one in {}", name(isa), temperature, one_in));
        const Decoded drafted = decode(task, {.draft = "model", .isa = isa});
        EXPECT_EQ(drafted.tokens, plain.tokens);
        EXPECT_GT(drafted.accepted, 0);
      }
    }
  }
}

// A draft model shares the target's noise, which depends on the token, not on its row in the head.
TEST(OutputIds, ChoicesHaveTheNoiseOfTheirTokens) {
  const Model model = tiny_model({});
  const auto whole = load_cpu(model, options(1));
  LoadOptions trimmed = options(1);
  std::vector<std::uint64_t> allowed((model.spec.vocabulary + 63) / 64);
  for (Token id = 3; id < model.spec.vocabulary; id += 4) {
    trimmed.output_ids.push_back(id);
    allowed[id / 64] |= std::uint64_t{1} << (id % 64);
  }
  const auto backend = load_cpu(model, trimmed);
  std::set<Token> winners;
  for (int position = 0; position < 50; ++position) {
    const auto ask = [&](Backend& of) {
      const SequenceId sequence = of.begin();
      const Row row{.sequence = sequence, .token = 7, .wants_logits = true};
      ChoiceRequest request{.filters = {.top_k = 0, .top_p = 1, .min_p = 0, .temperature = 8},
                            .noise = {.seed = 5, .position = static_cast<std::uint32_t>(position)},
                            .n_best = 3};
      if (&of == whole.get()) request.allowed = allowed;
      const Choice choice = of.choose(of.forward({&row, 1}), {&request, 1})[0];
      of.end(sequence);
      return choice;
    };
    const Choice expected = ask(*whole), found = ask(*backend);
    ASSERT_EQ(found.token, expected.token);
    for (std::size_t i = 0; i < 3; ++i) {
      EXPECT_EQ(found.best[i].token, expected.best[i].token);
      EXPECT_EQ(found.best[i].score, expected.best[i].score);
    }
    winners.insert(*found.token);
  }
  EXPECT_GT(winners.size(), 10u);  // so the noise decided
}

// A file whose larger matrices are encoded before it is loaded gives the same logits.
TEST(Requantize, EncodesTheMatricesThatAreLarger) {
  using enum TensorType;
  for (const TensorType type : {q4_128, q4_0, q8_0}) {
    const TinyOptions tiny{.types = {q6_k, q4_k, f16, q8_0, q4_0}, .tied_output = false};
    const Model model = tiny_model(tiny);
    GgufWriter writer;
    for (const auto& [key, value] : model.checkpoint->metadata.entries()) writer.add(key, value);
    for (const TensorView& tensor : model.checkpoint->tensors)
      writer.add_tensor(tensor.name, tensor.type, tensor.shape, tensor.bytes);
    const std::vector<std::byte> bytes = writer.bytes();
    const auto encoded = std::make_shared<Checkpoint>(read_gguf(bytes, "encoded.gguf"));
    std::deque<std::vector<std::byte>> all_blocks;
    for (TensorView& tensor : encoded->tensors) {
      // Embeddings are read from the file, and vectors stay floats.
      if (tensor.shape.size() < 2 || tensor.name == "token_embd.weight") continue;
      const auto kept = type == q8_0 ? std::set{q6_k, q4_k, q8_0, q4_0} : std::set{q4_k, q4_0};
      if (kept.contains(tensor.type)) continue;
      std::vector<float> values(tensor.elements());
      dequantize(tensor.type, tensor.bytes, values);
      const TensorTypeTraits& to = traits(type);
      std::vector<std::byte>& blocks =
          all_blocks.emplace_back(values.size() / to.block_elements * to.block_bytes);
      encode(type, values, blocks);
      tensor.type = type;
      tensor.bytes = blocks;
    }
    EXPECT_GT(all_blocks.size(), 3u);
    const auto before = load_cpu(interpret_checkpoint(encoded), options(1));

    LoadOptions requantized = options(2);
    requantized.requantize = type;
    const auto backend = load_cpu(model, requantized);
    const auto found = logits_of(*backend, kText);
    EXPECT_EQ(found, logits_of(*before, kText));
    EXPECT_NE(found, logits_of(*load_cpu(model, options(1)), kText));
    EXPECT_LT(cpu_backends().memory_need(model, requantized).weights,
              cpu_backends().memory_need(model, options(2)).weights);

    // Both savings together.
    for (Token id = 1; id < model.spec.vocabulary; id += 3) requantized.output_ids.push_back(id);
    const auto trimmed = logits_of(*load_cpu(model, requantized), kText);
    for (std::size_t row = 0; row < kText.size(); ++row)
      for (const Token id : requantized.output_ids) ASSERT_EQ(trimmed[row][id], found[row][id]);
  }
}

}  // namespace
}  // namespace outrider::testing
