#include "cpu/choice.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "cpu/choice_kernels.h"
#include "numerics/functions.h"
#include "numerics/reduce.h"

namespace outrider {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Values with the largest of each block, made in one pass: what a search for the largest few looks
// at first.
struct Blocks {
  Blocks(const ChoiceKernels& kernels, std::span<const float> x)
      : x(x), maxima((x.size() + kChoiceBlock - 1) / kChoiceBlock) {
    max = x.empty() ? -kInfinity : kernels.block_maxima(x, maxima);
  }
  // The first place of the largest value.
  std::size_t first_of_max() const {
    const auto block =
        static_cast<std::size_t>(std::find(maxima.begin(), maxima.end(), max) - maxima.begin());
    return static_cast<std::size_t>(std::find(x.begin() + block * kChoiceBlock, x.end(), max) -
                                    x.begin());
  }

  std::span<const float> x;
  std::vector<float> maxima;
  float max;  // NaN if any is NaN
};

// Places (ascending) of at least `n` values, all those that are at least as large as the smallest
// of them; -inf never.
std::vector<std::uint32_t> largest_places(const Blocks& blocks, std::size_t n) {
  float bound = -std::numeric_limits<float>::max();
  if (n < blocks.x.size()) {
    // As many blocks as are wanted values have such a value, so their maxima give a bound.
    const bool by_block = n <= blocks.maxima.size();
    std::vector<float> from =
        by_block ? blocks.maxima : std::vector(blocks.x.begin(), blocks.x.end());
    const auto nth = from.begin() + static_cast<std::ptrdiff_t>(n - 1);
    std::nth_element(from.begin(), nth, from.end(), std::greater<>());
    bound = std::max(bound, *nth);
  }
  std::vector<std::uint32_t> places;
  for (std::size_t block = 0; block < blocks.maxima.size(); ++block) {
    if (blocks.maxima[block] < bound) continue;
    const std::size_t begin = block * kChoiceBlock;
    const std::size_t end = std::min(blocks.x.size(), begin + kChoiceBlock);
    for (std::size_t i = begin; i < end; ++i)
      if (blocks.x[i] >= bound) places.push_back(static_cast<std::uint32_t>(i));
  }
  return places;
}

// The first `n` of `places` by (value descending, place ascending), or all if fewer, in that order.
std::vector<std::uint32_t> ranked(std::vector<std::uint32_t> places, std::span<const float> values,
                                  std::size_t n) {
  // A float's bits, the negative ones turned round, order as integers; the place below decides
  // between equals.
  std::vector<std::uint64_t> keys;
  keys.reserve(places.size());
  for (const std::uint32_t place : places) {
    const auto bits = std::bit_cast<std::uint32_t>(values[place] + 0.0f);
    const std::uint32_t descending = bits >> 31 != 0 ? bits : ~bits & 0x7fffffff;
    keys.push_back(std::uint64_t{descending} << 32 | place);
  }
  if (n < keys.size()) {
    std::nth_element(keys.begin(), keys.begin() + static_cast<std::ptrdiff_t>(n), keys.end());
    keys.resize(n);
  }
  std::sort(keys.begin(), keys.end());
  places.resize(keys.size());
  std::transform(keys.begin(), keys.end(), places.begin(),
                 [](std::uint64_t key) { return static_cast<std::uint32_t>(key); });
  return places;
}

// The n best places, or as many as are above -inf, best first.
std::vector<std::uint32_t> best_places(const Blocks& blocks, std::size_t n) {
  return ranked(largest_places(blocks, n), blocks.x, n);
}

// The tokens still in the race, ids ascending, and their logits.
struct Survivors {
  void keep(std::span<const std::uint32_t> places) {  // ascending
    for (std::size_t i = 0; i < places.size(); ++i) {
      ids[i] = ids[places[i]];
      logits[i] = logits[places[i]];
    }
    ids.resize(places.size());
    logits.resize(places.size());
  }
  void drop_forbidden() {  // those at -inf
    std::size_t n = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      ids[n] = ids[i];
      logits[n] = logits[i];
      n += logits[i] > -kInfinity;
    }
    ids.resize(n);
    logits.resize(n);
  }
  float max() const { return *std::max_element(logits.begin(), logits.end()); }

  std::vector<Token> ids;
  std::vector<float> logits;
};

Survivors every_token(std::span<const float> logits) {
  Survivors all{std::vector<Token>(logits.size()), {logits.begin(), logits.end()}};
  std::iota(all.ids.begin(), all.ids.end(), 0);
  all.drop_forbidden();
  return all;
}

Survivors top_k(std::span<const float> logits, const Blocks& blocks, std::size_t k) {
  std::vector<std::uint32_t> places = best_places(blocks, k);
  std::sort(places.begin(), places.end());
  Survivors few;
  for (const std::uint32_t place : places) {
    few.ids.push_back(static_cast<Token>(place));
    few.logits.push_back(logits[place]);
  }
  return few;
}

// Softmax over the survivors; a filtered token would have added +0 to its lane.
struct Softmax {
  Softmax(const ChoiceKernels& kernels, const Survivors& from, float max) : p(from.ids.size()) {
    kernels.exp_differences(from.logits, max, p);
    Lanes lanes{};
    for (std::size_t i = 0; i < p.size(); ++i)
      lanes[static_cast<std::size_t>(from.ids[i]) % kLanes] += p[i];
    sum = sum_of_lanes(lanes);
    kernels.divide(sum, p);
  }
  std::vector<float> p;
  float sum;  // of exp(logit - max)
};

// How many of `places` have probabilities that add up to `enough`, if all together do.
std::optional<std::size_t> reach(std::span<const std::uint32_t> places, std::span<const float> p,
                                 float enough) {
  float sum = 0;
  for (std::size_t i = 0; i < places.size(); ++i) {
    sum += p[places[i]];
    if (sum >= enough) return i + 1;
  }
  return {};
}

// Keeps the fewest by (rank descending, id ascending) whose p add up to `enough`. Looks at a few
// first: the largest come with all their equals, so they are the beginning of the whole ranking.
void keep_reaching(const ChoiceKernels& kernels, std::span<const float> rank,
                   std::span<const float> p, float enough, Survivors& survivors) {
  const Blocks blocks(kernels, rank);
  std::vector<std::uint32_t> places;
  std::optional<std::size_t> kept;
  for (std::size_t n = kChoiceBlock; n < rank.size() && !kept; n *= 16) {
    places = ranked(largest_places(blocks, n), rank, rank.size());
    kept = reach(places, p, enough);
  }
  if (!kept) {
    places.resize(rank.size());
    std::iota(places.begin(), places.end(), 0u);
    places = ranked(std::move(places), rank, rank.size());
    kept = reach(places, p, enough);
  }
  places.resize(kept.value_or(places.size()));
  std::sort(places.begin(), places.end());
  survivors.keep(places);
}

void filter_typical(const ChoiceKernels& kernels, float enough, Survivors& survivors) {
  const float max = survivors.max();
  const Softmax softmax(kernels, survivors, max);
  const float log_sum = log_f32(softmax.sum);
  std::vector<float> log_p(softmax.p.size());
  Lanes lanes{};
  for (std::size_t i = 0; i < log_p.size(); ++i) {
    log_p[i] = survivors.logits[i] - max - log_sum;
    float& lane = lanes[static_cast<std::size_t>(survivors.ids[i]) % kLanes];
    if (softmax.p[i] > 0) lane = std::fma(softmax.p[i], log_p[i], lane);
  }
  const float entropy = -sum_of_lanes(lanes);
  std::vector<float>& rank = log_p;
  for (float& value : rank) value = -std::fabs(-value - entropy);
  keep_reaching(kernels, rank, softmax.p, enough, survivors);
}

void filter_min_p(const ChoiceKernels& kernels, float min_p, Survivors& survivors) {
  const float max = survivors.max();
  std::vector<float> ratios(survivors.ids.size());
  kernels.exp_differences(survivors.logits, max, ratios);
  std::vector<std::uint32_t> places;
  for (std::size_t i = 0; i < ratios.size(); ++i)
    if (!(survivors.logits[i] < max && ratios[i] < min_p))
      places.push_back(static_cast<std::uint32_t>(i));
  survivors.keep(places);
}

Survivors filter(const ChoiceKernels& kernels, const Filters& f, std::span<const float> logits,
                 const Blocks& blocks) {
  Survivors survivors =
      f.top_k > 0 ? top_k(logits, blocks, static_cast<std::size_t>(f.top_k)) : every_token(logits);
  if (f.typical_p < 1) filter_typical(kernels, f.typical_p, survivors);
  if (f.top_p < 1) {
    const Softmax softmax(kernels, survivors, survivors.max());
    keep_reaching(kernels, softmax.p, softmax.p, f.top_p, survivors);
  }
  if (f.min_p > 0) filter_min_p(kernels, f.min_p, survivors);
  return survivors;
}

struct Scored {
  float score;
  std::uint32_t place;  // among the survivors
};

// Best first; a heap with it keeps the worst on top.
bool better(const Scored& a, const Scored& b) {
  return a.score != b.score ? a.score > b.score : a.place < b.place;
}

// The n best of logit + noise, given the logits of `ids` in blocks. Rounding keeps order, so a
// token whose logit plus the largest noise there is stays below a bar that n tokens reach needs no
// noise at all: with the smallest noise, the n largest logits set that bar; later the n best scores
// so far do.
std::vector<Scored> race(const ChoiceKernels& kernels, std::span<const Token> ids,
                         const Blocks& blocks, const NoiseKey& key, std::size_t n) {
  const std::span<const float> logits = blocks.x;
  n = std::min(n, logits.size());
  float bar = (n == 1 ? blocks.max : logits[best_places(blocks, n)[n - 1]]) + kNoiseLowest;
  // Noise for a whole block of ids at once is worth it where many of them are left.
  const bool dense = logits.size() > 512;
  std::array<float, kChoiceBlock> noise;
  Token noise_of = -1;  // the block that `noise` is for

  std::vector<Scored> heap;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    if (i % kChoiceBlock == 0 && blocks.maxima[i / kChoiceBlock] + kNoiseHighest < bar) {
      i += kChoiceBlock - 1;
      continue;
    }
    if (logits[i] + kNoiseHighest < bar) continue;
    float score = logits[i];
    if (dense) {
      const Token block = ids[i] / static_cast<Token>(kChoiceBlock);
      if (block != noise_of) kernels.noise(key, block * static_cast<Token>(kChoiceBlock), noise);
      noise_of = block;
      score += noise[noise_place(ids[i])];
    } else {
      score += gumbel(key, NoiseUse::choice, ids[i]);
    }
    if (score < bar) continue;
    const Scored scored{score, static_cast<std::uint32_t>(i)};
    if (heap.size() == n) {
      if (!better(scored, heap.front())) continue;
      std::pop_heap(heap.begin(), heap.end(), better);
      heap.pop_back();
    }
    heap.push_back(scored);
    std::push_heap(heap.begin(), heap.end(), better);
    if (heap.size() == n) bar = std::max(bar, heap.front().score);
  }
  std::sort_heap(heap.begin(), heap.end(), better);
  return heap;
}

std::size_t wanted(const ChoiceRequest& request) {
  return request.n_best > 0 ? static_cast<std::size_t>(request.n_best) : 1;
}

void choose_greedily(const ChoiceKernels& kernels, const ChoiceRequest& request,
                     std::span<const float> logits, const Blocks& blocks, Choice& choice) {
  choice.token = static_cast<Token>(blocks.first_of_max());
  if (request.n_best <= 0 && !request.wants_probabilities) return;
  std::vector<float> p(logits.size());
  const float sum = kernels.exp_differences(logits, blocks.max, p);
  if (request.n_best > 0) {
    for (const std::uint32_t place : best_places(blocks, wanted(request)))
      choice.best.push_back({static_cast<Token>(place), logits[place] + 0.0f, p[place] / sum});
  }
  if (!request.wants_probabilities) return;
  kernels.divide(sum, p);
  choice.probabilities = std::move(p);
}

void choose_sampled(const ChoiceKernels& kernels, const ChoiceRequest& request,
                    std::span<const float> logits, const Blocks& unfiltered, Choice& choice) {
  Survivors survivors = filter(kernels, request.filters, logits, unfiltered);
  kernels.divide(request.filters.temperature, survivors.logits);
  survivors.drop_forbidden();  // those that overflowed
  const Blocks blocks(kernels, survivors.logits);
  if (!std::isfinite(blocks.max)) return;
  const std::vector<Scored> ranking =
      race(kernels, survivors.ids, blocks, request.noise, wanted(request));
  choice.token = survivors.ids[ranking.front().place];
  if (request.n_best <= 0 && !request.wants_probabilities) return;
  const Softmax softmax(kernels, survivors, blocks.max);
  if (request.n_best > 0) {
    for (const Scored& scored : ranking)
      choice.best.push_back({survivors.ids[scored.place], scored.score, softmax.p[scored.place]});
  }
  if (!request.wants_probabilities) return;
  choice.probabilities.resize(logits.size());
  for (std::size_t i = 0; i < survivors.ids.size(); ++i)
    choice.probabilities[static_cast<std::size_t>(survivors.ids[i])] = softmax.p[i];
}

}  // namespace

Choice choose(std::span<const float> given, const ChoiceRequest& request, Isa isa) {
  if (isa == Isa::reference) return choose_reference(given, request);
  const ChoiceKernels& kernels = isa == Isa::avx2 ? kChoiceAvx2 : kChoiceAvx512;

  Choice choice;
  if (request.wants_logits) choice.logits.assign(given.begin(), given.end());
  std::span<const float> logits = given;
  Blocks blocks(kernels, logits);
  if (!std::isfinite(blocks.max)) return choice;
  std::vector<float> processed;
  if (!request.bias.empty() || !request.counts.empty() || !request.allowed.empty()) {
    processed = processed_logits(given, request);
    logits = processed;
    blocks = Blocks(kernels, logits);
    if (!std::isfinite(blocks.max)) return choice;
  }
  if (request.filters.temperature > 0) {
    choose_sampled(kernels, request, logits, blocks, choice);
  } else {
    choose_greedily(kernels, request, logits, blocks, choice);
  }
  return choice;
}

}  // namespace outrider
