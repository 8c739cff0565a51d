#include "cpu/fast_choice.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "base/huge_buffer.h"
#include "cpu/choice_ranking.h"
#include "cpu/kernels/kernels.h"
#include "numerics/functions.h"

namespace outrider {

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr std::size_t kScoresAtOnce = kScoredBlocks * kChoiceBlock;
// A guess at how many tokens carry nearly all of the probability.
constexpr std::size_t kUsuallyEnough = 64;

// Working memory for rows of up to `n` tokens, every array a whole number of blocks.
struct Room {
  explicit Room(std::size_t n) : n(n) {
    const std::size_t padded = blocks_of(n) * kChoiceBlock, n_blocks = blocks_of(n);
    const std::size_t padded_blocks = blocks_of(n_blocks) * kChoiceBlock;
    const std::size_t group = padded + kChoiceBlock;
    // scores_at_least() reads the slices of kScoredBlocks blocks, whether the race has them or not.
    const std::size_t n_slices = (n_blocks + kScoredBlocks) * 4;
    memory =
        HugeBuffer((4 * padded + 4 * group + 2 * n_slices + 3 * padded_blocks) * sizeof(float));
    std::span<std::byte> left(memory.begin(), memory.size());
    const auto take = [&]<typename T>(std::span<T>& array, std::size_t size) {
      array = {reinterpret_cast<T*>(left.data()), size};
      left = left.subspan(size * sizeof(T));
    };
    std::span<RankKey> ranked;
    std::span<float> weights;
    take(row, padded);
    take(logits, padded);
    take(values, padded);
    take(keys, padded);
    for (RankedPlace* place : {&ranking.group, &ranking.rest}) {
      take(ranked, group);
      place->keys = ranked.data();
      take(weights, group);
      place->weights = weights.data();
    }
    take(maxima, padded_blocks);
    take(minima, padded_blocks);
    take(minima_of_maxima, padded_blocks);
    take(slices, n_slices);
    take(every_slice, n_slices);
    std::iota(every_slice.begin(), every_slice.end(), 0u);
  }

  std::size_t n;
  HugeBuffer memory;
  std::span<float> row;     // processed logits
  std::span<float> logits;  // of the tokens in the race, once filters have worked
  std::span<float> values;  // their exponentials, then probabilities
  std::span<RankKey> keys, minima, minima_of_maxima;
  std::span<float> maxima;  // of the race's blocks
  std::span<std::uint32_t> slices, every_slice;
  RankingRoom ranking;
  std::vector<RaceEntry> ranking_of_race;
};

void put(const PlacedTokens& tokens, std::span<const float> given, std::span<float> row) {
  for (std::size_t i = 0; i < tokens.ids.size(); ++i)
    row[static_cast<std::size_t>(tokens.ids[i])] = given[tokens.places[i]];
}

bool better(const RaceEntry& a, const RaceEntry& b) {
  return a.score != b.score ? a.score > b.score : a.place < b.place;
}

// One row's choice.
class Choosing {
 public:
  Choosing(const ChoiceKernels& kernels, Room& room, const ChoiceRequest& request)
      : kernels_(kernels), room_(room), request_(request) {}

  // `choice` stays empty if the row cannot be used.
  void among_all(std::span<const float> given, Choice& choice) {
    n_tokens_ = given.size();
    look_at({given, room_.every_slice.first(slices_of(given.size()))});
    if (!std::isfinite(max_)) return;
    if (names_tokens()) {
      const std::span<float> row = room_.row.first(blocks_of(given.size()) * kChoiceBlock);
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
      const std::span<float> row = room_.row.first(blocks_of(vocabulary) * kChoiceBlock);
      std::fill(row.begin(), row.end(), -kInfinity);
      put(tokens, given, row);
      look_at({row, room_.every_slice.first(slices_of(vocabulary))});
      if (!std::isfinite(max_)) return;
      process(row);
    }
    decide(choice);
  }

 private:
  void look_at(RaceView race) {
    race_ = race;
    n_blocks_ = blocks_of(race.logits.size());
    max_ = n_blocks_ > 0 ? kernels_.block_maxima(race.logits, room_.maxima) : -kInfinity;
  }
  std::span<const float> maxima() const { return room_.maxima.first(n_blocks_); }

  bool names_tokens() const {
    return !request_.bias.empty() || !request_.counts.empty() || !request_.allowed.empty();
  }
  // A row that was looked at becomes the processed logits; `row` holds a copy of it.
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
    max_ = kernels_.block_maxima(maxima(), room_.values);
  }
  // At a block in which a logit has changed.
  void look_again(Token token) {
    if (token < 0 || static_cast<std::size_t>(token) >= n_tokens_) return;
    const std::size_t block = static_cast<std::size_t>(token) / kChoiceBlock;
    float max_of_block;
    room_.maxima[block] = kernels_.block_maxima(
        race_.logits.subspan(block * kChoiceBlock, kChoiceBlock), std::span(&max_of_block, 1));
  }

  // The slices that hold one of the tokens, in room_.
  std::size_t spread(const PlacedTokens& tokens, std::span<const float> given) {
    std::size_t n = 0;
    for (std::size_t i = 0; i < tokens.ids.size(); ++i) {
      const auto id = static_cast<std::uint32_t>(tokens.ids[i]);
      if (n == 0 || room_.slices[n - 1] != id / kChoiceSlice) {
        std::fill_n(&room_.logits[n * kChoiceSlice], kChoiceSlice, -kInfinity);
        room_.slices[n++] = id / kChoiceSlice;
      }
      room_.logits[(n - 1) * kChoiceSlice + id % kChoiceSlice] = given[tokens.places[i]];
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

  // Moves tokens with logits >= bound into room_.logits.
  void gather(float bound) { leave(kernels_.gather(race_, maxima(), bound, place())); }
  void keep(const RankCut& cut) {
    leave(kernels_.keep(race_, room_.keys, room_.minima.first(n_blocks_), cut, place()));
  }
  RacePlace place() { return {room_.logits.data(), room_.slices.data(), room_.maxima.data()}; }
  // The first n slices of place(), whose maxima are known, are what is left of the race.
  void leave(std::size_t n) {
    race_ = first_slices(n);
    n_blocks_ = blocks_of(race_.logits.size());
    max_ = n > 0 ? kernels_.block_maxima(maxima(), room_.values) : -kInfinity;
  }
  // The first n slices in room_, with what fills up their last block.
  RaceView first_slices(std::size_t n) {
    const std::size_t padded = blocks_of(n * kChoiceSlice) * kChoiceBlock;
    std::fill(room_.logits.begin() + static_cast<std::ptrdiff_t>(n * kChoiceSlice),
              room_.logits.begin() + static_cast<std::ptrdiff_t>(padded), -kInfinity);
    std::fill(room_.slices.begin() + static_cast<std::ptrdiff_t>(n),
              room_.slices.begin() + static_cast<std::ptrdiff_t>(padded / kChoiceSlice), 0u);
    return {room_.logits.first(padded), room_.slices.first(n)};
  }
  std::span<const float> values() const { return room_.values.first(n_blocks_ * kChoiceBlock); }
  std::span<float> values() { return room_.values.first(n_blocks_ * kChoiceBlock); }

  void keep_reaching(std::span<const float> weights, float enough, std::size_t expected) {
    const RankedTokens tokens = {.keys = room_.keys.first(n_blocks_ * kChoiceBlock),
                                 .minima = room_.minima.first(n_blocks_),
                                 .weights = weights};
    if (const auto cut = fewest_that_reach(kernels_, tokens, enough, expected, room_.ranking))
      keep(*cut);
  }

  void filter_top_k(std::size_t k) {
    // As many blocks as are wanted tokens have such a token, so their maxima give a bound.
    kernels_.keys_by_logit(maxima(), room_.keys, room_.minima_of_maxima);
    const RankKey bound = bound_of_first(kernels_, room_.keys.first(n_blocks_), k);
    gather(value_of(std::min(bound, key_of(std::numeric_limits<float>::lowest()))));
    kernels_.keys_by_logit(race_.logits, room_.keys, room_.minima);
    std::fill(values().begin(), values().end(), 1.0f);
    keep_reaching(values(), static_cast<float>(k), k);
  }

  void filter_typical() {
    const float sum = kernels_.exp_differences(race_.logits, max_, room_.values);
    const float log_sum = log_f32(sum);
    const float entropy = kernels_.share_with_entropy(race_.logits, values(), sum, max_, log_sum);
    kernels_.keys_by_surprise(race_.logits, max_, log_sum, entropy, room_.keys, room_.minima);
    keep_reaching(values(), request_.filters.typical_p, kUsuallyEnough);
  }

  void filter_top_p() {
    const float sum = kernels_.exp_differences(race_.logits, max_, room_.values);
    // Shares of 0 are not ranked: none of them is the one that reaches.
    kernels_.keys_by_share(values(), sum, room_.keys, room_.minima);
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

  // The n best of logit / temperature + noise, best first.
  std::span<const RaceEntry> race(std::size_t n) {
    std::vector<RaceEntry>& heap = room_.ranking_of_race;  // the worst on top
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
    // The best logits first: they set a high bar.
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
  std::size_t wanted() const {
    return request_.n_best > 0 ? static_cast<std::size_t>(request_.n_best) : 1;
  }

  void choose_sampled(Choice& choice) {
    filter();
    const float temperature = request_.filters.temperature;
    const float best = max_ / temperature;
    if (!std::isfinite(best)) return;
    const std::span<const RaceEntry> ranking = race(wanted());
    choice.token = token_at(ranking.front().place);
    if (request_.n_best <= 0 && !request_.wants_probabilities) return;
    std::span<const float> scaled = race_.logits;
    if (temperature != 1) {
      kernels_.divide(race_.logits, temperature, room_.values);
      scaled = values();
    }
    const float sum = kernels_.exp_differences(scaled, best, room_.values);
    if (request_.n_best > 0) {
      for (const RaceEntry& entry : ranking)
        choice.best.push_back(
            {token_at(entry.place), entry.score, room_.values[entry.place] / sum});
    }
    report_probabilities(sum, choice);
  }

  void choose_greedily(Choice& choice) {
    const auto from =
        race_.logits.begin() + static_cast<std::ptrdiff_t>(block_of_max() * kChoiceBlock);
    choice.token = token_at(
        static_cast<std::size_t>(std::find(from, race_.logits.end(), max_) - race_.logits.begin()));
    if (request_.n_best <= 0 && !request_.wants_probabilities) return;
    const float sum = kernels_.exp_differences(race_.logits, max_, room_.values);
    report_probabilities(sum, choice);
    if (request_.n_best <= 0) return;
    const float max = max_;
    filter_top_k(wanted());
    std::vector<RaceEntry>& best = room_.ranking_of_race;
    best.clear();
    for (std::uint32_t place = 0; place < race_.logits.size(); ++place)
      if (race_.logits[place] > -kInfinity) best.push_back({race_.logits[place] + 0.0f, place});
    std::sort(best.begin(), best.end(), better);
    for (const RaceEntry& entry : best)
      choice.best.push_back({token_at(entry.place), entry.score, exp_f32(entry.score - max) / sum});
  }

  // values(): exponentials of the race's scores.
  void report_probabilities(float sum, Choice& choice) {
    if (!request_.wants_probabilities) return;
    kernels_.divide(values(), sum, room_.values);
    choice.probabilities.resize(n_tokens_);
    const float* p = room_.values.data();
    for (const std::uint32_t slice : race_.slices) {
      const std::size_t id = slice * kChoiceSlice;
      std::copy_n(p, std::min(kChoiceSlice, n_tokens_ - id), &choice.probabilities[id]);
      p += kChoiceSlice;
    }
  }

  const ChoiceKernels& kernels_;
  Room& room_;
  const ChoiceRequest& request_;
  std::size_t n_tokens_ = 0;
  RaceView race_;
  std::size_t n_blocks_ = 0;  // of the race
  float max_ = 0;             // of its logits
};

// A model and its draft model may choose on the same thread; the room is for the larger one.
Room& room_for(std::size_t n) {
  thread_local std::optional<Room> room;
  if (!room || room->n < n) room.emplace(n);
  return *room;
}

std::vector<float> all_logits(const PlacedTokens& tokens, std::span<const float> logits,
                              std::size_t vocabulary) {
  std::vector<float> all(vocabulary, -kInfinity);
  put(tokens, logits, all);
  return all;
}

}  // namespace

Choice choose(std::span<const float> logits, const ChoiceRequest& request, Isa isa) {
  const ChoiceKernels* table = kernels(isa).choice;
  if (table == nullptr) return choose_reference(logits, request);
  Choice choice;
  if (request.wants_logits) choice.logits.assign(logits.begin(), logits.end());
  Choosing(*table, room_for(logits.size()), request).among_all(logits, choice);
  return choice;
}

Choice choose_among(const PlacedTokens& tokens, std::span<const float> logits,
                    std::size_t vocabulary, const ChoiceRequest& request, Isa isa) {
  const ChoiceKernels* table = kernels(isa).choice;
  if (table == nullptr) return choose_reference(all_logits(tokens, logits, vocabulary), request);
  Choice choice;
  if (request.wants_logits) choice.logits = all_logits(tokens, logits, vocabulary);
  Choosing(*table, room_for(vocabulary), request).among(tokens, logits, vocabulary, choice);
  return choice;
}

}  // namespace outrider
