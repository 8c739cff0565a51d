#include "speculation/drafters/lookup.h"

#include <algorithm>
#include <queue>

#include "base/error.h"
#include "base/numbers.h"
#include "base/stopwatch.h"
#include "speculation/drafter_kind.h"

namespace outrider {

const DrafterKind& lookup_kind();

namespace {

constexpr std::size_t kOtherScopes = 8;

}  // namespace

void LookupDrafter::begin(DraftSequence sequence, CacheScope scope) {
  Text text{.own = SuffixText(options_.memory_bytes), .answers = answers_of(scope)};
  CHECK(texts_.try_emplace(sequence, std::move(text)).second);
}

std::shared_ptr<EarlierAnswers> LookupDrafter::answers_of(CacheScope scope) {
  if (!options_.earlier || scope == CacheScope{}) return options_.earlier;
  auto place =
      std::ranges::find(other_answers_, scope, [](const auto& other) { return other.first; });
  if (place == other_answers_.end()) {
    auto made = std::make_shared<EarlierAnswers>(
        EarlierAnswers::Options{.memory_bytes = options_.earlier_bytes});
    if (other_answers_.size() == kOtherScopes) other_answers_.pop_back();
    other_answers_.emplace_back(scope, std::move(made));
    place = other_answers_.end() - 1;
  }
  std::rotate(other_answers_.begin(), place, place + 1);
  return other_answers_.front().second;
}

void LookupDrafter::observe(DraftSequence sequence, std::span<const Token> tokens) {
  Text& text = texts_.at(sequence);
  text.own.append(tokens);
  if (!text.answers) return;
  const SuffixText& earlier = text.answers->text();
  if (text.answers->version() != text.version) return;
  for (const Token token : tokens) text.earlier = earlier.after(text.earlier, token);
}

void LookupDrafter::expect(DraftSequence sequence, std::span<const Token>) {
  Text& text = texts_.at(sequence);
  text.answer = text.own.size();
  if (text.answers) text.answers->load();
}

void LookupDrafter::propose(std::span<const DraftRequest> requests) {
  const Stopwatch watch;
  for (const DraftRequest& request : requests) propose(request);
  time_.add(watch.ms(), requests.size());
}

// The best node first: a child is found when its parent is proposed.
void LookupDrafter::propose(const DraftRequest& request) {
  Text& text = texts_.at(request.sequence);
  using Sources = std::vector<SuffixText::Source>;
  std::vector<Sources> sources{{{&text.own, text.own.end()}}};  // for each node that was expanded
  if (text.answers) {
    const SuffixText& earlier = find_earlier(text);
    sources[0].push_back({&earlier, text.earlier});
  }
  const DraftLimits& limits = request.limits;
  struct Found {
    double value;  // the probability of its path
    int number;    // as found; of equal values the first is the best
    int parent;    // in the request's tree
    int depth;
    SuffixText::Guess guess;
    std::size_t sources;  // its parent's

    bool operator<(const Found& other) const {
      return value != other.value ? value < other.value : number > other.number;
    }
  };
  std::priority_queue<Found> found;
  int n_found = 0;
  const auto expand = [&](int parent, int depth, double value) {
    if (depth == limits.depth || limits.width <= 0) return;
    for (const SuffixText::Guess& guess : SuffixText::guesses(sources.back(), limits.width))
      found.push(
          {value * guess.probability, n_found++, parent, depth + 1, guess, sources.size() - 1});
  };
  expand(0, 0, 1);
  for (int n = 0; n < limits.nodes && !found.empty(); ++n) {
    const Found best = found.top();
    found.pop();
    const int node =
        request.tree->propose(best.parent, best.guess.token,
                              {request.drafter, static_cast<float>(best.guess.probability)});
    sources.push_back(sources[best.sources]);
    for (auto& [source, end] : sources.back()) end = source->after(end, best.guess.token);
    expand(node, best.depth, best.value);
  }
}

// The answers, with the text's end among them.
const SuffixText& LookupDrafter::find_earlier(Text& text) {
  const SuffixText& earlier = text.answers->text();
  if (text.version == text.answers->version()) return earlier;
  text.version = text.answers->version();
  text.earlier = {};
  for (const Token token : text.own.tokens()) text.earlier = earlier.after(text.earlier, token);
  return earlier;
}

void LookupDrafter::end_answer(Text& text) {
  if (text.answers && text.answer && *text.answer < text.own.size())
    text.answers->add(text.own.tokens().subspan(*text.answer));
  text.answer.reset();
}

void LookupDrafter::truncate(DraftSequence sequence, int length) {
  Text& text = texts_.at(sequence);
  end_answer(text);
  text.own.truncate(length);
  text.version = -1;
}

void LookupDrafter::end(DraftSequence sequence) {
  end_answer(texts_.at(sequence));
  CHECK(texts_.erase(sequence) == 1);
}

void LookupDrafter::forget() {
  if (options_.earlier) options_.earlier->forget();
  for (const auto& [scope, answers] : other_answers_) answers->forget();
}

namespace {

constexpr const char* kMemory = "--draft-memory";
constexpr const char* kHistory = "--history";
constexpr std::size_t kHistoryMemory = std::size_t{64} << 20;

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
      .other_name = "suffix",
      .value = "",
      .help = "what followed the same tokens earlier in the text",
      .flags = {{.name = kMemory,
                 .value = "MIB",
                 .standard = "256",
                 .help = "memory for the index of a text",
                 .choices = {},
                 .check = [](std::string_view value) { parse_memory(value); }},
                {.name = kHistory,
                 .value = "",
                 .standard = "",
                 .help = "drafts come from earlier answers of this model, too; run keeps them on "
                         "this machine, serve in memory and apart for each API key",
                 .choices = {}}},
      .make = [](const DrafterContext& context) -> std::unique_ptr<Drafter> {
        LookupOptions options{.memory_bytes =
                                  parse_memory(flag_value(lookup_kind(), context.flags, kMemory))};
        if (context.flags.contains(kHistory) && context.earlier)
          options.earlier = context.earlier(kHistoryMemory);
        return std::make_unique<LookupDrafter>(std::move(options));
      }};
  return kind;
}

}  // namespace outrider
