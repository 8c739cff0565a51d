// Memory that cannot be had while a backend loads, computes or chooses is an exception for its
// caller, whichever allocation it is; and the backend goes on as if nothing had been asked.

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <optional>

#include "base/error.h"
#include "base/sanitizers.h"
#include "base/threads.h"
#include "cpu/backend.h"
#include "model/block_rows.h"
#include "support/tiny_head.h"
#include "support/tiny_model.h"

namespace {

// How many allocations, by any thread, succeed before one fails; negative: none does.
std::atomic<int> left{-1};

bool fails() {
  return left.load(std::memory_order_relaxed) >= 0 && left.fetch_sub(1) == 0;
}

[[maybe_unused]] void* allocate(std::size_t bytes, std::size_t alignment) {
  if (fails()) throw std::bad_alloc();
  void* memory = nullptr;
  if (posix_memalign(&memory, alignment, bytes) != 0) throw std::bad_alloc();
  return memory;
}

}  // namespace

#if !OUTRIDER_SANITIZES_MEMORY
void* operator new(std::size_t bytes) {
  return allocate(bytes, alignof(std::max_align_t));
}
void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<std::size_t>(alignment));
}
// Not inlined: g++ would see free() of what operator new returned, and warn
// (-Wmismatched-new-delete).
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

// What base/huge_buffer.h calls.
extern "C" void* mmap(void* address, std::size_t length, int protection, int flags, int file,
                      off_t offset) noexcept {
  if (fails()) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  return reinterpret_cast<void*>(
      syscall(SYS_mmap, address, length, protection, flags, file, offset));
}
#endif  // !OUTRIDER_SANITIZES_MEMORY

namespace outrider {
namespace {

using testing::tiny_model;

// Runs f with its nth allocation, from 0 on, failing. Whether it got through.
template <typename F>
bool gets_through(int nth, const F& f) {
  left = nth;
  bool done = false;
  try {
    f();
    done = true;
  } catch (const std::bad_alloc&) {
  } catch (const Error&) {
  }
  left = -1;
  return done;
}

struct Case {
  Isa isa;
  LoadOptions options;
};

std::vector<Case> cases(const Model& model) {
  std::vector<Case> cases;
  for (const Isa isa : {Isa::reference, available_isas().back()}) {
    for (const CacheType type : {CacheType::f16, CacheType::q8_0}) {
      LoadOptions options = {
          .context = 64, .n_sequences = 3, .batch_rows = 32, .cache_type = type, .n_threads = 3};
      cases.push_back({isa, options});
    }
    LoadOptions draft = {.context = 64,
                         .n_sequences = 3,
                         .batch_rows = 32,
                         .n_threads = 2,
                         .requantize = TensorType::q4_128,
                         .output_room = 8};
    for (Token token = 3; token < 200; token += 2) draft.output_ids.push_back(token);
    cases.push_back({isa, draft});
    LoadOptions headed = cases.front().options;
    headed.head = testing::tiny_head_to_load(model, {.taps = {0, 1}});
    cases.push_back({isa, headed});
    headed.head = testing::tiny_block_to_load(model, {.rank = 8, .remembers = true});
    cases.push_back({isa, headed});
  }
  return cases;
}

// One user of a backend: reads a prompt, forks, computes a tree on each of two sequences, chooses
// and commits.
class Scene {
 public:
  Scene(const Model& model, const Case& c) : backend_(load_cpu(model, c.options, c.isa)) {
    choices_.reserve(8);  // so that a stage that throws adds none
  }

  static constexpr int kStages = 8, kPrompt = 12;

  // Each stage can be called again after it has thrown.
  void run(int stage) {
    switch (stage) {
      case 0: begin(); break;
      case 1: read(); break;
      case 2: choose({0, kPrompt - 1}); break;
      case 3: backend_->commit(first_, pass_.slots); break;
      case 4: second_ = backend_->fork(first_); break;
      case 5: add_outputs(); break;
      case 6: grow(); break;
      case 7: choose({1, 3, 6}); break;
      default: break;
    }
  }

  // After a stage has thrown.
  void check(int stage) const {
    if (stage > 0) {
      EXPECT_EQ(backend_->committed(first_), stage <= 3 ? 0 : kPrompt);
    }
    if (stage == 1 || stage == 6) {
      EXPECT_EQ(backend_->free_slots(first_), backend_->options().n_slots);
    }
  }

  const std::vector<Choice>& choices() const { return choices_; }

 private:
  void begin() {
    first_ = backend_->begin();
    if (backend_->head()) backend_->use_head(first_, true);
  }

  void read() {
    // Nothing but passes shall throw.
    std::vector<Row> rows, guesses;
    rows.reserve(kPrompt);
    const ForwardOptions with_memory = {.layers = {}, .taps = {kMemoryTap}};
    std::optional<BlockInput> block;
    if (backend_->head()) block = backend_->head()->spec().block;
    if (block)
      guesses = block_rows(*block, {.sequence = first_, .anchor = 5, .position = kPrompt},
                           block->n_guesses());
    for (int i = 0; i < kPrompt; ++i) {
      Row row{.sequence = first_, .token = (7 * i + 3) % 250, .position = i, .wants_logits = true};
      if (i > 0) row.parent = EarlierRow{i - 1};
      rows.push_back(row);
    }
    pass_ = backend_->forward(rows);
    if (!backend_->head()) return;
    for (int i = 0; i < kPrompt; ++i) {
      Row& row = rows[static_cast<std::size_t>(i)];
      if (block) row.wants_logits = false;
      if (block || i > 0) row.before = TargetRow{block ? i : i - 1};
      row.slot = pass_.slots[static_cast<std::size_t>(i)];
    }
    backend_->head()->forward(rows);
    if (!block) return;
    // A block after the prompt, and a token that completes its first row that guesses.
    guesses[0].parent = pass_.slots.back();
    backend_->head()->forward(guesses);
    const Row completing{.sequence = first_,
                         .token = 6,
                         .position = kPrompt,
                         .wants_logits = true,
                         .before = BlockRow{block->first_guess()}};
    backend_->head()->forward({&completing, 1}, with_memory);
  }

  // A node of the first sequence. Then its subtree, rows 0 to 3: two children, a child of each. And
  // rows 4 to 6 of the other sequence.
  void grow() {
    std::vector<Row> rows;
    rows.reserve(7);  // nothing but passes shall throw
    PassProfile profile;
    const ForwardOptions options = {.layers = {}, .taps = {1}, .profile = &profile};
    Row node{.sequence = first_, .token = 11, .position = kPrompt};
    const SlotId slot = backend_->forward({&node, 1}).slots[0];
    const std::optional<int> parents[] = {{}, {}, 0, 1, {}, 4, 4};
    for (int i = 0; i < 7; ++i) {
      const bool is_first = i < 4;
      Row row{.sequence = is_first ? first_ : second_, .token = 12 + i, .wants_logits = true};
      if (const std::optional<int> parent = parents[i]) {
        row.parent = EarlierRow{*parent};
        row.position = rows[static_cast<std::size_t>(*parent)].position + 1;
      } else {
        if (is_first) row.parent = slot;
        row.position = is_first ? kPrompt + 1 : kPrompt;
      }
      rows.push_back(row);
    }
    try {
      pass_ = backend_->forward(rows, options);
    } catch (const std::bad_alloc&) {
      EXPECT_EQ(profile.passes, 0);
      throw;
    }
  }

  void choose(std::initializer_list<int> rows) {
    std::vector<ChoiceRequest> requests;
    const TokenBias bias[] = {{5, 1.5f}};
    for (const int row : rows) {
      requests.push_back(
          {.row = row,
           .filters = {.top_k = row % 2 ? 20 : 0, .typical_p = 0.9f},
           .bias = row % 3 == 1 ? std::span<const TokenBias>(bias) : std::span<const TokenBias>(),
           .n_best = row % 3,
           .wants_probabilities = true,
           .wants_logits = true});
    }
    for (Choice& choice : backend_->choose(pass_, requests)) choices_.push_back(std::move(choice));
  }

  void add_outputs() {
    const Token tokens[] = {4, 6, 5, 6, 100, 230};
    backend_->add_outputs(tokens);
  }

  std::unique_ptr<Backend> backend_;
  SequenceId first_{}, second_{};
  Pass pass_;
  std::vector<Choice> choices_;
};

bool same(const Choice& a, const Choice& b) {
  const auto same_best = [](const Candidate& x, const Candidate& y) {
    return x.token == y.token && x.score == y.score && x.probability == y.probability;
  };
  return a.token == b.token && a.logits == b.logits && a.probabilities == b.probabilities &&
         std::equal(a.best.begin(), a.best.end(), b.best.begin(), b.best.end(), same_best);
}

TEST(MemoryFailure, LeavesTheBackendAsItWas) {
  if (OUTRIDER_SANITIZES_MEMORY) GTEST_SKIP() << "the sanitizer allocates memory itself";
  const Model model = tiny_model({.n_layers = 2});
  for (const Case& c : cases(model)) {
    SCOPED_TRACE(::testing::Message() << name(c.isa) << ", cache " << int(c.options.cache_type)
                                      << ", outputs " << c.options.output_ids.size());
    const auto team = ThreadTeam::shared(c.options.n_threads);  // not made anew for each backend
    Scene undisturbed(model, c);
    for (int stage = 0; stage < Scene::kStages; ++stage) undisturbed.run(stage);
    for (int stage = 0; stage < Scene::kStages; ++stage) {
      int nth = 0;
      for (bool done = false; !done; ++nth) {
        SCOPED_TRACE(::testing::Message() << "stage " << stage << ", allocation " << nth);
        ASSERT_LT(nth, 3000);
        Scene scene(model, c);
        for (int before = 0; before < stage; ++before) scene.run(before);
        done = gets_through(nth, [&] { scene.run(stage); });
        if (!done) {
          scene.check(stage);
          scene.run(stage);
        }
        for (int after = stage + 1; after < Scene::kStages; ++after) scene.run(after);
        ASSERT_EQ(scene.choices().size(), undisturbed.choices().size());
        for (std::size_t i = 0; i < scene.choices().size(); ++i)
          ASSERT_TRUE(same(scene.choices()[i], undisturbed.choices()[i])) << "choice " << i;
      }
      if (stage == 1 || stage == 6) {
        EXPECT_GT(nth, 10);
      }
    }
  }
}

TEST(MemoryFailure, EndsALoadWithAnException) {
  if (OUTRIDER_SANITIZES_MEMORY) GTEST_SKIP() << "the sanitizer allocates memory itself";
  const Model model = tiny_model({.n_layers = 2});
  for (const Case& c : cases(model)) {
    int nth = 0;
    while (!gets_through(nth, [&] { load_cpu(model, c.options, c.isa); })) ASSERT_LT(++nth, 3000);
    EXPECT_GT(nth, 10);
  }
}

}  // namespace
}  // namespace outrider
