#include "speculation/drafters/lookup.h"

#include <algorithm>
#include <bit>
#include <functional>
#include <new>
#include <numeric>
#include <optional>
#include <utility>

#include "base/error.h"
#include "base/numbers.h"
#include "base/stopwatch.h"
#include "speculation/drafter_kind.h"

namespace outrider {

const DrafterKind& lookup_kind();

namespace {

constexpr std::size_t kFirstBuckets = 64;
// Matches that a proposal follows; more of them seldom have a new continuation.
constexpr std::size_t kMatchesMax = 16;

float confidence(int match_length) {
  return static_cast<float>(match_length) / static_cast<float>(match_length + 2);
}

// Continuations merged into a tree, whose nodes are numbered as they were found.
class Continuations {
 public:
  explicit Continuations(const DraftLimits& limits) : limits_(limits) {}

  // What followed an earlier match of this length.
  void add(std::span<const Token> continuation, int match_length) {
    int node = 0;
    for (int depth = 0; depth < std::ssize(continuation) && depth < limits_.depth; ++depth) {
      if (const auto existing = child(node, continuation[depth])) {
        node = *existing;
        continue;
      }
      Node& parent = nodes_[node];
      if (parent.n_children == limits_.width) return;
      ++parent.n_children;
      const float given = parent.left * confidence(match_length + depth);
      parent.left -= given;
      nodes_.push_back({continuation[depth], node, given, parent.value * given});
      node = static_cast<int>(nodes_.size()) - 1;
    }
  }

  // Node 0 takes no further child.
  bool is_full() const { return nodes_[0].n_children >= limits_.width; }

  // Proposes the most likely nodes.
  void hand_over(DraftTree& tree, int drafter) const {
    // A parent's value is at least its child's and its number is lower, so a stable sort puts it
    // first.
    std::vector<int> order(nodes_.size() - 1);
    std::iota(order.begin(), order.end(), 1);
    std::ranges::stable_sort(order, std::greater<>{}, [&](int node) { return nodes_[node].value; });
    order.resize(std::min<std::size_t>(order.size(), std::max(0, limits_.nodes)));
    std::vector<int> proposed(nodes_.size(), 0);  // numbers in `tree`
    for (int node : order)
      proposed[node] = tree.propose(proposed[nodes_[node].parent], nodes_[node].token,
                                    {drafter, nodes_[node].confidence});
  }

 private:
  struct Node {
    Token token;
    int parent;
    float confidence;  // given its parent
    float value;       // product of confidences along its path
    float left = 1;    // probability left for further children
    int n_children = 0;
  };

  std::optional<int> child(int parent, Token token) const {
    for (int node = parent + 1; node < std::ssize(nodes_); ++node)
      if (nodes_[node].parent == parent && nodes_[node].token == token) return node;
    return std::nullopt;
  }

  const DraftLimits& limits_;
  std::vector<Node> nodes_{{.token = -1, .parent = -1, .confidence = 1, .value = 1}};
};

}  // namespace

std::size_t NgramIndex::bytes(std::size_t n) {
  const std::size_t buckets = std::max(kFirstBuckets, std::bit_ceil(n + 1));
  return buckets * (sizeof(Token) + 2 * kClasses * sizeof(std::uint32_t));
}

void NgramIndex::append(std::span<const Token> tokens) {
  for (Token token : tokens) {
    text_.push_back(token);
    if (text_.size() > n_indexed_max_) continue;
    if (text_.size() >= n_buckets_)
      grow();
    else
      insert(text_.size());
  }
}

void NgramIndex::truncate(std::size_t length) {
  CHECK(length <= text_.size());
  for (std::size_t position = std::min(text_.size(), n_indexed_max_); position > length; --position)
    for (std::size_t i = 0; i < kClasses && static_cast<std::size_t>(kLengths[i]) <= position;
         ++i) {
      Table& table = tables_[i];
      table.buckets[bucket(i, position)] = table.previous[position];
    }
  for (Table& table : tables_)
    if (table.previous.size() > length + 1) table.previous.resize(length + 1);
  text_.resize(length);
}

std::vector<std::size_t> NgramIndex::find(std::size_t length_class, std::size_t n_max) const {
  std::vector<std::size_t> found;
  const std::size_t n = kLengths[length_class];
  if (text_.size() <= n || n_buckets_ == 0) return found;
  const Table& table = tables_[length_class];
  const auto last = text_.end() - n;
  for (std::uint32_t position = table.buckets[bucket(length_class, text_.size())];
       position != 0 && found.size() < n_max; position = table.previous[position])
    if (position < text_.size() && std::equal(last, text_.end(), text_.begin() + position - n))
      found.push_back(position);
  return found;
}

std::size_t NgramIndex::bucket(std::size_t length_class, std::size_t end) const {
  std::uint64_t hash = 0;
  for (int i = 1; i <= kLengths[length_class]; ++i)
    hash = (std::rotl(hash, 23) ^ static_cast<std::uint32_t>(text_[end - i])) * 0x9e3779b97f4a7c15u;
  return hash >> (64 - std::countr_zero(n_buckets_));
}

void NgramIndex::insert(std::size_t position) {
  for (std::size_t i = 0; i < kClasses; ++i) {
    Table& table = tables_[i];
    std::uint32_t previous = 0;
    if (static_cast<std::size_t>(kLengths[i]) <= position)
      previous =
          std::exchange(table.buckets[bucket(i, position)], static_cast<std::uint32_t>(position));
    table.previous.push_back(previous);
  }
}

// There are more buckets than positions, so few n-grams share one. Enters all positions again.
// Out of memory, the text goes on without an index.
void NgramIndex::grow() {
  n_buckets_ = std::max(kFirstBuckets, std::bit_ceil(text_.size() + 1));
  try {
    text_.reserve(n_buckets_);
    for (Table& table : tables_) {
      table.buckets.assign(n_buckets_, 0);
      table.previous.reserve(n_buckets_);
      table.previous.assign(1, 0);
    }
  } catch (const std::bad_alloc&) {
    for (Table& table : tables_) table = {};
    n_buckets_ = n_indexed_max_ = 0;
    return;
  }
  for (std::size_t position = 1; position <= text_.size(); ++position) insert(position);
}

LookupDrafter::LookupDrafter(LookupOptions options) {
  // The most tokens whose index fits: its bits from the highest, for bytes() never falls.
  n_indexed_max_ = 0;
  for (std::size_t step = std::size_t{1} << 31; step > 0; step /= 2)
    if (NgramIndex::bytes(n_indexed_max_ + step) <= options.memory_bytes) n_indexed_max_ += step;
}

void LookupDrafter::begin(DraftSequence sequence) {
  CHECK(texts_.try_emplace(sequence, n_indexed_max_).second);
}

void LookupDrafter::observe(DraftSequence sequence, std::span<const Token> tokens) {
  texts_.at(sequence).append(tokens);
}

void LookupDrafter::propose(std::span<const DraftRequest> requests) {
  const Stopwatch watch;
  for (const DraftRequest& request : requests) propose(request);
  const double ms = watch.ms() / std::max<double>(1, static_cast<double>(requests.size()));
  mean_ms_ = mean_ms_ == 0 ? ms : mean_ms_ + 0.1 * (ms - mean_ms_);
}

void LookupDrafter::propose(const DraftRequest& request) const {
  const NgramIndex& index = texts_.at(request.sequence);
  Continuations continuations(request.limits);
  std::vector<std::size_t> seen;
  for (std::size_t i = NgramIndex::kClasses; i-- > 0 && !continuations.is_full();)
    for (std::size_t position : index.find(i, kMatchesMax)) {
      if (seen.size() == kMatchesMax) break;
      if (std::ranges::find(seen, position) != seen.end()) continue;
      seen.push_back(position);
      continuations.add(index.text().subspan(position), NgramIndex::kLengths[i]);
    }
  continuations.hand_over(*request.tree, request.drafter);
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
