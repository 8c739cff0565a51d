// A head with fewer outputs says of these tokens what it says with all, bit for bit, and nothing of
// the others (LoadOptions::output_ids): every kind whose file names no tokens of its own.

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>

#include "cpu/backend.h"
#include "model/block_rows.h"
#include "runtime/drafter_registry.h"
#include "sampling/fake_tokenizer.h"
#include "support/tiny_head.h"
#include "support/tiny_model.h"

namespace outrider::testing {
namespace {

using Logits = std::vector<std::vector<float>>;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int kAnchor = 7;  // the position in kText
const std::vector<Token> kText = {1, 70, 33, 200, 256, 5, 5, 90, 31, 7, 276, 14};

const Model& target_model() {
  static const Model model =
      tiny_model({.types = {TensorType::f16}, .n_layers = 3, .embedding = 64});
  return model;
}

struct Case {
  const char* name;
  std::shared_ptr<const HeadToLoad> head;  // with all outputs
};

std::vector<Case> cases() {
  const Model& target = target_model();
  return {{"eagle", tiny_head_to_load(target, {.rows = 0})},
          {"eagle1", tiny_eagle1_to_load(target)},
          {"mtp", tiny_mtp_to_load(target)},
          {"dflash", tiny_block_to_load(target)},
          {"dspark", tiny_block_to_load(target, {.rank = 8})},
          {"dspark with a memory", tiny_block_to_load(target, {.rank = 8, .remembers = true})},
          {"medusa", tiny_medusa_to_load(target)}};
}

// As --draft-vocab and --draft-quantize say.
std::unique_ptr<Backend> load(const Case& tested, const char* vocabulary, const char* type) {
  FakeTokenizer tokenizer(
      std::vector<std::string>(static_cast<std::size_t>(target_model().spec.vocabulary), "x"));
  // Of the tokens that are kept these come first, so that rows come from all over the matrix.
  for (Token token = 3; token < tokenizer.size(); token += 9) tokenizer.control.push_back(token);
  const DrafterKind& kind = *parse_draft("eagle=head", "").at(0).kind;  // which loads as all do
  const Head head{.model = tested.head->model, .kind = tested.name, .producer = "tests"};
  LoadOptions options = kind.head_options(
      head, tokenizer, {{"--draft-vocab", vocabulary}, {"--draft-quantize", type}});
  return load_cpu(target_model(), {.context = 64,
                                   .batch_rows = 32,
                                   .cache_type = CacheType::f32,
                                   .n_threads = 2,
                                   .head = std::make_shared<const HeadToLoad>(
                                       HeadToLoad{tested.head->model, std::move(options)})});
}

// Of every row of a pass that wants some.
void add_logits(Backend& head, const Pass& pass, std::span<const Row> rows, Logits& logits) {
  std::vector<ChoiceRequest> requests;
  for (int row = 0; row < std::ssize(rows); ++row)
    if (rows[row].wants_logits)
      requests.push_back({.row = row, .filters = {.temperature = 0}, .wants_logits = true});
  for (Choice& choice : head.choose(pass, requests)) logits.push_back(std::move(choice.logits));
}

// Of a block after the anchor; with a Markov head also completed, by the text's tokens.
void add_logits_of_block(Backend& head, SequenceId sequence, SlotId before, Logits& logits) {
  const BlockInput& block = *head.spec().block;
  const std::vector<Row> rows = block_rows(
      block,
      {.sequence = sequence, .anchor = kText[kAnchor], .position = kAnchor, .parent = before},
      block.n_rows);
  add_logits(head, head.forward(rows), rows, logits);
  if (block.successor_rank == 0) return;
  const int n_guesses = std::min(block.n_guesses(), static_cast<int>(std::ssize(kText)) - kAnchor);
  std::vector<float> memory;
  ForwardOptions options;
  if (block.successors_remember) options.taps = {kMemoryTap};
  for (int guess = 0; guess < n_guesses; ++guess) {
    const Row row{.sequence = sequence,
                  .token = kText[kAnchor + guess],
                  .position = kAnchor + guess,
                  .wants_logits = true,
                  .before = BlockRow{block.first_guess() + guess, memory}};
    const Pass pass = head.forward({&row, 1}, options);
    add_logits(head, pass, {&row, 1}, logits);
    if (block.successors_remember) memory = head.read_tap(pass, 0, 0);
  }
}

// Of a head that goes on from features after each token of the text, of one of blocks after the
// anchor, of Medusa's after the text.
Logits logits_of(Backend& target) {
  Backend& head = *target.head();
  const ModelSpec& spec = head.spec();
  const OwnedSequence sequence(head);
  const int length = static_cast<int>(kText.size());
  std::vector<Row> of_target, of_head;
  for (int i = 0; i < length; ++i)
    of_target.push_back({.sequence = sequence.id(),
                         .token = kText[i],
                         .position = i,
                         .parent = i == 0 ? Parent{CommittedEnd{}} : Parent{EarlierRow{i - 1}}});
  const Pass pass = target.forward(of_target);
  Logits logits;
  if (spec.medusa) {
    for (int i = 0; i < spec.medusa->n_heads; ++i)
      of_head.push_back({.sequence = sequence.id(),
                         .token = 0,
                         .position = i,
                         .wants_logits = true,
                         .before = TargetRow{length - 1}});
    add_logits(head, head.forward(of_head), of_head, logits);
    return logits;
  }
  for (int i = 0; i < length; ++i) {
    const int row = spec.block ? i : i - 1;
    of_head.push_back(
        {.sequence = sequence.id(),
         .token = kText[i],
         .position = i,
         .wants_logits = spec.eagle && i > 0,
         .before = row < 0 ? StateBefore{KeptFeatures{}} : StateBefore{TargetRow{row}},
         .slot = pass.slots[i]});
  }
  const Pass of_text = head.forward(of_head);
  if (spec.eagle)
    add_logits(head, of_text, of_head, logits);
  else
    add_logits_of_block(head, sequence.id(), pass.slots[kAnchor - 1], logits);
  return logits;
}

TEST(HeadOutputs, AreThoseOfTheWholeVocabulary) {
  for (const Case& tested : cases())
    for (const char* type : {"off", "q4_128"}) {
      SCOPED_TRACE(fmt::format("{}, {}", tested.name, type));
      const auto whole = load(tested, "all", type), trimmed = load(tested, "40", type);
      Backend& head = *trimmed->head();
      std::vector<Token> kept = head.options().output_ids;
      ASSERT_EQ(kept.size(), 40u);
      EXPECT_GT(kept.back(), 250);
      const Logits expected = logits_of(*whole);
      ASSERT_FALSE(expected.empty());
      const auto expect_kept = [&] {
        const Logits found = logits_of(*trimmed);
        ASSERT_EQ(found.size(), expected.size());
        for (std::size_t row = 0; row < found.size(); ++row) {
          ASSERT_EQ(found[row].size(), expected[row].size());
          for (Token token = 0; token < target_model().spec.vocabulary; ++token) {
            const bool is_kept = std::ranges::find(kept, token) != kept.end();
            ASSERT_EQ(found[row][token], is_kept ? expected[row][token] : -kInfinity)
                << "row " << row << " token " << token;
          }
        }
      };
      expect_kept();
      // Those of a text come later, in its order, and go with it.
      const std::vector<Token> first = kept;
      head.add_outputs(kText);
      kept.insert(kept.end(), kText.begin(), kText.end());
      expect_kept();
      head.remove_added_outputs();
      kept = first;
      expect_kept();
    }
}

}  // namespace
}  // namespace outrider::testing
