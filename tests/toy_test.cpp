// A small language model with heads that were trained on it (scripts/golden/toy.py). A head that is
// read in the wrong way, by one layer, one position or one norm, says something all the same, but
// is right less often: that random weights cannot show.

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "cpu/backend.h"
#include "formats/gguf.h"
#include "runtime/drafter_registry.h"
#include "runtime/head_file.h"
#include "sampling/fake_tokenizer.h"
#include "speculation/head_agreement.h"
#include "support/decoding.h"

namespace outrider {
namespace {

constexpr int kTexts = 32, kLength = 264, kFirst = 4, kEnd = 260, kDepths = 3;
constexpr int kPlaces = kTexts * (kEnd - kFirst);

std::string path_of(const std::string& name) {
  return OUTRIDER_GOLDEN_DIR "/toy/" + name;
}

// The numbers of a .npy file of u16.
std::vector<Token> read_numbers(const std::string& name, std::size_t n) {
  const MappedFile file(path_of(name));
  const std::span<const std::byte> bytes = file.bytes().last(2 * n);
  std::vector<Token> numbers;
  for (std::size_t i = 0; i < n; ++i) {
    std::uint16_t number;
    std::memcpy(&number, &bytes[2 * i], sizeof(number));
    numbers.push_back(number);
  }
  return numbers;
}

// Most likely tokens: [depth][text][place].
using Answers = std::vector<std::vector<Token>>;

class Toy : public ::testing::Test {
 protected:
  Head read(const std::string& folder) const { return open_head(path_of(folder), model_); }

  std::shared_ptr<const HeadToLoad> to_load(const Head& head) const {
    const DrafterKind& kind =
        *parse_draft(head.model.spec.medusa ? "medusa=head" : "eagle=head", "").at(0).kind;
    LoadOptions options = kind.head_options(
        head, tokenizer_, {{"--draft-quantize", "off"}, {"--draft-vocab", "all"}});
    return std::make_shared<const HeadToLoad>(HeadToLoad{head.model, std::move(options)});
  }

  std::unique_ptr<Backend> load(const Head& head, bool shares_texts = false) const {
    return load_cpu(model_, {.context = 320,
                             .n_slots = 1024,
                             .n_pages = 64,
                             .shares_texts = shares_texts,
                             .batch_rows = 1024,
                             .cache_type = CacheType::f32,
                             .n_threads = 2,
                             .head = to_load(head)});
  }

  std::span<const Token> text(int index) const {
    return std::span(tokens_).subspan(static_cast<std::size_t>(index) * kLength, kLength);
  }
  // The target's own token after positions 0 to p of a text.
  Token own(int index, int position) const {
    return own_[static_cast<std::size_t>(index * kLength + position)];
  }

  static Pass compute_target(Backend& backend, SequenceId sequence, std::span<const Token> text) {
    std::vector<Row> rows;
    for (int i = 0; i < std::ssize(text); ++i)
      rows.push_back({.sequence = sequence,
                      .token = text[i],
                      .position = i,
                      .parent = i == 0 ? Parent{CommittedEnd{}} : Parent{EarlierRow{i - 1}}});
    return backend.forward(rows);
  }

  static std::vector<Token> best(Backend& head, const Pass& pass, int n_rows) {
    std::vector<ChoiceRequest> requests;
    for (int row = 0; row < n_rows; ++row)
      requests.push_back({.row = row, .filters = {.temperature = 0}});
    std::vector<Token> tokens;
    for (const Choice& choice : head.choose(pass, requests)) tokens.push_back(choice.token.value());
    return tokens;
  }

  // After positions kFirst to kEnd - 1 of each text, at each depth, as toy.py defines them. shift:
  // of the position whose features a row takes.
  Answers answers_of_eagle(const Head& read, int shift = 0) const {
    const auto backend = load(read);
    Backend& head = *backend->head();
    const ModelSpec& spec = head.spec();
    const int tap = spec.eagle->state_is_normed ? spec.n_layers() : spec.n_layers() - 1;
    Answers answers(kDepths);
    for (int index = 0; index < kTexts; ++index) {
      const OwnedSequence sequence(head);
      const std::span<const Token> tokens = text(index);
      const Pass target = compute_target(*backend, sequence.id(), tokens);
      std::vector<SlotId> slots(kLength);  // of the rows of the depth before, by position
      std::vector<std::vector<float>> states(kLength);
      for (int depth = 0; depth < kDepths; ++depth) {
        std::vector<Row> rows;
        for (int position = depth; position < kLength; ++position) {
          Row& row = rows.emplace_back(Row{.sequence = sequence.id(),
                                           .token = tokens[position],
                                           .position = position,
                                           .wants_logits = true});
          if (depth == 0) {
            row.slot = target.slots[position];
            if (position > 0) row.before = TargetRow{std::max(0, position - 1 + shift)};
          } else {
            row.parent = slots[position - 1];
            row.before = std::span<const float>(states[position - 1]);
          }
        }
        const int n = static_cast<int>(rows.size());
        const Pass pass = head.forward(rows, {.taps = {tap}});
        const std::vector<Token> said = best(head, pass, n);
        std::vector<std::vector<float>> next(kLength);
        for (int row = 0; row < n; ++row) {
          slots[depth + row] = pass.slots[row];
          next[depth + row] = head.read_tap(pass, 0, row);
        }
        states = std::move(next);
        answers[depth].insert(answers[depth].end(), said.begin() + kFirst - depth,
                              said.begin() + kEnd - depth);
      }
    }
    return answers;
  }

  // Head h for the token two and h places after each position, from the state `shift` places on.
  Answers answers_of_medusa(const Head& read, int shift = 0) const {
    const auto backend = load(read);
    Backend& head = *backend->head();
    Answers answers(kDepths);
    for (int index = 0; index < kTexts; ++index) {
      const OwnedSequence sequence(head);
      compute_target(*backend, sequence.id(), text(index));
      std::vector<Row> rows;
      for (int depth = 0; depth < kDepths; ++depth)
        for (int position = kFirst; position < kEnd; ++position)
          rows.push_back({.sequence = sequence.id(),
                          .token = 0,
                          .position = depth,
                          .wants_logits = true,
                          .before = TargetRow{position + shift}});
      const std::vector<Token> said = best(head, head.forward(rows), static_cast<int>(rows.size()));
      constexpr int kOfDepth = kEnd - kFirst;
      for (int depth = 0; depth < kDepths; ++depth)
        answers[depth].insert(answers[depth].end(), said.begin() + depth * kOfDepth,
                              said.begin() + (depth + 1) * kOfDepth);
    }
    return answers;
  }

  // In percent: how many are the target's own tokens `further` places on.
  double agreement(const std::vector<Token>& answers, int further) const {
    int n_right = 0;
    for (int i = 0; i < kPlaces; ++i) {
      const int index = i / (kEnd - kFirst), position = kFirst + i % (kEnd - kFirst) + further;
      n_right += answers[i] == own(index, position) ? 1 : 0;
    }
    return 100.0 * n_right / kPlaces;
  }

  static void expect_same(const Answers& answers, const std::string& file) {
    const std::vector<Token> expected =
        read_numbers(file, static_cast<std::size_t>(kDepths) * kPlaces);
    for (int depth = 0; depth < kDepths; ++depth) {
      int n_same = 0;
      for (int i = 0; i < kPlaces; ++i)
        n_same += answers[depth][i] == expected[depth * kPlaces + i] ? 1 : 0;
      EXPECT_GE(n_same, 0.995 * kPlaces) << "depth " << depth + 1;
    }
  }

  const nlohmann::json figures_ =
      nlohmann::json::parse(std::ifstream(OUTRIDER_TOY_DIR "/toy.json"));
  const Model model_ =
      interpret_checkpoint(std::make_shared<const Checkpoint>(read_gguf(path_of("target.gguf"))));
  const FakeTokenizer tokenizer_{
      std::vector<std::string>(static_cast<std::size_t>(model_.spec.vocabulary), "x")};
  const std::vector<Token> tokens_ = read_numbers("tokens.npy", kTexts* kLength);
  const std::vector<Token> own_ = read_numbers("target.npy", kTexts* kLength);
};

TEST_F(Toy, TheTargetSaysWhatTransformersSays) {
  const auto backend = load(read("eagle3"));
  int n_same = 0;
  for (int index = 0; index < kTexts; ++index) {
    const OwnedSequence sequence(*backend);
    std::vector<Row> rows;
    for (int i = 0; i < kLength; ++i)
      rows.push_back({.sequence = sequence.id(),
                      .token = text(index)[i],
                      .position = i,
                      .parent = i == 0 ? Parent{CommittedEnd{}} : Parent{EarlierRow{i - 1}},
                      .wants_logits = true});
    const std::vector<Token> said = best(*backend, backend->forward(rows), kLength);
    for (int i = 0; i < kLength; ++i) n_same += said[i] == own(index, i) ? 1 : 0;
  }
  EXPECT_GE(n_same, 0.995 * kTexts * kLength);
}

TEST_F(Toy, EagleSaysWhatTheReferenceSays) {
  const Answers answers = answers_of_eagle(read("eagle3"));
  expect_same(answers, "eagle3.npy");
  EXPECT_GE(agreement(answers[0], 0), figures_["bigram"].get<double>() + 15);
}

TEST_F(Toy, MedusaSaysWhatTheReferenceSays) {
  expect_same(answers_of_medusa(read("medusa")), "medusa.npy");
}

// What is lost by each mistake, in points, at the first depth or, where it acts only there, at the
// second.
TEST_F(Toy, MistakesShow) {
  const Head right = read("eagle3");
  const Answers answers = answers_of_eagle(right);
  const auto loss = [&](const char* name, int depth, const auto& change) {
    Head wrong = right;
    change(wrong);
    const double lost = agreement(answers[depth], 0) - agreement(answers_of_eagle(wrong)[depth], 0);
    std::printf("%s: %.2f points\n", name, lost);
    return lost;
  };
  for (const int shift : {1, -1}) {
    const double lost = agreement(answers[0], 0) - agreement(answers_of_eagle(right, shift)[0], 0);
    std::printf("features of %+d: %.2f points\n", shift, lost);
    EXPECT_GE(lost, 15);
  }
  const auto eagle = [](Head& head) -> EagleInput& { return *head.model.spec.eagle; };
  EXPECT_GE(loss("d2t as tokens", 0,
                 [](Head& head) {
                   for (std::size_t row = 0; row < head.output_tokens.size(); ++row)
                     head.output_tokens[row] -= static_cast<Token>(row);
                   // Each token once, as the loader wants it.
                   std::vector<bool> used(512 + 512);
                   for (Token& token : head.output_tokens) {
                     while (used[static_cast<std::size_t>(token)]) ++token;
                     used[static_cast<std::size_t>(token)] = true;
                   }
                 }),
            15);
  for (std::size_t tap = 0; tap < right.model.spec.eagle->taps.size(); ++tap)
    for (const int by : {1, -1})
      EXPECT_GE(loss(fmt::format("tap {} {:+} layer", tap, by).c_str(), 0,
                     [&](Head& head) { eagle(head).taps[tap] += by; }),
                3);
  EXPECT_GE(loss("normed residual", 0, [&](Head& head) { eagle(head).residual_is_normed ^= true; }),
            3);
  EXPECT_GE(loss("normed state", 1, [&](Head& head) { eagle(head).state_is_normed ^= true; }), 3);
}

TEST_F(Toy, MistakesOfMedusaShow) {
  const Head right = read("medusa");
  const double sound = agreement(answers_of_medusa(right)[0], 1);
  for (const int shift : {1, -1}) {
    const double lost = sound - agreement(answers_of_medusa(right, shift)[0], 1);
    std::printf("state of %+d: %.2f points\n", shift, lost);
    EXPECT_GE(lost, 15);
  }
}

// What the runtime does with a file that leaves open which layers are meant.
TEST_F(Toy, TheRightReadingIsClearlyBetter) {
  const Head right = read("eagle3");
  const auto backend = load(right);
  std::vector<bool> of_right = measure_agreement(*backend, tokens_, {}), of_wrong;
  Head wrong = right;
  for (int& tap : wrong.model.spec.eagle->taps) ++tap;
  of_wrong = measure_agreement(*load(wrong), tokens_, {});
  EXPECT_GT(share_of_right(of_right), 0.3);
  EXPECT_TRUE(is_clearly_better(of_wrong, of_right));
  EXPECT_FALSE(is_clearly_better(of_right, of_wrong));
  EXPECT_FALSE(is_clearly_better(of_right, of_right));
}

// Pages that one reading left in the cache are of no use to another one.
TEST_F(Toy, AReplacedHeadSaysWhatAFreshOneDoes) {
  const Head right = read("eagle3");
  Head wrong = right;
  for (int& tap : wrong.model.spec.eagle->taps) ++tap;
  const auto backend = load(right, true);
  const std::vector<bool> first = measure_agreement(*backend, tokens_, {});
  backend->replace_head(*to_load(wrong));
  EXPECT_EQ(measure_agreement(*backend, tokens_, {}), measure_agreement(*load(wrong), tokens_, {}));
  backend->replace_head(*to_load(right));
  EXPECT_EQ(measure_agreement(*backend, tokens_, {}), first);
}

// Trained heads are often right, and change nothing.
TEST_F(Toy, SpeculationGainsAndChangesNothing) {
  for (const char* const folder : {"eagle3", "medusa"}) {
    for (const float temperature : {0.0f, 0.8f}) {
      SCOPED_TRACE(fmt::format("{} at {}", folder, temperature));
      testing::Task task{.target = &model_,
                         .tokenizer = &tokenizer_,
                         .prompt = {tokens_.begin(), tokens_.begin() + 60},
                         .sampling = {},
                         .n_predict = 120};
      task.sampling.filters.temperature = temperature;
      const bool is_medusa = folder == std::string("medusa");
      (is_medusa ? task.medusa : task.head) = to_load(read(folder));
      const Isa isa = available_isas().back();
      const testing::Decoded plain = testing::decode(task, {.isa = isa});
      const testing::Decoded drafted = testing::decode(
          task, {.draft = is_medusa ? "medusa" : "eagle", .n_mates = 2, .isa = isa});
      EXPECT_EQ(drafted.tokens, plain.tokens);
      EXPECT_GT(drafted.accepted, task.n_predict / (is_medusa ? 6 : 2));
      std::printf("%s at %.1f: %ld of %d tokens were drafted\n", folder, temperature,
                  drafted.accepted, task.n_predict);
    }
  }
}

}  // namespace
}  // namespace outrider
