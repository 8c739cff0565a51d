#include "cpu/choice_memory.h"

#include <numeric>
#include <utility>

#include "cpu/bump_allocator.h"

namespace outrider {
namespace {

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

}  // namespace

void ChoiceMemory::reserve(std::size_t n_tokens, std::size_t n_best) {
  best.reserve(n_best);
  if (n_tokens <= n_tokens_) return;
  BumpAllocator counter;
  take_arrays(n_tokens, counter);
  buffer_ = HugeBuffer(counter.used_bytes());
  BumpAllocator memory(buffer_.as<std::byte>());
  arrays = take_arrays(n_tokens, memory);
  std::iota(arrays.every_slice.begin(), arrays.every_slice.end(), 0u);
  n_tokens_ = n_tokens;
}

}  // namespace outrider
