#include "cpu/fast_choice.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

#include "cpu/bump_allocator.h"
#include "cpu/kernels/kernels.h"
#include "numerics/functions.h"

namespace outrider {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::size_t kScoresAtOnce = kScoredBlocks * kChoiceBlock;
// How many tokens carry nearly all of the probability, estimated.
constexpr std::size_t kUsuallyEnough = 64;

ChoiceMemory::Arrays take_arrays(std::size_t n_tokens, BumpAllocator& memory) {
  const std::size_t n_blocks = blocks_of(n_tokens), padded = n_blocks * kChoiceBlock;
  const std::size_t padded_blocks = blocks_of(n_blocks) * kChoiceBlock;
  // scores_at_least() reads the slices of kScoredBlocks blocks, whether the race has them or not.
  const std::size_t n_slices = (n_blocks + kScoredBlocks) * (kChoiceBlock / kChoiceSlice);
  ChoiceMemory::Arrays arrays;
  arrays.row = memory.take<float>(padded);
  arrays.logits = memory.take<float>(padded);
  arrays.values = memory.take<float>(padded);
  arrays.keys = memory.take<RankKey>(padded);
  for (RankedPlace* place : {&arrays.ranking.group, &arrays.ranking.rest}) {
    place->keys = memory.take<RankKey>(padded + kChoiceBlock).data();
    place->weights = memory.take<float>(padded + kChoiceBlock).data();
  }
  arrays.maxima = memory.take<float>(padded_blocks);
  arrays.minima = memory.take<RankKey>(padded_blocks);
  arrays.minima_of_maxima = memory.take<RankKey>(padded_blocks);
  arrays.slices = memory.take<std::uint32_t>(n_slices);
  arrays.every_slice = memory.take<std::uint32_t>(n_slices);
  return arrays;
}

void put(const PlacedTokens& tokens, std::span<const float> given, std::span<float> row) {
  for (std::size_t i = 0; i < tokens.ids.size(); ++i)
    row[static_cast<std::size_t>(tokens.ids[i])] = given[tokens.places[i]];
}

// A row with the logits of all tokens, of which most have none.
void fill_in(const PlacedTokens& tokens, std::span<const float> given, std::size_t vocabulary,
             std::vector<float>& all) {
  all.assign(vocabulary, -kInfinity);
  put(tokens, given, all);
}

bool better(const RaceEntry& a, const RaceEntry& b) {
  return a.score != b.score ? a.score > b.score : a.place < b.place;
}

std::size_t best_wanted(const ChoiceRequest& request) {
  return request.n_best > 0 ? static_cast<std::size_t>(request.n_best) : 1;
}

// One row's choice.
class Choosing {
 public:
  Choosing(const ChoiceKernels& kernels, ChoiceMemory& memory, const ChoiceRequest& request)
      : kernels_(kernels), memory_(memory.arrays), best_(memory.best), request_(request) {}

  // `choice` stays empty if the row cannot be used.
  void among_all(std::span<const float> given, Choice& choice) {
    n_tokens_ = given.size();
    look_at({given, memory_.every_slice.first(slices_of(given.size()))});
    if (!std::isfinite(max_)) return;
    if (names_tokens()) {
      const std::span<float> row = memory_.row.first(blocks_of(given.size()) * kChoiceBlock);
      std::fill(std::copy(given.begin(), given.end(), row.begin()), row.end(), -kInfinity);
      process(row);
    }
    decide(choice);
  }

  // The same where only some have logits.
  void among(const PlacedTokens& tokens, std::span<const float> given, std::size_t vocabulary,
             Choice& choice) {
    n_tokens_ = vocabulary;
    if (!names_tokens()) {
      look_at(first_slices(spread(tokens, given)));
    } else {
      const std::span<float> row = memory_.row.first(blocks_of(vocabulary) * kChoiceBlock);
      std::fill(row.begin(), row.end(), -kInfinity);
      put(tokens, given, row);
      look_at({row, memory_.every_slice.first(slices_of(vocabulary))});
      if (!std::isfinite(max_)) return;
      process(row);
    }
    decide(choice);
  }

 private:
  void look_at(RaceView race) {
    race_ = race;
    n_blocks_ = blocks_of(race.logits.size());
    max_ = n_blocks_ > 0 ? kernels_.block_maxima(race.logits, memory_.maxima) : -kInfinity;
  }
  std::span<const float> maxima() const { return memory_.maxima.first(n_blocks_); }

  bool names_tokens() const {
    return !request_.bias.empty() || !request_.counts.empty() || !request_.allowed.empty();
  }
  // `row` is a copy of the row in the race. It becomes the processed logits, and the race's row.
  void process(std::span<float> row) {
    add_bias_and_penalties(request_, row.first(n_tokens_));
    race_.logits = row;
    if (!request_.allowed.empty()) {
      kernels_.forbid(request_.allowed, row);
      look_at(race_);
      return;
    }
    for (const TokenBias& entry : request_.bias) look_again(entry.token);
    for (const TokenCount& entry : request_.counts) look_again(entry.token);
    max_ = kernels_.block_maxima(maxima(), memory_.values);
  }
  // Updates the maximum of the token's block, in which a logit has changed.
  void look_again(Token token) {
    if (token < 0 || static_cast<std::size_t>(token) >= n_tokens_) return;
    const std::size_t block = static_cast<std::size_t>(token) / kChoiceBlock;
    float max_of_block;
    memory_.maxima[block] = kernels_.block_maxima(
        race_.logits.subspan(block * kChoiceBlock, kChoiceBlock), std::span(&max_of_block, 1));
  }

  // Puts the slices that hold one of the tokens into memory_; returns their number.
  std::size_t spread(const PlacedTokens& tokens, std::span<const float> given) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
      const auto id = static_cast<std::uint32_t>(tokens.ids[i]);
      if (n == 0 || memory_.slices[n - 1] != id / kChoiceSlice) {
        std::fill_n(&memory_.logits[n * kChoiceSlice], kChoiceSlice, -kInfinity);
        memory_.slices[n++] = id / kChoiceSlice;
      }
      memory_.logits[(n - 1) * kChoiceSlice + id % kChoiceSlice] = given[tokens.places[i]];
    }
    return n;
  }

  void decide(Choice& choice) {
    if (!std::isfinite(max_)) return;
    if (request_.filters.temperature > 0) {
      choose_sampled(choice);
    } else {
      choose_greedily(choice);
    }
  }

  // Keeps the tokens with logits >= bound in the race, in memory_.
  void gather(float bound) { leave(kernels_.gather(race_, maxima(), bound, place())); }
  void keep(const RankCut& cut) {
    leave(kernels_.keep(race_, memory_.keys, memory_.minima.first(n_blocks_), cut, place()));
  }
  RacePlace place() {
    return {memory_.logits.data(), memory_.slices.data(), memory_.maxima.data()};
  }
  // The race goes on with the first n slices of place(), whose maxima are known.
  void leave(std::size_t n) {
    race_ = first_slices(n);
    n_blocks_ = blocks_of(race_.logits.size());
    max_ = n > 0 ? kernels_.block_maxima(maxima(), memory_.values) : -kInfinity;
  }
  // The first n slices in memory_; their last block is filled up with -inf.
  RaceView first_slices(std::size_t n) {
    const std::size_t padded = blocks_of(n * kChoiceSlice) * kChoiceBlock;
    std::fill(memory_.logits.begin() + static_cast<std::ptrdiff_t>(n * kChoiceSlice),
              memory_.logits.begin() + static_cast<std::ptrdiff_t>(padded), -kInfinity);
    std::fill(memory_.slices.begin() + static_cast<std::ptrdiff_t>(n),
              memory_.slices.begin() + static_cast<std::ptrdiff_t>(padded / kChoiceSlice), 0u);
    return {memory_.logits.first(padded), memory_.slices.first(n)};
  }
  std::span<float> values() { return memory_.values.first(n_blocks_ * kChoiceBlock); }

  void keep_reaching(std::span<const float> weights, float enough, std::size_t expected) {
    const RankedTokens tokens = {.keys = memory_.keys.first(n_blocks_ * kChoiceBlock),
                                 .minima = memory_.minima.first(n_blocks_),
                                 .weights = weights};
    if (const auto cut = fewest_that_reach(kernels_, tokens, enough, expected, memory_.ranking))
      keep(*cut);
  }

  void filter_top_k(std::size_t k) {
    // If the maxima of k blocks are at least `bound`, so are k tokens. The k best are therefore
    // among the tokens that are at least `bound`, and these are all that need ranking.
    kernels_.keys_by_logit(maxima(), memory_.keys, memory_.minima_of_maxima);
    const RankKey bound = bound_of_first(kernels_, memory_.keys.first(n_blocks_), k);
    gather(value_of(std::min(bound, key_of(std::numeric_limits<float>::lowest()))));
    kernels_.keys_by_logit(race_.logits, memory_.keys, memory_.minima);
    std::fill(values().begin(), values().end(), 1.0f);
    keep_reaching(values(), static_cast<float>(k), k);
  }

  void filter_typical() {
    const float sum = kernels_.exp_differences(race_.logits, max_, memory_.values);
    const float log_sum = log_f32(sum);
    const float entropy = kernels_.share_with_entropy(race_.logits, values(), sum, max_, log_sum);
    kernels_.keys_by_surprise(race_.logits, max_, log_sum, entropy, memory_.keys, memory_.minima);
    keep_reaching(values(), request_.filters.typical_p, kUsuallyEnough);
  }

  void filter_top_p() {
    const float sum = kernels_.exp_differences(race_.logits, max_, memory_.values);
    // Shares of 0 are not ranked: none of them is the one that reaches.
    kernels_.keys_by_share(values(), sum, memory_.keys, memory_.minima);
    keep_reaching({}, request_.filters.top_p, kUsuallyEnough);
  }

  void filter_min_p() {
    leave(kernels_.gather_likely(race_, maxima(), max_, request_.filters.min_p, place()));
  }

  void filter() {
    const Filters& f = request_.filters;
    if (f.top_k > 0) {
      filter_top_k(static_cast<std::size_t>(f.top_k));
    } else if (f.typical_p < 1 || f.top_p < 1) {
      gather(std::numeric_limits<float>::lowest());
    }
    if (f.typical_p < 1) filter_typical();
    if (f.top_p < 1) filter_top_p();
    if (f.min_p > 0) filter_min_p();
  }

  std::size_t block_of_max() const {
    return static_cast<std::size_t>(std::find(maxima().begin(), maxima().end(), max_) -
                                    maxima().begin());
  }

  // The n best by logit / temperature + noise, best first.
  std::span<const RaceEntry> race(std::size_t n) {
    std::vector<RaceEntry>& heap = best_;  // the worst on top
    heap.clear();
    float bar = -kInfinity;
    std::array<RaceEntry, kScoresAtOnce> scores;
    const auto enter = [&](std::size_t first_block) {
      const std::size_t found = kernels_.scores_at_least(
          race_, maxima(), request_.filters.temperature, request_.noise, first_block, bar, scores);
      for (const RaceEntry& entry : std::span(scores).first(found)) {
        if (heap.size() == n) {
          if (!better(entry, heap.front())) continue;
          std::pop_heap(heap.begin(), heap.end(), better);
          heap.pop_back();
        }
        heap.push_back(entry);
        std::push_heap(heap.begin(), heap.end(), better);
      }
      if (heap.size() == n) bar = heap.front().score;
    };
    // The blocks with the best logit come first: they set a high bar for all others.
    const std::size_t best = block_of_max() / kScoredBlocks * kScoredBlocks;
    enter(best);
    for (std::size_t block = 0; block < n_blocks_; block += kScoredBlocks)
      if (block != best) enter(block);
    std::sort_heap(heap.begin(), heap.end(), better);
    return heap;
  }

  Token token_at(std::size_t place) const {
    return static_cast<Token>(race_.slices[place / kChoiceSlice] * kChoiceSlice +
                              place % kChoiceSlice);
  }

  void choose_sampled(Choice& choice) {
    filter();
    const float temperature = request_.filters.temperature;
    const float best = max_ / temperature;
    if (!std::isfinite(best)) return;
    const std::span<const RaceEntry> ranking = race(best_wanted(request_));
    choice.token = token_at(ranking.front().place);
    if (request_.n_best <= 0 && !request_.wants_probabilities) return;
    std::span<const float> scaled = race_.logits;
    if (temperature != 1) {
      kernels_.divide(race_.logits, temperature, memory_.values);
      scaled = memory_.values.first(race_.logits.size());
    }
    const float sum = kernels_.exp_differences(scaled, best, memory_.values);
    if (request_.n_best > 0) {
      for (const RaceEntry& entry : ranking)
        choice.best.push_back(
            {token_at(entry.place), entry.score, memory_.values[entry.place] / sum});
    }
    report_probabilities(sum, choice);
  }

  void choose_greedily(Choice& choice) {
    const auto from =
        race_.logits.begin() + static_cast<std::ptrdiff_t>(block_of_max() * kChoiceBlock);
    choice.token = token_at(
        static_cast<std::size_t>(std::find(from, race_.logits.end(), max_) - race_.logits.begin()));
    if (request_.n_best <= 0 && !request_.wants_probabilities) return;
    const float sum = kernels_.exp_differences(race_.logits, max_, memory_.values);
    report_probabilities(sum, choice);
    if (request_.n_best <= 0) return;
    const float max = max_;
    filter_top_k(best_wanted(request_));
    std::vector<RaceEntry>& best = best_;
    best.clear();
    for (std::uint32_t place = 0; place < race_.logits.size(); ++place)
      if (race_.logits[place] > -kInfinity) best.push_back({race_.logits[place] + 0.0f, place});
    std::sort(best.begin(), best.end(), better);
    for (const RaceEntry& entry : best)
      choice.best.push_back({token_at(entry.place), entry.score, exp_f32(entry.score - max) / sum});
  }

  // values() must hold the exponentials of the race's scores, whose sum is `sum`.
  void report_probabilities(float sum, Choice& choice) {
    if (!request_.wants_probabilities) return;
    kernels_.divide(values(), sum, memory_.values);
    for (std::size_t place = 0; place < race_.logits.size(); ++place)
      if (memory_.values[place] > 0)
        choice.probabilities.push_back({token_at(place), memory_.values[place]});
  }

  const ChoiceKernels& kernels_;
  const ChoiceMemory::Arrays& memory_;
  std::vector<RaceEntry>& best_;
  const ChoiceRequest& request_;
  std::size_t n_tokens_ = 0;
  RaceView race_;
  std::size_t n_blocks_ = 0;  // of the race
  float max_ = 0;             // of its logits
};

// What a choice holds before anything is chosen.
void begin(const ChoiceRequest& request, std::size_t n_tokens, ChoiceMemory& memory,
           Choice& choice) {
  reserve(request, n_tokens, memory, choice);
  choice.token.reset();
  choice.best.clear();
  choice.probabilities.clear();
  choice.logits.clear();
}

}  // namespace

void ChoiceMemory::reserve(std::size_t n_tokens, std::size_t n_best) {
  best.reserve(n_best);
  if (n_tokens <= n_tokens_) return;
  BumpAllocator counter;
  take_arrays(n_tokens, counter);
  buffer_ = HugeBuffer(counter.used_bytes(), /*is_filled=*/false);
  BumpAllocator memory(buffer_.as<std::byte>());
  arrays = take_arrays(n_tokens, memory);
  std::iota(arrays.every_slice.begin(), arrays.every_slice.end(), 0u);
  n_tokens_ = n_tokens;
}

bool has_fast_choice(Isa isa) {
  return kernels(isa).choice != nullptr;
}

void reserve(const ChoiceRequest& request, std::size_t n_tokens, ChoiceMemory& memory,
             Choice& choice) {
  const std::size_t n_best = std::min(best_wanted(request), n_tokens);
  memory.reserve(n_tokens, n_best);
  if (request.n_best > 0) choice.best.reserve(n_best);
  if (request.wants_probabilities) choice.probabilities.reserve(n_tokens);
  if (request.wants_logits) choice.logits.reserve(n_tokens);
}

void choose(std::span<const float> logits, const ChoiceRequest& request, Isa isa,
            ChoiceMemory& memory, Choice& choice) {
  const ChoiceKernels* table = kernels(isa).choice;
  if (table == nullptr) {
    choice = choose_reference(logits, request);
    return;
  }
  begin(request, logits.size(), memory, choice);
  if (request.wants_logits) choice.logits.assign(logits.begin(), logits.end());
  Choosing(*table, memory, request).among_all(logits, choice);
}

void choose_among(const PlacedTokens& tokens, std::span<const float> logits, std::size_t vocabulary,
                  const ChoiceRequest& request, Isa isa, ChoiceMemory& memory, Choice& choice) {
  const ChoiceKernels* table = kernels(isa).choice;
  if (table == nullptr) {
    std::vector<float> all;
    fill_in(tokens, logits, vocabulary, all);
    choice = choose_reference(all, request);
    return;
  }
  begin(request, vocabulary, memory, choice);
  if (request.wants_logits) fill_in(tokens, logits, vocabulary, choice.logits);
  Choosing(*table, memory, request).among(tokens, logits, vocabulary, choice);
}

}  // namespace outrider
