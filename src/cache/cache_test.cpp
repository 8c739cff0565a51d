#include "cache/cache.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace outrider {
namespace {

constexpr CacheLimits kLimits{.context = 300, .n_sequences = 4, .n_slots = 100, .n_layers = 3};

LayerSet layers(unsigned bits) {
  return LayerSet(bits);
}

std::vector<SlotId> add_chain(Cache& cache, SequenceId sequence, int count) {
  std::vector<SlotId> chain;
  for (int i = 0; i < count; ++i) {
    chain.push_back(cache.add_slot(
        sequence, chain.empty() ? std::nullopt : std::optional(chain.back()), layers(7)));
  }
  return chain;
}

TEST(Cache, ChainBecomesHistoryInFewCopies) {
  Cache cache(kLimits);
  const SequenceId sequence = cache.begin();
  cache.commit(sequence, add_chain(cache, sequence, 60));
  const auto copies = cache.commit(sequence, add_chain(cache, sequence, 70));
  EXPECT_EQ(cache.committed(sequence), 130);
  // Slots 0..3 fill the first page, 4..63 and 64..67 the second, 68 and 69 the third.
  ASSERT_EQ(copies.size(), 4u);
  EXPECT_EQ(copies[0].count, 4);
  EXPECT_EQ(copies[0].to_offset, 60);
  EXPECT_EQ(copies[1].count, 60);
  EXPECT_EQ(copies[2].count, 4);
  EXPECT_EQ(copies[3].count, 2);
  cache.check_integrity();
}

TEST(Cache, PathFollowsParents) {
  Cache cache(kLimits);
  const SequenceId sequence = cache.begin();
  const auto chain = add_chain(cache, sequence, 3);
  const SlotId branch = cache.add_slot(sequence, chain[0], layers(7));
  const SlotId leaf = cache.add_slot(sequence, branch, layers(7));
  const auto path = cache.path(sequence, leaf);
  ASSERT_EQ(path.size(), 2u);  // slot 0; slots 3 and 4, which are neighbours
  EXPECT_EQ(path[0].offset, 0);
  EXPECT_EQ(path[1].offset, 3);
  EXPECT_EQ(path[1].position, 1);
  EXPECT_EQ(path[1].count, 2);
  EXPECT_EQ(cache.position(sequence, leaf), 2);
}

TEST(Cache, ForkCopiesASharedPageBeforeWriting) {
  Cache cache(kLimits);
  const SequenceId first = cache.begin();
  cache.commit(first, add_chain(cache, first, 10));
  const SequenceId second = cache.fork(first);
  EXPECT_EQ(cache.pages(first)[0], cache.pages(second)[0]);
  const auto copies = cache.commit(second, add_chain(cache, second, 1));
  EXPECT_NE(cache.pages(first)[0], cache.pages(second)[0]);
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0].count, 10);  // what was shared
  EXPECT_EQ(copies[1].to_offset, 10);
  EXPECT_EQ(cache.commit(first, add_chain(cache, first, 1)).size(), 1u);  // its own again
  cache.check_integrity();
}

using CacheDeathTest = ::testing::Test;

TEST(CacheDeathTest, MisuseIsRefused) {
  Cache cache(kLimits);
  const SequenceId sequence = cache.begin();
  const SlotId partial = cache.add_slot(sequence, std::nullopt, layers(1));
  const SlotId full = cache.add_slot(sequence, std::nullopt, layers(7));
  const SlotId child = cache.add_slot(sequence, full, layers(7));
  EXPECT_DEATH(cache.add_slot(sequence, partial, layers(3)), "layers");
  EXPECT_DEATH(cache.commit(sequence, std::vector{partial}), "layers");
  EXPECT_DEATH(cache.commit(sequence, std::vector{child}), "parent");
  EXPECT_DEATH(cache.commit(sequence, std::vector{full, full}), "parent");
  EXPECT_DEATH(cache.truncate(sequence, 1), "length");
  EXPECT_DEATH(cache.end(SequenceId{2}), "alive");
}

// A model of the contents: after the copies, the places of a sequence's pages must always hold its
// own text.
TEST(Cache, RandomOperationsKeepEveryText) {
  std::size_t longest = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % n); };
    Cache cache(kLimits);
    std::map<std::pair<int, int>, int> memory;  // (page, offset) to token
    struct Text {
      std::vector<int> tokens;
      std::vector<std::pair<SlotId, std::vector<int>>> slots;  // with the tokens of its path
    };
    std::map<SequenceId, Text> texts;
    for (int operation = 0; operation < 1500; ++operation) {
      if (texts.empty() || (texts.size() < 4 && below(12) == 0)) {
        texts[cache.begin()];
        cache.check_integrity();
        continue;
      }
      auto at = texts.begin();
      std::advance(at, below(static_cast<int>(texts.size())));
      const SequenceId sequence = at->first;
      Text& text = at->second;
      switch (below(10)) {
        case 0:
          if (texts.size() < 4) texts[cache.fork(sequence)].tokens = text.tokens;
          break;
        case 1:
          if (below(4) == 0) {
            cache.end(sequence);
            texts.erase(sequence);
          }
          break;
        case 2: {
          const int length = static_cast<int>(text.tokens.size()) -
                             below(1 + static_cast<int>(text.tokens.size()) / 4);
          cache.truncate(sequence, length);
          text.tokens.resize(length);
          text.slots.clear();
          break;
        }
        case 3:
          cache.discard(sequence);
          text.slots.clear();
          break;
        case 4:
        case 5: {
          std::vector<SlotId> path;
          std::vector<int> tokens;
          if (!text.slots.empty()) {
            tokens = text.slots[below(static_cast<int>(text.slots.size()))].second;
            if (below(2) == 0) tokens = text.slots.back().second;
            // The chain of slots: those whose paths are prefixes of this one's, one per length.
            for (const auto& [other, other_tokens] : text.slots) {
              if (other_tokens.size() <= tokens.size() &&
                  std::equal(other_tokens.begin(), other_tokens.end(), tokens.begin())) {
                path.push_back(other);
              }
            }
          }
          for (const CacheCopy& copy : cache.commit(sequence, path)) {
            for (int i = 0; i < copy.count; ++i) {
              memory[{copy.to_page, copy.to_offset + i}] =
                  memory[{copy.from_page, copy.from_offset + i}];
            }
          }
          text.tokens.insert(text.tokens.end(), tokens.begin(), tokens.end());
          text.slots.clear();
          break;
        }
        default: {
          // Chains make texts long, trees leave gaps in scratch.
          const bool is_chain = below(2) == 0;
          for (int i = below(40); i > 0 && cache.free_slots(sequence) > 0; --i) {
            const int n_slots = static_cast<int>(text.slots.size());
            const int parent = is_chain ? n_slots - 1 : below(n_slots + 1) - 1;
            std::vector<int> tokens = parent < 0 ? std::vector<int>() : text.slots[parent].second;
            if (text.tokens.size() + tokens.size() >= 300) break;
            tokens.push_back(operation * 100 + i);  // never repeats
            const SlotId slot = cache.add_slot(
                sequence, parent < 0 ? std::nullopt : std::optional(text.slots[parent].first),
                layers(7));
            const CacheRun place = cache.place(sequence, slot);
            memory[{place.page, place.offset}] = tokens.back();
            text.slots.push_back({slot, tokens});
            cache.check_integrity();
          }
        }
      }
      cache.check_integrity();
      for (const auto& [id, expected] : texts) {
        longest = std::max(longest, expected.tokens.size());
        ASSERT_EQ(cache.committed(id), static_cast<int>(expected.tokens.size()));
        for (std::size_t p = 0; p < expected.tokens.size(); ++p) {
          ASSERT_EQ((memory[{cache.pages(id)[p / 64], static_cast<int>(p % 64)}]),
                    expected.tokens[p]);
        }
        if (expected.slots.empty()) continue;
        std::vector<int> found;
        for (const CacheRun& run : cache.path(id, expected.slots.back().first)) {
          for (int i = 0; i < run.count; ++i) found.push_back(memory[{run.page, run.offset + i}]);
        }
        ASSERT_EQ(found, expected.slots.back().second);
      }
    }
  }
  EXPECT_GT(longest, 4u * kPagePositions);  // so pages were taken, shared and given back
}

}  // namespace
}  // namespace outrider
