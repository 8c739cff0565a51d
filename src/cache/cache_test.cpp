#include "cache/cache.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <stdexcept>

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
        sequence, 0, chain.empty() ? std::nullopt : std::optional(chain.back()), layers(7)));
  }
  return chain;
}

TEST(Cache, ChainBecomesHistoryInFewCopies) {
  Cache cache(kLimits);
  const SequenceId sequence = cache.begin();
  cache.commit(sequence, add_chain(cache, sequence, 60));
  const auto copies = cache.commit(sequence, add_chain(cache, sequence, 70));
  EXPECT_EQ(cache.committed(sequence), 130);
  // Slots 0..3 are in the first page already, 4..67 become the second, 68 and 69 the third.
  ASSERT_EQ(copies.size(), 2u);
  EXPECT_EQ(copies[0].count, 64);
  EXPECT_EQ(copies[1].count, 2);
  cache.check_integrity();
}

TEST(Cache, RowsBehindHistoryStayWhereTheyAre) {
  Cache cache(kLimits);
  const SequenceId sequence = cache.begin();
  cache.commit(sequence, add_chain(cache, sequence, 60));
  const int page = cache.pages(sequence)[0], n_free = cache.free_pages();
  const auto chain = add_chain(cache, sequence, 3);
  EXPECT_EQ(cache.free_pages(), n_free);
  for (int i = 0; i < 3; ++i) {
    const CacheRun place = cache.place(sequence, chain[i]);
    EXPECT_EQ(place.page, page);
    EXPECT_EQ(place.offset, 60 + i);
  }
  EXPECT_EQ(cache.path(sequence, chain[2]).size(), 1u);
  // What branches off lies elsewhere, also what follows the chain later.
  const SlotId branch = cache.add_slot(sequence, 0, chain[0], layers(7));
  EXPECT_NE(cache.place(sequence, branch).page, page);
  const SlotId later = cache.add_slot(sequence, 0, chain[2], layers(7));
  EXPECT_NE(cache.place(sequence, later).page, page);
  cache.check_integrity();
  const auto copies = cache.commit(sequence, std::vector{chain[0], branch});
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_EQ(copies[0].to_page, page);
  EXPECT_EQ(copies[0].to_offset, 61);
  EXPECT_TRUE(cache.commit(sequence, add_chain(cache, sequence, 2)).empty());
  EXPECT_EQ(cache.committed(sequence), 64);
  EXPECT_EQ(cache.commit(sequence, add_chain(cache, sequence, 1)).size(), 1u);  // a new page
  // Its own page may become another's, too, while rows lie there.
  const auto waiting = add_chain(cache, sequence, 2);
  const SequenceId fork = cache.fork(sequence);
  const auto moved = cache.commit(sequence, waiting);
  ASSERT_EQ(moved.size(), 1u);
  EXPECT_EQ(moved[0].count, 3);
  EXPECT_EQ(moved[0].from_page, cache.pages(fork)[1]);
  EXPECT_NE(cache.pages(sequence)[1], cache.pages(fork)[1]);
  cache.check_integrity();
}

TEST(Cache, PathFollowsParents) {
  Cache cache(kLimits);
  const SequenceId sequence = cache.begin();
  const auto chain = add_chain(cache, sequence, 3);
  const SlotId branch = cache.add_slot(sequence, 0, chain[0], layers(7));
  const SlotId leaf = cache.add_slot(sequence, 0, branch, layers(7));
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
  EXPECT_TRUE(cache.commit(first, add_chain(cache, first, 1)).empty());  // its own again
  cache.check_integrity();
}

using CacheDeathTest = ::testing::Test;

TEST(CacheDeathTest, MisuseIsRefused) {
  Cache cache(kLimits);
  const SequenceId sequence = cache.begin();
  const SlotId partial = cache.add_slot(sequence, 0, std::nullopt, layers(1));
  const SlotId full = cache.add_slot(sequence, 0, std::nullopt, layers(7));
  const SlotId child = cache.add_slot(sequence, 0, full, layers(7));
  EXPECT_DEATH(cache.add_slot(sequence, 0, partial, layers(3)), "layers");
  EXPECT_DEATH(cache.commit(sequence, std::vector{partial}), "layers");
  EXPECT_DEATH(cache.commit(sequence, std::vector{child}), "parent");
  EXPECT_DEATH(cache.commit(sequence, std::vector{full, full}), "parent");
  EXPECT_DEATH(cache.truncate(sequence, 1), "length");
  EXPECT_DEATH(cache.end(SequenceId{2}), "alive");
}

TEST(Cache, ATextAdoptsWhatAnotherLeft) {
  CacheLimits limits = kLimits;
  limits.shares_texts = true;
  Cache cache(limits);
  std::vector<Token> text(200);
  std::iota(text.begin(), text.end(), 0);
  const auto write = [&](SequenceId sequence, std::span<const Token> tokens) {
    std::vector<SlotId> chain;
    for (const Token token : tokens)
      chain.push_back(cache.add_slot(
          sequence, token, chain.empty() ? std::nullopt : std::optional(chain.back()), layers(7)));
    cache.commit(sequence, chain);
    cache.check_integrity();
  };
  const int n_free = cache.free_pages();
  const SequenceId first = cache.begin();
  EXPECT_EQ(cache.reuse_prefix(first, text), 0);
  write(first, std::span(text).first(100));
  write(first, std::span(text).subspan(100, 50));
  const std::vector<int> pages(cache.pages(first).begin(), cache.pages(first).end());
  const CacheScope other_scope{{1, 2}};
  const SequenceId second = cache.begin(), stranger = cache.begin(other_scope);
  EXPECT_EQ(cache.reuse_prefix(second, text), 128);  // the third page is not full
  EXPECT_EQ(cache.reuse_prefix(stranger, text), 0);
  EXPECT_EQ(cache.pages(second)[1], pages[1]);
  // Two texts that become the same share pages: the one that was there stays.
  write(stranger, std::span(text).first(64));
  EXPECT_NE(cache.pages(stranger)[0], pages[0]);
  write(first, std::span(text).subspan(150, 42));
  write(second, std::span(text).subspan(128, 64));
  EXPECT_EQ(cache.pages(second)[2], cache.pages(first)[2]);
  // What nobody uses is cached until its page is taken; a text that differs takes what it can.
  cache.end(first);
  cache.end(second);
  cache.end(stranger);
  EXPECT_EQ(cache.free_pages(), n_free);
  EXPECT_EQ(cache.unused_cached_pages(), 4);
  text[130] = 7777;
  const SequenceId third = cache.begin();
  EXPECT_EQ(cache.reuse_prefix(third, text), 128);
  // A cached page is copied before it is written.
  cache.truncate(third, 100);
  EXPECT_EQ(cache.pages_wanted(third, 1, 1), 2);  // scratch and the copy
  write(third, std::vector<Token>{9});
  EXPECT_NE(cache.pages(third)[1], pages[1]);
  // A part of a page gives way to the whole.
  cache.truncate(third, 100);
  EXPECT_EQ(cache.reuse_prefix(third, text), 128);
  EXPECT_EQ(cache.pages(third)[1], pages[1]);
}

// As of texts that use a head and of those that do not.
TEST(Cache, PagesOfOtherLayersAreNotAdopted) {
  CacheLimits limits = kLimits;
  limits.shares_texts = true;
  Cache cache(limits);
  const std::vector<Token> text(64, 5);
  const auto begin = [&](unsigned written) {
    const SequenceId sequence = cache.begin();
    cache.set_layers(sequence, layers(written));
    return sequence;
  };
  const auto write = [&](SequenceId sequence, unsigned written) {
    std::vector<SlotId> chain;
    for (const Token token : text) {
      chain.push_back(cache.add_slot(
          sequence, token, chain.empty() ? std::nullopt : std::optional(chain.back()), layers(3)));
      if (written != 3) cache.add_layers(sequence, chain.back(), layers(written));
    }
    cache.commit(sequence, chain);
    cache.check_integrity();
  };
  const SequenceId few = begin(3), all = begin(7);
  write(few, 3);
  EXPECT_EQ(cache.reuse_prefix(all, text), 0);
  write(all, 7);
  EXPECT_NE(cache.pages(few)[0], cache.pages(all)[0]);
  cache.end(few);
  const SequenceId another = begin(7);
  EXPECT_EQ(cache.reuse_prefix(another, text), 64);
  EXPECT_EQ(cache.pages(another)[0], cache.pages(all)[0]);
}

TEST(Cache, PagesThatWereUsedLongestAgoAreTakenFirst) {
  CacheLimits limits = kLimits;
  limits.shares_texts = true;
  limits.n_pages = 6;
  Cache cache(limits);
  const auto leave = [&](Token token, int n_pages) {  // a text of so many pages, which ends
    const std::vector<Token> text(n_pages * 64 + 1, token);
    const SequenceId sequence = cache.begin();
    for (int done = cache.reuse_prefix(sequence, text); done < n_pages * 64; done += 64) {
      std::vector<SlotId> chain;
      for (int i = 0; i < 64; ++i)
        chain.push_back(cache.add_slot(sequence, token,
                                       chain.empty() ? std::nullopt : std::optional(chain.back()),
                                       layers(7)));
      cache.commit(sequence, chain);
      cache.check_integrity();
    }
    cache.end(sequence);
    cache.check_integrity();
  };
  const auto n_known = [&](Token token) {
    const SequenceId sequence = cache.begin();
    const int n = cache.reuse_prefix(sequence, std::vector<Token>(4 * 64, token)) / 64;
    cache.end(sequence);
    return n;
  };
  leave(1, 2);
  leave(2, 2);
  EXPECT_EQ(n_known(1), 2);  // and so used later than the other
  leave(3, 3);               // one page of scratch and three: the ends of texts go first
  EXPECT_EQ(n_known(3), 3);
  EXPECT_EQ(n_known(1), 2);
  EXPECT_EQ(n_known(2), 0);
}

void must(bool holds) {
  if (!holds) throw std::logic_error("the cache lost a text");
}

struct Seen {
  std::size_t longest = 0;
  long n_adopted = 0, n_refused = 0;
};

// A model of the contents: after the copies, the places of a sequence's pages must always hold what
// was computed of its own text, which tokens before decide, too. below(n): any of 0 to n - 1.
Seen keep_every_text(const CacheLimits& limits, int n_operations,
                     const std::function<int(int n)>& below) {
  Seen seen;
  Cache cache(limits);
  std::map<std::pair<int, int>, std::vector<Token>> memory;  // (page, offset) to the text there
  struct Slot {
    SlotId id;
    int parent;                 // -1: none
    std::vector<Token> tokens;  // of its path
  };
  struct Text {
    std::vector<Token> tokens;
    CacheScope scope;
    std::vector<Slot> slots;
  };
  std::map<SequenceId, Text> texts;
  const auto whole = [](const Text& text, const std::vector<Token>& path) {
    std::vector<Token> tokens = text.tokens;
    tokens.insert(tokens.end(), path.begin(), path.end());
    return tokens;
  };
  // Texts often begin alike, and differ at few places.
  const auto next_token = [&](std::size_t position) {
    return position % 50 == 0 ? below(3) : static_cast<Token>(position);
  };
  for (int operation = 0; operation < n_operations; ++operation) {
    if (texts.empty() || (texts.size() < 4 && below(12) == 0)) {
      const CacheScope scope{{0, below(4) == 0}};
      texts[cache.begin(scope)].scope = scope;
      cache.check_integrity();
      continue;
    }
    auto at = texts.begin();
    std::advance(at, below(static_cast<int>(texts.size())));
    const SequenceId sequence = at->first;
    Text& text = at->second;
    switch (below(11)) {
      case 0:
        if (texts.size() < 4) {
          Text& forked = texts[cache.fork(sequence)];
          forked.tokens = text.tokens;
          forked.scope = text.scope;
        }
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
        std::vector<Token> tokens;
        if (!text.slots.empty()) {
          const int n_slots = static_cast<int>(text.slots.size());
          int leaf = below(2) == 0 ? n_slots - 1 : below(n_slots);
          tokens = text.slots[leaf].tokens;
          for (; leaf >= 0; leaf = text.slots[leaf].parent) path.push_back(text.slots[leaf].id);
          std::ranges::reverse(path);
        }
        const int n = static_cast<int>(path.size());
        if (cache.pages_wanted(sequence, 0, n) > cache.free_pages()) {
          ++seen.n_refused;
          break;
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
      case 6: {
        std::vector<Token> wanted = text.tokens;
        while (wanted.size() < 300) wanted.push_back(next_token(wanted.size()));
        const int length = cache.reuse_prefix(sequence, wanted);
        seen.n_adopted += length - static_cast<long>(text.tokens.size());
        text.tokens.assign(wanted.begin(), wanted.begin() + length);
        text.slots.clear();
        break;
      }
      default: {
        // Chains make texts long, trees leave gaps in scratch.
        const bool is_chain = below(2) == 0;
        for (int i = below(40); i > 0 && cache.free_slots(sequence) > 0; --i) {
          if (cache.pages_wanted(sequence, 1, 0) > cache.free_pages()) {
            ++seen.n_refused;
            break;
          }
          const int n_slots = static_cast<int>(text.slots.size());
          const int parent = is_chain ? n_slots - 1 : below(n_slots + 1) - 1;
          std::vector<Token> tokens = parent < 0 ? std::vector<Token>() : text.slots[parent].tokens;
          if (text.tokens.size() + tokens.size() >= 300) break;
          tokens.push_back(next_token(text.tokens.size() + tokens.size()));
          const SlotId slot = cache.add_slot(
              sequence, tokens.back(),
              parent < 0 ? std::nullopt : std::optional(text.slots[parent].id), layers(7));
          const CacheRun place = cache.place(sequence, slot);
          memory[{place.page, place.offset}] = whole(text, tokens);
          text.slots.push_back({slot, parent, tokens});
          cache.check_integrity();
        }
      }
    }
    cache.check_integrity();
    for (const auto& [id, expected] : texts) {
      seen.longest = std::max(seen.longest, expected.tokens.size());
      must(cache.committed(id) == static_cast<int>(expected.tokens.size()));
      for (std::size_t p = 0; p < expected.tokens.size(); ++p) {
        const auto& found = memory[{cache.pages(id)[p / 64], static_cast<int>(p % 64)}];
        must(std::ranges::equal(found, std::span(expected.tokens).first(p + 1)));
      }
      if (expected.slots.empty()) continue;
      std::vector<Token> found;
      for (const CacheRun& run : cache.path(id, expected.slots.back().id)) {
        for (int i = 0; i < run.count; ++i)
          found.push_back(memory[{run.page, run.offset + i}].back());
      }
      must(found == expected.slots.back().tokens);
    }
  }
  return seen;
}

CacheLimits limits_of(bool shares_texts, std::uint64_t hash_mask = ~std::uint64_t{0}) {
  CacheLimits limits = kLimits;
  limits.shares_texts = shares_texts;
  limits.hash_mask = hash_mask;
  if (shares_texts) limits.n_pages = 12;
  return limits;
}

// Twenty long histories, enough for what rarely happens.
void keep_every_text(const CacheLimits& limits) {
  Seen all;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const Seen seen = keep_every_text(
        limits, 1500, [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); });
    all.longest = std::max(all.longest, seen.longest);
    all.n_adopted += seen.n_adopted;
    all.n_refused += seen.n_refused;
  }
  EXPECT_GT(all.longest, 4u * kPagePositions);  // so pages were taken, shared and given back
  EXPECT_EQ(all.n_adopted > 1000, limits.shares_texts);
  EXPECT_EQ(all.n_refused > 0, limits.shares_texts);
}

TEST(Cache, RandomOperationsKeepEveryText) {
  keep_every_text(limits_of(false));
}

TEST(Cache, RandomOperationsKeepEveryTextWhereTextsShareAPool) {
  keep_every_text(limits_of(true));
}

// A hash decides nothing: tokens, scope and the page before are compared.
TEST(Cache, RandomOperationsKeepEveryTextWhereAllHashesAreEqual) {
  keep_every_text(limits_of(true, 0));
}

// Short histories, which RapidCheck shrinks to the operations that lose a text.
RC_GTEST_PROP(Cache, ShortHistoriesKeepEveryText, ()) {
  const CacheLimits limits = limits_of(*rc::gen::arbitrary<bool>(), *rc::gen::element(0u, ~0u));
  keep_every_text(limits, *rc::gen::inRange(0, 60), [](int n) { return *rc::gen::inRange(0, n); });
}

}  // namespace
}  // namespace outrider
