// A row's logits depend on its path alone: not on how the path was computed, on other rows,
// sequences, chunks, threads or instruction sets. The reference decodes one token at a time on the
// reference kernels.

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <map>
#include <random>

#include "base/error.h"
#include "cache/cache.h"
#include "cpu/backend.h"
#include "support/golden_families.h"
#include "support/tiny_model.h"

namespace outrider {
namespace {

using testing::tiny_model;
using testing::TinyOptions;

std::vector<std::uint32_t> bits(std::span<const float> values) {
  std::vector<std::uint32_t> bits;
  for (const float value : values)
    bits.push_back(value != value ? 0x7fc00000u : std::bit_cast<std::uint32_t>(value));
  return bits;
}

std::vector<float> logits_of(Backend& backend, const Pass& pass, int row) {
  const ChoiceRequest request{.row = row, .filters = {.temperature = 0}, .wants_logits = true};
  return backend.choose(pass, std::span(&request, 1))[0].logits;
}

// Plain decoding on the reference kernels, cached by path. It keeps the last few texts, so that
// returning to one of them computes only what is new.
class Reference {
 public:
  Reference(const Model& model, CacheType cache_type)
      : backend_(load_cpu(
            model,
            {.context = 512, .n_sequences = kTexts + 1, .batch_rows = 1, .cache_type = cache_type},
            Isa::reference)) {
    texts_.push_back({backend_->begin(), {}});
  }

  const std::vector<std::uint32_t>& logits(const std::vector<Token>& path) {
    const auto known = known_.find(path);
    return known != known_.end() ? known->second : decode(path);
  }

 private:
  static constexpr int kTexts = 12;
  struct Text {
    SequenceId sequence;
    std::vector<Token> tokens;
  };

  static std::size_t shared(const std::vector<Token>& text, const std::vector<Token>& path) {
    std::size_t same = 0;
    while (same + 1 < path.size() && same < text.size() && text[same] == path[same]) ++same;
    return same;
  }

  const std::vector<std::uint32_t>& decode(const std::vector<Token>& path) {
    const auto nearest =
        std::max_element(texts_.begin(), texts_.end(), [&](const Text& a, const Text& b) {
          return shared(a.tokens, path) < shared(b.tokens, path);
        });
    Text text{backend_->fork(nearest->sequence), nearest->tokens};
    text.tokens.resize(shared(nearest->tokens, path));
    backend_->truncate(text.sequence, static_cast<int>(text.tokens.size()));
    for (std::size_t at = text.tokens.size(); at < path.size(); ++at) {
      const Row row{.sequence = text.sequence,
                    .token = path[at],
                    .position = static_cast<int>(at),
                    .wants_logits = true};
      const Pass pass = backend_->forward(std::span(&row, 1));
      text.tokens.push_back(path[at]);
      known_[text.tokens] = bits(logits_of(*backend_, pass, 0));
      backend_->commit(text.sequence, pass.slots);
    }
    texts_.push_back(std::move(text));
    if (texts_.size() > kTexts) {
      backend_->end(texts_.front().sequence);
      texts_.erase(texts_.begin());
    }
    return known_[path];
  }

  std::unique_ptr<Backend> backend_;
  std::vector<Text> texts_;  // the oldest first
  std::map<std::vector<Token>, std::vector<std::uint32_t>> known_;
};

constexpr const char* kCacheTypes[] = {"f16", "f32", "q8_0"};

struct Setting {
  Isa isa;
  int n_threads;
  CacheType cache_type;
};

std::vector<Setting> settings() {
  std::vector<Setting> all;
  for (const Isa isa : available_isas()) {
    for (const int n_threads : {1, 2}) {
      all.push_back({isa, n_threads, n_threads == 1 ? CacheType::f16 : CacheType::f32});
      if (isa == available_isas().back()) all.push_back({isa, n_threads, CacheType::f16});
      if (n_threads == 2) all.push_back({isa, n_threads, CacheType::q8_0});
    }
  }
  return all;
}

// Rows that were compared: beyond two pages, and with parents in scratch of an earlier forward.
struct Seen {
  int beyond_two_pages = 0, over_scratch = 0;
};

// Several sequences grow by random forwards: chunks of prompt, trees over several forwards, rows of
// all sequences mixed, commits of random paths, discards, truncations and forks. Every row's logits
// must be the reference's.
void check_random_work(const std::string& model_name, const Model& model, const Setting& setting,
                       unsigned seed, int n_steps, Seen& seen) {
  SCOPED_TRACE(fmt::format("{} isa {} threads {} cache {} seed {}", model_name, name(setting.isa),
                           setting.n_threads, kCacheTypes[static_cast<int>(setting.cache_type)],
                           seed));
  static std::map<std::pair<std::string, CacheType>, std::unique_ptr<Reference>> references;
  auto& reference = references[{model_name, setting.cache_type}];
  if (!reference) reference = std::make_unique<Reference>(model, setting.cache_type);
  const auto backend = load_cpu(model,
                                {.context = 512,
                                 .n_sequences = 3,
                                 .n_slots = 150,
                                 .batch_rows = 100,
                                 .cache_type = setting.cache_type,
                                 .n_threads = setting.n_threads},
                                setting.isa);
  struct Scratch {
    SlotId slot;
    std::vector<Token> path;    // from the start of the text
    std::vector<SlotId> slots;  // from the committed end
  };
  struct Text {
    std::vector<Token> committed;
    std::vector<Scratch> scratch;
  };
  std::map<SequenceId, Text> texts;
  std::mt19937 random(seed);
  const auto below = [&](std::size_t n) { return static_cast<int>(random() % n); };
  texts[backend->begin()];
  texts[backend->begin()];
  for (int step = 0; step < n_steps; ++step) {
    std::vector<Row> rows;
    std::vector<std::pair<SequenceId, Scratch>> made;
    for (auto& [sequence, text] : texts) {
      // An occasional long chunk takes the text over page boundaries.
      const int n_rows =
          std::min(below(6) == 0 ? 40 + below(30) : below(7), backend->free_slots(sequence));
      const bool is_chain = n_rows > 10;
      for (int i = 0; i < n_rows && rows.size() < 100; ++i) {
        std::vector<Token> path = text.committed;
        std::vector<SlotId> slots;
        Parent parent = CommittedEnd{};
        std::vector<int> candidates;  // rows of this batch
        for (std::size_t r = 0; r < rows.size(); ++r) {
          if (rows[r].sequence == sequence) candidates.push_back(static_cast<int>(r));
        }
        // The committed end, a row of this batch, or a slot of an earlier one.
        const std::size_t choice = is_chain && !candidates.empty()
                                       ? candidates.size()
                                       : below(1 + candidates.size() + text.scratch.size());
        if (choice > candidates.size()) {
          const Scratch& above = text.scratch[choice - candidates.size() - 1];
          path = above.path;
          slots = above.slots;
          parent = above.slot;
        } else if (choice > 0) {
          const int row = candidates[choice - 1];
          path = made[row].second.path;
          parent = EarlierRow{row};
        }
        if (path.size() >= 150) continue;
        path.push_back(below(static_cast<std::size_t>(model.spec.vocabulary)));
        rows.push_back({.sequence = sequence,
                        .token = path.back(),
                        .position = static_cast<int>(path.size()) - 1,
                        .parent = parent,
                        .wants_logits = !is_chain || i > n_rows - 4});
        made.push_back({sequence, {{}, path, slots}});
      }
    }
    if (rows.empty()) continue;
    const Pass pass = backend->forward(rows);
    for (std::size_t r = 0; r < rows.size(); ++r) {
      Scratch& scratch = made[r].second;
      scratch.slot = pass.slots[r];
      if (const auto* earlier = std::get_if<EarlierRow>(&rows[r].parent))
        scratch.slots = made[earlier->row].second.slots;
      scratch.slots.push_back(scratch.slot);
      if (!rows[r].wants_logits) continue;
      seen.beyond_two_pages += rows[r].position >= 2 * kPagePositions;
      seen.over_scratch += std::holds_alternative<SlotId>(rows[r].parent);
      ASSERT_EQ(bits(logits_of(*backend, pass, static_cast<int>(r))),
                reference->logits(scratch.path))
          << "row " << r << " of step " << step << ", position " << rows[r].position;
    }
    for (auto& [sequence, scratch] : made) texts[sequence].scratch.push_back(scratch);

    std::vector<SequenceId> ids;
    for (const auto& entry : texts) ids.push_back(entry.first);
    for (const SequenceId sequence : ids) {
      Text& text = texts[sequence];
      const int act = below(6);
      if (act <= 2 && !text.scratch.empty()) {
        const Scratch& kept =
            act == 0 ? text.scratch.back() : text.scratch[below(text.scratch.size())];
        backend->commit(sequence, kept.slots);
        text.committed = kept.path;
        text.scratch.clear();
      } else if (act == 3) {
        backend->discard(sequence);
        text.scratch.clear();
      } else if (act == 4 && below(3) == 0) {
        text.committed.resize(text.committed.size() - below(1 + text.committed.size() / 3));
        backend->truncate(sequence, static_cast<int>(text.committed.size()));
        text.scratch.clear();
      } else if (act == 5 && texts.size() < 3) {
        const std::vector<Token> committed = text.committed;
        texts[backend->fork(sequence)].committed = committed;
      } else if (act == 5 && below(3) == 0 && texts.size() == 3) {
        backend->end(sequence);
        texts.erase(sequence);
      }
    }
  }
}

TEST(Rows, EqualPlainDecodingOfTheirPath) {
  const std::vector<TinyOptions> models = {
      {.family = "llama", .types = {TensorType::q4_k, TensorType::q6_k, TensorType::q5_k}},
      {.family = "qwen2", .types = {TensorType::q3_k, TensorType::iq4_nl, TensorType::q4_k}},
      {.family = "qwen2", .types = {TensorType::q2_k, TensorType::iq4_xs, TensorType::iq2_s}},
      {.family = "llama", .types = {TensorType::iq1_m, TensorType::iq3_xxs, TensorType::tq1_0}},
      {.family = "qwen2",
       .types = {TensorType::q4_1, TensorType::q8_0, TensorType::q5_0, TensorType::f16},
       .embedding = 64},
      {.family = "gemma3",
       .types = {TensorType::q5_1, TensorType::q4_0, TensorType::bf16, TensorType::f32},
       .n_layers = 7,
       .embedding = 64},
      // Keys and values of different lengths, in 8 bits and not.
      {.family = "llama",
       .types = {TensorType::q4_0, TensorType::q8_0, TensorType::iq4_nl, TensorType::f16},
       .n_layers = 2,
       .embedding = 64,
       .key_dim = 96,
       .value_dim = 32},
      {.family = "gemma3",
       .types = {TensorType::f32, TensorType::f16, TensorType::bf16},
       .n_layers = 2,
       .embedding = 64,
       .key_dim = 26,
       .value_dim = 51},
      {.family = "qwen2",
       .types = {TensorType::q5_0, TensorType::f16, TensorType::q4_1},
       .n_layers = 2,
       .embedding = 64,
       .key_dim = 32,
       .value_dim = 64},
  };
  Seen seen;
  for (const TinyOptions& options : models) {
    const Model model = tiny_model(options);
    // The same work for every setting: the reference computes each path once.
    for (const Setting& setting : settings()) {
      check_random_work("tiny " + options.family + traits(options.types[0]).name.data(), model,
                        setting, 1, setting.isa == Isa::reference ? 15 : 40, seen);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(seen.beyond_two_pages, 100);
  EXPECT_GT(seen.over_scratch, 100);
}

// What families have besides: norms of every kind, ropes of every scaling, parallel layers, biases.
TEST(Rows, OfEveryFamilyEqualPlainDecodingOfTheirPath) {
  constexpr CacheType kTypes[] = {CacheType::f16, CacheType::q8_0, CacheType::f32};
  Seen seen;
  unsigned seed = 2;
  for (const std::string& name : testing::golden_families()) {
    const Model model = testing::golden_model(name);
    for (const Isa isa : available_isas()) {
      check_random_work(name, model, {isa, 2, kTypes[seed % 3]}, seed, 25, seen);
      if (HasFatalFailure()) return;
    }
    ++seed;
  }
  EXPECT_GT(seen.beyond_two_pages, 100);
  EXPECT_GT(seen.over_scratch, 100);
}

// Layer skip: only rows of the same layers, or fewer, attend to a row that ran some layers.
TEST(Rows, LayerListsAndTaps) {
  const Model model = tiny_model({.n_layers = 4});
  const auto backend = load_cpu(model, {.context = 128}, available_isas().back());
  const SequenceId sequence = backend->begin();
  const auto run = [&](Token token, int position, Parent parent, std::vector<int> layers) {
    const Row row{.sequence = sequence,
                  .token = token,
                  .position = position,
                  .parent = parent,
                  .wants_logits = true};
    return backend->forward(std::span(&row, 1), {.layers = layers, .taps = layers});
  };
  const Pass draft1 = run(5, 0, CommittedEnd{}, {0, 3});
  const auto draft_logits = logits_of(*backend, draft1, 0);
  const auto first_tap = backend->read_tap(draft1, 0, 0);
  const Pass draft2 = run(6, 1, draft1.slots[0], {0, 3});
  const auto draft_second = logits_of(*backend, draft2, 0);
  const Pass full = run(5, 0, CommittedEnd{}, {0, 1, 2, 3});
  EXPECT_NE(bits(logits_of(*backend, full, 0)), bits(draft_logits));
  EXPECT_EQ(bits(backend->read_tap(full, 0, 0)), bits(first_tap));  // the first layer is the same
  EXPECT_DEATH(backend->read_tap(full, 0, 1), "n_rows_");
  EXPECT_NE(bits(backend->read_tap(full, 3, 0)), bits(first_tap));
  // A draft row after a full one has its own bits: its layers attend to what the full pass wrote in
  // them.
  const Pass mixed = run(6, 1, full.slots[0], {0, 3});
  EXPECT_NE(bits(logits_of(*backend, mixed, 0)), bits(draft_second));
  EXPECT_DEATH(run(6, 1, draft1.slots[0], {0, 1, 2, 3}), "layers");
  EXPECT_DEATH(backend->commit(sequence, draft1.slots), "layers");
  backend->commit(sequence, full.slots);
  EXPECT_EQ(backend->committed(sequence), 1);
  EXPECT_DEATH(run(7, 1, CommittedEnd{}, {3, 0}), "layer > previous");
  const Row row{.sequence = sequence, .token = 7, .position = 1};
  EXPECT_DEATH(backend->forward(std::span(&row, 1), {.layers = {{0, 3}}, .taps = {1}}), "written");
}

// A draft tree of some layers after a text of all of them: in one pass, on any kernels, rows have
// the logits and taps that they have one at a time on the reference kernels.
TEST(Rows, LayerListsGiveTheSameInCompany) {
  const Model model = tiny_model({.n_layers = 4});
  const std::vector<Token> prompt(70, 9), drafted = {5, 6, 7, 8, 9, 10};
  const std::vector<std::optional<int>> parents = {std::nullopt, 0, 1, 1, 0, std::nullopt};
  const auto bits_of_tree = [&](const Setting& setting, std::size_t rows_a_pass) {
    const auto backend =
        load_cpu(model, {.context = 128, .n_threads = setting.n_threads}, setting.isa);
    const SequenceId sequence = backend->begin();
    std::vector<Row> text;
    for (std::size_t i = 0; i < prompt.size(); ++i) {
      text.push_back({.sequence = sequence, .token = prompt[i], .position = static_cast<int>(i)});
      if (i > 0) text[i].parent = EarlierRow{static_cast<int>(i) - 1};
    }
    backend->commit(sequence, backend->forward(text).slots);
    std::vector<std::vector<std::uint32_t>> found;
    std::vector<SlotId> slots;
    std::vector<int> depth;
    while (slots.size() < drafted.size()) {
      const std::size_t first = slots.size();
      std::vector<Row> rows;
      for (std::size_t i = first; i < std::min(drafted.size(), first + rows_a_pass); ++i) {
        Row row{.sequence = sequence, .token = drafted[i], .wants_logits = true};
        depth.push_back(parents[i] ? depth[*parents[i]] + 1 : 0);
        row.position = static_cast<int>(prompt.size()) + depth[i];
        if (parents[i]) {
          const auto parent = static_cast<std::size_t>(*parents[i]);
          if (parent < first)
            row.parent = slots[parent];
          else
            row.parent = EarlierRow{static_cast<int>(parent - first)};
        }
        rows.push_back(row);
      }
      const Pass pass = backend->forward(rows, {.layers = {{0, 2, 3}}, .taps = {3, 0}});
      for (int i = 0; i < static_cast<int>(rows.size()); ++i) {
        found.push_back(bits(logits_of(*backend, pass, i)));
        found.push_back(bits(backend->read_tap(pass, 0, i)));
        found.push_back(bits(backend->read_tap(pass, 1, i)));
      }
      slots.insert(slots.end(), pass.slots.begin(), pass.slots.end());
    }
    return found;
  };
  const auto expected = bits_of_tree({Isa::reference, 1, CacheType::f16}, 1);
  EXPECT_NE(expected[1], expected[2]);
  for (const Setting& setting : settings()) {
    SCOPED_TRACE(fmt::format("isa {} threads {}", name(setting.isa), setting.n_threads));
    for (const std::size_t rows_a_pass : {1, 4, 6}) {
      SCOPED_TRACE(rows_a_pass);
      EXPECT_EQ(bits_of_tree(setting, rows_a_pass), expected);
    }
  }
}

// Matrices of floats, so that a few hundred rows come in chunks, alone or beside quantized ones
// with the same input, whose own chunks would be larger. Down is in groups of 256, which three
// threads' pieces of gate and up do not end with.
class RowsInChunks : public ::testing::TestWithParam<std::vector<int>> {};
INSTANTIATE_TEST_SUITE_P(, RowsInChunks,
                         ::testing::Values(std::vector{5, 6}, std::vector{1, 5}, std::vector{2, 6},
                                           std::vector{3}));

TEST_P(RowsInChunks, GiveTheSameOnAnyThreads) {
  // The embedding; q, k, v, output; gate, up, down.
  std::vector<TensorType> types(8, TensorType::q4_k);
  for (const int matrix : GetParam()) types[static_cast<std::size_t>(matrix)] = TensorType::f16;
  const Model model = tiny_model({.types = types, .n_layers = 1, .embedding = 1024});
  constexpr int kRows = 300;
  const auto logits_of_text = [&](int n_threads, int rows_a_pass) {
    const auto backend =
        load_cpu(model, {.context = 512, .batch_rows = kRows, .n_threads = n_threads},
                 available_isas().back());
    const SequenceId sequence = backend->begin();
    std::vector<std::vector<std::uint32_t>> found;
    for (int first = 0; first < kRows; first += rows_a_pass) {
      std::vector<Row> rows;
      for (int i = 0; i < rows_a_pass; ++i) {
        rows.push_back({.sequence = sequence,
                        .token = (first + i) * 37 % 277,
                        .position = first + i,
                        .parent = i == 0 ? Parent(CommittedEnd{}) : Parent(EarlierRow{i - 1}),
                        .wants_logits = true});
      }
      const Pass pass = backend->forward(rows);
      for (int i = 0; i < rows_a_pass; ++i) found.push_back(bits(logits_of(*backend, pass, i)));
      backend->commit(sequence, pass.slots);
    }
    return found;
  };
  const auto expected = logits_of_text(1, 1);
  for (const int n_threads : {1, 2, 3, 5})
    EXPECT_EQ(logits_of_text(n_threads, kRows), expected) << n_threads << " threads";
  EXPECT_EQ(logits_of_text(3, 1), expected);
}

}  // namespace
}  // namespace outrider
