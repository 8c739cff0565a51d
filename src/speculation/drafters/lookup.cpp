#include "speculation/drafters/lookup.h"

#include <algorithm>
#include <queue>

#include "base/error.h"
#include "base/numbers.h"
#include "base/stopwatch.h"
#include "speculation/drafter_kind.h"

namespace outrider {

const DrafterKind& lookup_kind();

void LookupDrafter::begin(DraftSequence sequence) {
  CHECK(texts_.try_emplace(sequence, options_.memory_bytes).second);
}

void LookupDrafter::observe(DraftSequence sequence, std::span<const Token> tokens) {
  texts_.at(sequence).append(tokens);
}

void LookupDrafter::propose(std::span<const DraftRequest> requests) {
  const Stopwatch watch;
  for (const DraftRequest& request : requests) propose(request);
  time_.add(watch.ms(), requests.size());
}

// The best node first: a child is found when its parent is proposed.
void LookupDrafter::propose(const DraftRequest& request) const {
  const SuffixText& text = texts_.at(request.sequence);
  const DraftLimits& limits = request.limits;
  struct Found {
    double value;  // the probability of its path
    int number;    // as found; of equal values the first is the best
    int parent;    // in the request's tree
    int depth;
    SuffixText::Guess guess;

    bool operator<(const Found& other) const {
      return value != other.value ? value < other.value : number > other.number;
    }
  };
  std::priority_queue<Found> found;
  int n_found = 0;
  const auto expand = [&](int parent, int depth, double value, SuffixText::End end) {
    if (depth == limits.depth || limits.width <= 0) return;
    for (const SuffixText::Guess& guess : text.guesses(end, limits.width))
      found.push({value * guess.probability, n_found++, parent, depth + 1, guess});
  };
  expand(0, 0, 1, text.end());
  for (int n = 0; n < limits.nodes && !found.empty(); ++n) {
    const Found best = found.top();
    found.pop();
    const int node =
        request.tree->propose(best.parent, best.guess.token,
                              {request.drafter, static_cast<float>(best.guess.probability)});
    expand(node, best.depth, best.value, best.guess.end);
  }
}

void LookupDrafter::truncate(DraftSequence sequence, int length) {
  texts_.at(sequence).truncate(length);
}

void LookupDrafter::end(DraftSequence sequence) {
  CHECK(texts_.erase(sequence) == 1);
}

namespace {

constexpr const char* kMemory = "--draft-memory";

std::size_t parse_memory(std::string_view text) {
  const auto mib = parse_number<int>(text);
  if (!mib) throw Error("expected a whole number");
  if (*mib < 1) throw Error("at least 1");
  if (*mib > 1 << 20) throw Error("at most {}", 1 << 20);
  return static_cast<std::size_t>(*mib) << 20;
}

}  // namespace

const DrafterKind& lookup_kind() {
  static const DrafterKind kind{
      .name = "lookup",
      .value = "",
      .help = "what followed the same tokens earlier in the text",
      .flags = {{.name = kMemory,
                 .value = "MIB",
                 .standard = "256",
                 .help = "memory for the index of a text",
                 .choices = {},
                 .check = [](std::string_view value) { parse_memory(value); }}},
      .make = [](const DrafterContext& context) -> std::unique_ptr<Drafter> {
        return std::make_unique<LookupDrafter>(LookupOptions{
            .memory_bytes = parse_memory(flag_value(lookup_kind(), context.flags, kMemory))});
      }};
  return kind;
}

}  // namespace outrider
