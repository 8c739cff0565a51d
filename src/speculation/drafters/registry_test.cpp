#include "speculation/drafters/registry.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "model/fake_backend.h"
#include "sampling/fake_tokenizer.h"

namespace outrider {
namespace {

using Choices = std::vector<DraftChoice>;

TEST(ParseDraft, ReadsItsGrammar) {
  struct Case {
    const char* text;
    const char* model_draft;
    Choices choices;
  };
  const Case cases[] = {
      {"off", "", {}},
      {"off", "small.gguf", {}},
      {"auto", "", {{"lookup", ""}}},
      {"auto", "small.gguf", {{"lookup", ""}, {"model", "small.gguf"}}},
      {"lookup", "small.gguf", {{"lookup", ""}}},
      {"model=qwen:0.5b", "", {{"model", "qwen:0.5b"}}},
      {"model", "small.gguf", {{"model", "small.gguf"}}},
      {"model=a", "b", {{"model", "a"}}},
      {"lookup+model=a.gguf", "", {{"lookup", ""}, {"model", "a.gguf"}}},
      {"model=a.gguf+lookup", "", {{"model", "a.gguf"}, {"lookup", ""}}},
      {"model=a+b=c.gguf+lookup", "", {{"model", "a+b=c.gguf"}, {"lookup", ""}}},
      {"model=c++", "", {{"model", "c++"}}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    EXPECT_EQ(parse_draft(c.text, c.model_draft), c.choices);
  }
}

TEST(ParseDraft, SaysWhatIsWrong) {
  struct Case {
    const char* text;
    const char* says;
  };
  const Case cases[] = {
      {"5", "--draft-depth 5"},
      {"", "no drafter is called"},
      {"loopup", "lookup"},
      {"lookup+modle=x", "\"modle\""},
      {"lookup=3", "takes no value"},
      {"model", "--model-draft"},
      {"model=", "--model-draft"},
      {"lookup+lookup", "twice"},
      {"suffix", "not available in this version"},
      {"rest=f", "not available in this version"},
      {"lookahead", "not available in this version"},
      {"recycle", "not available in this version"},
      {"self", "not available in this version"},
      {"prediction=f", "not available in this version"},
      {"medusa=h", "not available in this version"},
      {"lookup+eagle=h", "not available in this version"},
      {"mtp", "not available in this version"},
      {"off+lookup", "no drafter is called \"off\""},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    try {
      parse_draft(c.text, "");
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(c.says), std::string::npos) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos);
    }
  }
}

TEST(MakeDrafters, ComparesVocabularies) {
  const FakeTokenizer target({"", "a", "b"});
  const auto context = [&](std::vector<std::string> entries) {
    return DraftContext{.tokenizer = &target,
                        .vocabulary = 3,
                        .memory_bytes = 1 << 20,
                        .load_model = [entries](const std::string& name) {
                          EXPECT_EQ(name, "small");
                          FakeModel model;
                          model.vocabulary = static_cast<int>(entries.size());
                          return DraftModel{std::make_unique<FakeBackend>(model, LoadOptions{}),
                                            std::make_unique<FakeTokenizer>(entries)};
                        }};
  };
  const Choices choices{{"model", "small"}, {"lookup", ""}};
  const auto made = make_drafters(choices, context({"", "a", "b", "more"}));
  ASSERT_EQ(made.size(), 2u);
  EXPECT_EQ(made[0]->name(), "model");
  EXPECT_EQ(made[1]->name(), "lookup");
  EXPECT_EQ(make_drafters(choices, context({"", "a"})).size(), 2u);
  EXPECT_THROW(make_drafters(choices, context({"", "a", "c"})), Error);
}

}  // namespace
}  // namespace outrider
