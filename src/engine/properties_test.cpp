// Properties over random requests, drafts and trees; RapidCheck shrinks what breaks one. More
// cases: RC_PARAMS=max_success=10000.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <set>

#include "engine/engine.h"
#include "engine/plain_decoding_test.h"
#include "speculation/datastore_test.h"
#include "speculation/drafters/lookahead.h"
#include "speculation/drafters/lookup.h"
#include "speculation/drafters/model.h"
#include "speculation/drafters/prediction.h"
#include "speculation/drafters/rest.h"
#include "speculation/drafters/self.h"

namespace outrider {
namespace {

// Knows how plain decoding goes on, and is right for a number of levels, another in each step, with
// wrong siblings around.
class KnowingDrafter final : public Drafter {
 public:
  KnowingDrafter(std::vector<Token> whole, std::vector<int> right)
      : whole_(std::move(whole)), right_(std::move(right)) {}

  std::string_view name() const override { return "knowing"; }
  void begin(DraftSequence, CacheScope) override {}
  void observe(DraftSequence, std::span<const Token> tokens) override { length_ += tokens.size(); }
  void propose(std::span<const DraftRequest> requests) override {
    const int n_right = right_[n_steps_++ % right_.size()];
    for (const DraftRequest& request : requests) {
      int node = 0, n_left = request.limits.nodes;
      for (int depth = 0; depth < request.limits.depth && n_left > 0; ++depth) {
        const std::size_t place = length_ + static_cast<std::size_t>(depth);
        const Token truth = place < whole_.size() ? whole_[place] : 0;
        const Token token = depth < n_right ? truth : (truth + 7) % 23;
        const int parent = node;
        node = request.tree->propose(parent, token, {request.drafter, 0.6f});
        if (--n_left > 0 && depth % 2 == 0) {
          request.tree->propose(parent, (truth + 3) % 23, {request.drafter, 0.2f});
          --n_left;
        }
      }
    }
  }
  void truncate(DraftSequence, int length) override { length_ = static_cast<std::size_t>(length); }
  void end(DraftSequence) override { length_ = 0; }
  DraftCost cost(int, int) const override { return {}; }

 private:
  const std::vector<Token> whole_;
  const std::vector<int> right_;  // by step, round and round
  std::size_t length_ = 0, n_steps_ = 0;
};

rc::Gen<Token> a_token() {
  return rc::gen::inRange<Token>(0, 23);
}

SamplingParams some_sampling() {
  SamplingParams params = *rc::gen::elementOf(
      std::vector{greedy(), sampled(1, false), sampled(2, true), sampled(3, true)});
  params.seed = *rc::gen::inRange<std::uint64_t>(0, 1000);
  params.repeat_last_n = *rc::gen::inRange(-1, 20);
  return params;
}

// Whatever is drafted, the answer is plain decoding's: with penalties over the path, and where end
// of sequence, stop strings, token limit or context come inside a draft.
RC_GTEST_PROP(Properties, TextIsThatOfPlainDecoding, ()) {
  Request request{.prompt = *rc::gen::nonEmpty(rc::gen::container<std::vector<Token>>(a_token())),
                  .sampling = some_sampling()};
  request.prompt.resize(std::min<std::size_t>(request.prompt.size(), 12));
  request.stop.n_predict = *rc::gen::inRange(0, 40);
  request.stop.ignore_eos = *rc::gen::arbitrary<bool>();
  for (int n = *rc::gen::inRange(0, 3); n > 0; --n) {
    std::string text;
    for (int i = *rc::gen::inRange(1, 4); i > 0; --i)
      text += static_cast<char>('a' + *rc::gen::inRange(0, 23));
    request.stop.texts.push_back(text);
  }
  const int context = *rc::gen::inRange(14, 80);
  FakeModel target;
  target.peak = static_cast<float>(*rc::gen::inRange(0, 8));
  const FakeTokenizer tokenizer = words();
  const Outcome wanted = decode_plainly(target, tokenizer, request, context);

  std::vector<Token> whole = request.prompt;
  whole.insert(whole.end(), wanted.tokens.begin(), wanted.tokens.end());
  std::vector<std::unique_ptr<Drafter>> drafters;
  if (*rc::gen::arbitrary<bool>())
    drafters.push_back(std::make_unique<LookupDrafter>(LookupOptions{}));
  if (*rc::gen::arbitrary<bool>()) drafters.push_back(std::make_unique<LookaheadDrafter>());
  if (*rc::gen::arbitrary<bool>()) {
    drafters.push_back(std::make_unique<PredictionDrafter>());
    request.options.prediction = wanted.tokens;
  }
  if (*rc::gen::arbitrary<bool>()) {
    FakeModel draft = target;
    draft.disagreement = 0.4f;
    ModelDrafterOptions options{.target_vocabulary = 23};
    if (*rc::gen::arbitrary<bool>()) {
      options.mask = 22;
      options.n_parallel = *rc::gen::inRange(1, 5);
    }
    drafters.push_back(std::make_unique<ModelDrafter>(
        std::make_unique<FakeBackend>(draft, LoadOptions{.context = context}), options));
  }
  if (*rc::gen::arbitrary<bool>())
    drafters.push_back(std::make_unique<RestDrafter>(datastore_of(wanted.tokens, tokenizer)));
  const auto right =
      *rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(0, 9)));
  if (*rc::gen::arbitrary<bool>())
    drafters.push_back(std::make_unique<KnowingDrafter>(whole, right));

  const PlannerOptions planner{.automatic = *rc::gen::arbitrary<bool>(),
                               .rows = *rc::gen::inRange(0, 20),
                               .depth = *rc::gen::inRange(1, 10),
                               .width = *rc::gen::inRange(1, 5)};
  const auto backend = std::make_shared<FakeBackend>(
      target, LoadOptions{.context = context, .batch_rows = *rc::gen::inRange(1, 32)});
  if (*rc::gen::arbitrary<bool>())
    drafters.push_back(std::make_unique<SelfDrafter>(backend, std::vector{1}));
  Engine engine(backend, std::move(drafters),
                {.planner = planner, .prompt_chunk = *rc::gen::inRange(0, 5)});
  if (planner.automatic) engine.measure_costs();

  Outcome outcome;
  const auto generation = engine.begin(request.prompt, request.sampling,
                                       StopRules(tokenizer, request.stop), request.options);
  while (!generation->ended()) {
    Generation* const all[] = {generation.get()};
    engine.step(all);
    for (const Emitted& emitted : generation->emitted) {
      outcome.tokens.push_back(emitted.token);
      outcome.text += emitted.text;
    }
  }
  RC_ASSERT(!generation->error);
  outcome.finished = generation->finish_reason;
  RC_ASSERT(outcome == wanted);
}

// A tree keeps each proposal of each drafter once, in the order made, and so do what is left of it
// after nodes were cut.
RC_GTEST_PROP(Properties, TreesKeepProposalsInOrder, ()) {
  struct Made {
    std::vector<Token> path;  // of the child
    int drafter;
    bool operator==(const Made&) const = default;
  };
  DraftTree tree(0);
  std::vector<Made> made;
  for (int n = *rc::gen::inRange(0, 25); n > 0; --n) {
    const int parent = *rc::gen::inRange(0, tree.size());
    const int drafter = *rc::gen::inRange(0, 3);
    const Token token = *rc::gen::inRange<Token>(0, 4);
    const int node = tree.propose(parent, token, {drafter, 0.5f});
    const Made now{tree.path(node), drafter};
    if (std::ranges::find(made, now) == made.end()) made.push_back(now);
  }
  const auto listed = [](const DraftTree& of, const std::vector<Token>& parent) {
    std::vector<Made> all;
    for (int node = 0; node < of.size(); ++node)
      if (of.path(node) == parent)
        for (const auto& [child, proposal] : of.offers(node))
          all.push_back({of.path(child), proposal.drafter});
    return all;
  };
  const auto expect_all = [&](const DraftTree& of) {
    of.check_integrity();
    for (int node = 0; node < of.size(); ++node) {
      std::vector<Made> expected;
      for (const Made& each : made) {
        const std::vector<Token> parent(each.path.begin(), each.path.end() - 1);
        bool is_there = false;
        for (int other = 1; other < of.size(); ++other) is_there |= of.path(other) == each.path;
        if (parent == of.path(node) && is_there) expected.push_back(each);
      }
      RC_ASSERT(listed(of, of.path(node)) == expected);
    }
  };
  expect_all(tree);
  std::vector<bool> kept(tree.size(), true);
  for (int node = 1; node < tree.size(); ++node)
    kept[node] = kept[tree[node].parent] && *rc::gen::inRange(0, 3) > 0;
  DraftTree cut = tree;
  cut.keep(kept);
  RC_ASSERT(cut.size() == std::ranges::count(kept, true));
  expect_all(cut);
}

}  // namespace
}  // namespace outrider
