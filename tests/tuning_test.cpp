// How weights are read changes the speed alone, and what a backend found out about it can be given
// to the next one.

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

#include "base/error.h"
#include "cpu/backend.h"
#include "cpu/kernels/kernels.h"
#include "support/tiny_model.h"

namespace outrider {
namespace {

const Model& model() {
  static const Model model = testing::tiny_model({.types = {TensorType::q4_k, TensorType::q5_0}});
  return model;
}

std::unique_ptr<Backend> load(Isa isa, std::string tuning) {
  return load_cpu(model(), {.context = 64, .batch_rows = 4, .tuning = std::move(tuning)}, isa);
}

// Of passes with one row and with two.
std::vector<float> logits(Backend& backend) {
  std::vector<float> all;
  const OwnedSequence text(backend);
  for (int first = 0; first < 6; first += 1 + first % 2) {
    std::vector<Row> rows = {{text.id(), 7 + first, first, CommittedEnd{}, true}};
    if (first % 2 == 1) rows.push_back({text.id(), 8 + first, first + 1, EarlierRow{0}, true});
    const Pass pass = backend.forward(rows);
    for (int row = 0; row < static_cast<int>(rows.size()); ++row) {
      const ChoiceRequest request{.row = row, .filters = {.temperature = 0}, .wants_logits = true};
      const std::vector<float> some = backend.choose(pass, std::span(&request, 1))[0].logits;
      all.insert(all.end(), some.begin(), some.end());
    }
    backend.commit(text.id(), pass.slots);
  }
  return all;
}

class Tuning : public ::testing::Test {
 protected:
  void SetUp() override { unsetenv("OUTRIDER_PREFETCH"); }
  void TearDown() override { unsetenv("OUTRIDER_PREFETCH"); }
};

TEST_F(Tuning, IsTakenUpAgain) {
  for (const Isa isa : available_isas()) {
    SCOPED_TRACE(name(isa));
    const bool has_choice = !kernels(isa).by_prefetch.empty();
    const std::string found = load(isa, "")->tuning();
    EXPECT_EQ(found.empty(), !has_choice);
    for (const char* prefetch : {"processor", "near", "far"}) {
      const std::string kept = fmt::format("{} prefetch={}", name(isa), prefetch);
      EXPECT_EQ(load(isa, kept)->tuning(), has_choice ? kept : "");
    }
    for (const char* other : {"?", "\n\0", "avx512", "avx512 prefetch=", "sse prefetch=near",
                              "avx512 prefetch=far ", "avx512 prefetch=requests"})
      EXPECT_EQ(load(isa, other)->tuning(), found) << other;
  }
}

TEST_F(Tuning, ChangesNoLogits) {
  const std::vector<float> expected = logits(*load(Isa::reference, ""));
  for (const Isa isa : available_isas()) {
    for (const char* prefetch : {"processor", "near", "far"}) {
      SCOPED_TRACE(fmt::format("{} {}", name(isa), prefetch));
      EXPECT_EQ(logits(*load(isa, fmt::format("{} prefetch={}", name(isa), prefetch))), expected);
    }
  }
}

TEST_F(Tuning, IsNotKeptOfWhatTheEnvironmentForces) {
  const Isa isa = available_isas().back();
  setenv("OUTRIDER_PREFETCH", "far", 1);
  EXPECT_EQ(load(isa, "")->tuning(), "");
  setenv("OUTRIDER_PREFETCH", "cache", 1);
  EXPECT_THROW(load(isa, ""), Error);
  EXPECT_THROW(cpu_backends().name(), Error);
}

}  // namespace
}  // namespace outrider
