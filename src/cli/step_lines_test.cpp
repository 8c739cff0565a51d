#include "cli/step_lines.h"

#include <gtest/gtest.h>

#include "sampling/fake_tokenizer.h"

namespace outrider {
namespace {

StepReport report_of(std::vector<StepReport::Node> nodes, std::vector<std::optional<Token>> choices,
                     std::vector<Token> emitted) {
  StepReport report{.step = 5,
                    .rows = 4,
                    .draft_ms = 2,
                    .forward_ms = 21.25,
                    .drafters = {"lookup", "model"},
                    .sequences = {}};
  const auto n_proposed = static_cast<int>(nodes.size());
  report.sequences.push_back({.id = {1},
                              .last = 0,
                              .position = 48,
                              .n_tokens = 1,
                              .n_proposed = n_proposed,
                              .nodes = std::move(nodes),
                              .choices = std::move(choices),
                              .emitted = std::move(emitted),
                              .finish_reason = {},
                              .error = {}});
  return report;
}

const FakeTokenizer kLetters({"a", "b", "c", "d\n"});

TEST(StepLines, ShowDraftsAsATree) {
  const StepReport report = report_of({{1, 0, true, {{0, 0.625f}, {1, 0.9f}}},
                                       {2, 1, false, {{1, 0.5f}}},
                                       {3, 1, true, {{1, 0.25f}}},
                                       {2, 0, false, {{1, 0.05f}}}},
                                      {1, 3, 0, 2, std::nullopt}, {1, 3, 2});
  EXPECT_EQ(step_text("auto", report, kLetters),
            R"(step 5: auto, position 48, 4 rows, 2 of 4 drafts accepted, 21.2 ms, drafting 2.0 ms
  "a" -> "b"
  ├─+ "b" (lookup 0.62, model 0.90) -> "d\n"
  │  ├── "c" (model 0.50) -> "a"
  │  └─+ "d\n" (model 0.25) -> "c"
  └── "c" (model 0.05) -> no usable logits
  bonus token "c")");
}

TEST(StepLines, TellACorrectionFromABonusToken) {
  const std::string text =
      step_text("auto", report_of({{1, 0, false, {{1, 0.5f}}}}, {2, 0}, {2}), kLetters);
  EXPECT_NE(text.find("\n  correction \"c\""), std::string::npos) << text;
  // Without drafts the line is enough.
  const std::string plain = step_text("off", report_of({}, {2}, {2}), kLetters);
  EXPECT_EQ(plain.find('\n'), std::string::npos) << plain;
}

TEST(StepLines, JsonHasTheChoices) {
  const std::string line =
      step_json("auto", report_of({{1, 0, false, {{1, 0.5f}}}}, {2, std::nullopt}, {2}));
  EXPECT_NE(line.find(R"("choices":[2,null],"taken":[2])"), std::string::npos) << line;
}

}  // namespace
}  // namespace outrider
