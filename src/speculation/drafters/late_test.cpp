#include "speculation/drafters/late.h"

#include <gtest/gtest.h>

#include <new>
#include <thread>

#include "speculation/drafters/drafter_test.h"
#include "speculation/drafters/lookup.h"

namespace outrider {
namespace {

std::vector<Token> propose(Drafter& drafter, int sequence) {
  DraftTree tree(1);
  const DraftRequest request{{sequence}, &tree, 0, {.width = 1}, &kGreedy, &kState};
  drafter.propose({&request, 1});
  return tree.path(tree.size() - 1);
}

// Made as soon as that is allowed.
struct Late {
  Late()
      : drafter("lookup", [this](const std::atomic<bool>&) {
          is_allowed.wait(false);
          return [this]() -> std::unique_ptr<Drafter> {
            if (!can_be_had) {
              if (fails) throw std::bad_alloc();
              return nullptr;
            }
            auto made = std::make_unique<LookupDrafter>(LookupOptions{});
            is_made = true;
            return made;
          };
        }) {}
  ~Late() { allow(); }
  void allow() {
    is_allowed = true;
    is_allowed.notify_all();
  }

  std::atomic<bool> is_allowed = false;
  bool can_be_had = true, fails = false, is_made = false;
  LateDrafter drafter;
};

TEST(LateDrafter, ProposesWhatItWouldHaveHadItBeenThereFromTheStart) {
  Late late;
  LookupDrafter fresh({});
  const auto both = [&](const auto& tell) {
    tell(late.drafter);
    tell(fresh);
  };
  both([](Drafter& drafter) {
    for (const int text : {1, 2, 3}) drafter.begin({text});
    drafter.observe({1}, std::vector<Token>{1, 2, 3, 4, 1});
    drafter.expect({1}, {});
    drafter.observe({1}, std::vector<Token>{2, 9});
    drafter.truncate({1}, 6);
    drafter.observe({2}, std::vector<Token>{5, 6, 7, 8});
    drafter.truncate({2}, 2);
    drafter.observe({2}, std::vector<Token>{5});
    drafter.end({3});
  });
  EXPECT_TRUE(propose(late.drafter, 1).empty());
  EXPECT_EQ(late.drafter.n_to_prefill({1}, 100), 0);
  late.allow();
  late.drafter.wait();
  EXPECT_TRUE(propose(late.drafter, 1).empty());  // it is taken
  EXPECT_TRUE(late.is_made);
  for (const int text : {1, 2}) {
    const std::vector<Token> proposed = propose(late.drafter, text);
    EXPECT_FALSE(proposed.empty());
    EXPECT_EQ(proposed, propose(fresh, text));
  }
  both([](Drafter& drafter) {
    drafter.observe({1}, std::vector<Token>{3});
    drafter.end({2});
    drafter.begin({4});
  });
  EXPECT_EQ(propose(late.drafter, 1), propose(fresh, 1));
}

TEST(LateDrafter, GoesOnWithoutWhatCannotBeHad) {
  for (const bool fails : {false, true}) {
    Late late;
    late.can_be_had = false;
    late.fails = fails;
    late.drafter.begin({1});
    late.drafter.observe({1}, std::vector<Token>{1, 2, 1});
    late.allow();
    late.drafter.wait();
    for (int i = 0; i < 3; ++i) EXPECT_TRUE(propose(late.drafter, 1).empty());
    late.drafter.truncate({1}, 1);
    late.drafter.end({1});
  }
}

TEST(LateDrafter, EndingStopsTheMaking) {
  std::atomic<bool> was_stopped = false;
  {
    const LateDrafter drafter("model", [&](const std::atomic<bool>& is_stopped) {
      while (!is_stopped) std::this_thread::yield();
      was_stopped = true;
      return [] { return std::unique_ptr<Drafter>(); };
    });
  }
  EXPECT_TRUE(was_stopped);
}

}  // namespace
}  // namespace outrider
