#include "speculation/drafters/rest.h"

#include <algorithm>
#include <cmath>
#include <queue>

#include "base/error.h"
#include "base/stopwatch.h"
#include "speculation/drafter_kind.h"

namespace outrider {
namespace {

// Ends of a text that are looked for: shorter ones tell too little, longer ones no more.
constexpr std::size_t kEndMin = 2, kEndMax = 16;
constexpr std::uint64_t kOccurrences = 64;
// What the unknown weighs beside n occurrences of m tokens, which weigh sqrt(n) m (suffix_text.h).
constexpr double kUnknown = 2;

}  // namespace

void RestDrafter::begin(DraftSequence sequence, CacheScope) {
  CHECK(texts_.try_emplace(sequence).second);
}

void RestDrafter::observe(DraftSequence sequence, std::span<const Token> tokens) {
  std::vector<Token>& text = texts_.at(sequence);
  text.insert(text.end(), tokens.begin(), tokens.end());
}

void RestDrafter::propose(std::span<const DraftRequest> requests) {
  const Stopwatch watch;
  for (const DraftRequest& request : requests) propose(request);
  time_.add(watch.ms(), requests.size());
}

void RestDrafter::propose(const DraftRequest& request) const {
  const std::span<const Token> text = texts_.at(request.sequence);
  // Where an end occurs, all shorter ones do.
  std::size_t length = kEndMin - 1;
  Datastore::Range range;
  for (std::size_t first = kEndMin, end = std::min(kEndMax, text.size()) + 1; first < end;) {
    const std::size_t middle = first + (end - first) / 2;
    if (const auto found = datastore_->find(text.last(middle)); found.size() > 0) {
      range = found;
      length = middle;
      first = middle + 1;
    } else {
      end = middle;
    }
  }
  if (length < kEndMin) return;

  std::vector<std::uint64_t> places;  // of what follows, in its order
  const std::uint64_t n = std::min(range.size(), kOccurrences);
  for (std::uint64_t i = 0; i < n; ++i)
    places.push_back(datastore_->place(range.first + i * range.size() / n) + length);
  // Occurrences that go on alike as far as a node lie side by side.
  struct Branch {
    double value;  // the probability of its path
    std::size_t first, end;
    int node, depth;
    bool operator<(const Branch& other) const { return value < other.value; }
  };
  std::priority_queue<Branch> branches;
  branches.push({1, 0, places.size(), 0, 0});
  struct Next {
    Token token;
    std::size_t first, end;
    std::size_t size() const { return end - first; }
  };
  int n_proposed = 0;
  while (!branches.empty() && n_proposed < request.limits.nodes) {
    const Branch branch = branches.top();
    branches.pop();
    if (branch.depth >= request.limits.depth) continue;
    std::vector<Next> all;
    for (std::size_t i = branch.first; i < branch.end; ++i) {
      const Token token = datastore_->token(places[i] + static_cast<std::uint64_t>(branch.depth));
      if (all.empty() || all.back().token != token) all.push_back({token, i, i});
      all.back().end = i + 1;
    }
    std::erase_if(all, [](const Next& next) { return next.token == Datastore::kEnd; });
    std::ranges::stable_sort(all, std::greater<>{}, &Next::size);
    const auto n_here = static_cast<double>(branch.end - branch.first);
    const double weight =
        std::sqrt(n_here) * static_cast<double>(length + static_cast<std::size_t>(branch.depth));
    for (std::size_t i = 0; i < all.size() && i < static_cast<std::size_t>(request.limits.width) &&
                            n_proposed < request.limits.nodes;
         ++i, ++n_proposed) {
      const double probability =
          weight / (weight + kUnknown) * static_cast<double>(all[i].size()) / n_here;
      const int node = request.tree->propose(branch.node, all[i].token,
                                             {request.drafter, static_cast<float>(probability)});
      branches.push({branch.value * probability, all[i].first, all[i].end, node, branch.depth + 1});
    }
  }
}

void RestDrafter::truncate(DraftSequence sequence, int length) {
  texts_.at(sequence).resize(static_cast<std::size_t>(length));
}

void RestDrafter::end(DraftSequence sequence) {
  CHECK(texts_.erase(sequence) == 1);
}

const DrafterKind& rest_kind() {
  static const DrafterKind kind{
      .name = "rest",
      .value = "FILE",
      .help = "what followed the same tokens in a datastore of documents (datastore build)",
      .make = [](const DrafterContext& context) -> std::unique_ptr<Drafter> {
        return std::make_unique<RestDrafter>(std::make_shared<Datastore>(
            context.value, vocabulary_fingerprint(context.tokenizer), context.vocabulary));
      }};
  return kind;
}

}  // namespace outrider
