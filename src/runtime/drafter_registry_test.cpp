#include "runtime/drafter_registry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"
#include "model/fake_backend.h"
#include "sampling/fake_tokenizer.h"

namespace outrider {
namespace {

// Choices as text, for messages of failing tests.
std::vector<std::pair<std::string, std::string>> parsed(const char* text, const char* draft_model) {
  std::vector<std::pair<std::string, std::string>> result;
  for (const DraftChoice& choice : parse_draft(text, draft_model))
    result.emplace_back(choice.kind->name, choice.value);
  return result;
}

TEST(ParseDraft, ReadsItsGrammar) {
  struct Case {
    const char* text;
    const char* draft_model;
    std::vector<std::pair<std::string, std::string>> choices;
  };
  const Case cases[] = {
      {"off", "", {}},
      {"off", "small.gguf", {}},
      {"auto", "", {{"lookup", ""}, {"prediction", ""}}},
      {"auto", "small.gguf", {{"lookup", ""}, {"prediction", ""}, {"model", "small.gguf"}}},
      {"lookup", "small.gguf", {{"lookup", ""}}},
      {"suffix", "", {{"lookup", ""}}},
      {"model=qwen:0.5b", "", {{"model", "qwen:0.5b"}}},
      {"model", "small.gguf", {{"model", "small.gguf"}}},
      {"model=a", "b", {{"model", "a"}}},
      {"lookup+model=a.gguf", "", {{"lookup", ""}, {"model", "a.gguf"}}},
      {"model=a.gguf+lookup", "", {{"model", "a.gguf"}, {"lookup", ""}}},
      {"model=a+b=c.gguf+lookup", "", {{"model", "a+b=c.gguf"}, {"lookup", ""}}},
      {"model=c++", "", {{"model", "c++"}}},
      {"self", "", {{"self", ""}}},
      {"self=1,3-5+lookup", "", {{"self", "1,3-5"}, {"lookup", ""}}},
      {"self=q4_128", "", {{"self", "q4_128"}}},
      {"lookahead", "", {{"lookahead", ""}}},
      {"mtp", "", {{"mtp", ""}}},  // in the model's own file
      {"lookup+mtp", "small.gguf", {{"lookup", ""}, {"mtp", ""}}},
      {"mtp=other", "", {{"mtp", "other"}}},
      {"prediction", "", {{"prediction", ""}}},
      {"prediction=a.txt+lookup", "", {{"prediction", "a.txt"}, {"lookup", ""}}},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text);
    EXPECT_EQ(parsed(c.text, c.draft_model), c.choices);
  }
}

TEST(ParseDraft, SaysWhatIsWrong) {
  struct Case {
    const char* text;
    const char* says;
  };
  const Case cases[] = {
      {"", "no drafter is called"},
      {"loopup", "lookup"},
      {"lookup+modle=x", "\"modle\""},
      {"lookup=3", "takes no value"},
      {"model", "write model=MODEL"},
      {"model=", "write model=MODEL"},
      {"lookup+lookup", "twice"},
      {"self+self=q4_128", "twice"},
      {"self=", "write self=LAYERS|q4_128"},
      {"lookahead=3", "takes no value"},
      {"suffix+lookup", "twice"},
      {"=3", "no drafter is called \"\""},
      {"off+lookup", "no drafter is called \"off\""},
      {"prediction=", "write prediction=FILE"},
      {"eagle", "names no model; write eagle=HEAD"},
      {"mtp=", "names no model; write mtp=HEAD"},
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

// A folder is a head, or else no model.
TEST(ParseDraft, TellsHeadsFromModels) {
  const std::string head = testing::TempDir();
  const std::vector<std::pair<std::string, std::string>> expected{
      {"lookup", ""}, {"prediction", ""}, {"eagle", head}};
  EXPECT_EQ(parsed("auto", head.c_str()), expected);
  EXPECT_EQ(parsed("eagle", head.c_str()).at(0).second, head);
  for (const std::string& text : {"model=" + head, "parallel=" + head, std::string("model")}) {
    SCOPED_TRACE(text);
    try {
      parse_draft(text, head);
      FAIL() << "accepted";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("eagle=" + head), std::string::npos) << error.what();
    }
  }
}

// What command lines and messages rely on.
TEST(DrafterKinds, AreComplete) {
  std::set<std::string> names{"off", "auto"}, flags;
  for (const DrafterKind* kind : drafter_kinds()) {
    SCOPED_TRACE(kind->name);
    EXPECT_TRUE(names.insert(kind->name).second);
    EXPECT_EQ(kind->name.find_first_of("=+ "), std::string::npos);
    EXPECT_FALSE(kind->help.empty());
    EXPECT_TRUE(kind->make);
    EXPECT_TRUE(!kind->runs_model() || !kind->value.empty());
    for (const DrafterFlag& flag : kind->flags) {
      SCOPED_TRACE(flag.name);
      EXPECT_TRUE(flag.name.starts_with("--draft-") || flag.name == "--history");
      EXPECT_TRUE(flags.insert(flag.name).second);
      EXPECT_EQ(flag.check == nullptr, flag.value.empty()) << flag.name;
      if (flag.value.empty()) continue;
      EXPECT_NO_THROW(flag.check(flag.standard));
      for (const std::string& value : flag.choices) EXPECT_NO_THROW(flag.check(value));
      EXPECT_EQ(flag_value(*kind, {}, flag.name), flag.standard);
      EXPECT_EQ(flag_value(*kind, {{flag.name, "x"}}, flag.name), "x");
    }
  }
}

TEST(DraftModel, ReadsItsFlags) {
  const DraftChoice choice = parse_draft("model=m", "")[0];
  const FakeTokenizer tokenizer(std::vector<std::string>(100, "x"));
  ModelSpec spec;
  spec.vocabulary = 100;
  const auto options = [&](const DrafterFlagValues& flags) {
    return choice.kind->load_options({.context = 77}, tokenizer, spec, tokenizer, flags);
  };
  EXPECT_EQ(options({}).context, 77);
  EXPECT_EQ(options({}).requantize, TensorType::q4_128);
  EXPECT_TRUE(options({}).output_ids.empty());  // the vocabulary is smaller than the limit
  EXPECT_EQ(options({{"--draft-quantize", "off"}}).requantize, std::nullopt);
  EXPECT_EQ(options({{"--draft-quantize", "q8_0"}}).requantize, TensorType::q8_0);
  EXPECT_EQ(options({{"--draft-vocab", "40"}}).output_ids.size(), 40u);
  EXPECT_GT(options({{"--draft-vocab", "40"}}).output_room, 0);
  EXPECT_TRUE(options({{"--draft-vocab", "all"}}).output_ids.empty());
  EXPECT_THROW(options({{"--draft-vocab", "40=/nowhere/text"}}), Error);
  const auto refuses = [&](const char* flag, const char* value) {
    const auto row = std::ranges::find(choice.kind->flags, flag, &DrafterFlag::name);
    EXPECT_THROW(row->check(value), Error) << flag << ' ' << value;
  };
  for (const char* value : {"", "q9", "Q4_0 "}) refuses("--draft-quantize", value);
  for (const char* value : {"", "0", "-1", "x", "5=", "all=f", "1e9"})
    refuses("--draft-vocab", value);
}

TEST(DraftModel, ComparesVocabularies) {
  const FakeTokenizer target({"", "a", "b", "c", "d"});
  const DraftChoice choice = parse_draft("model=small", "")[0];
  std::vector<std::string> notes;
  const auto make = [&](const std::vector<std::string>& entries) {
    FakeModel model;
    model.vocabulary = static_cast<int>(entries.size());
    const FakeTokenizer tokenizer(entries);
    const LoadOptions options = choice.kind->load_options({}, target, {}, tokenizer, {});
    return choice.kind
        ->make({.tokenizer = target,
                .vocabulary = 5,
                .flags = {},
                .value = "small",
                .note = [&](const std::string& line) { notes.push_back(line); },
                .model = std::make_shared<FakeBackend>(model, options),
                .model_tokenizer = &tokenizer})
        ->name();
  };
  EXPECT_EQ(make({"", "a", "b", "c", "d", "more"}), "model");
  EXPECT_EQ(make({"", "a"}), "model");
  EXPECT_TRUE(notes.empty());
  EXPECT_EQ(make({"", "b", "x", "a"}), "model");
  EXPECT_EQ(notes,
            std::vector<std::string>{"draft model small: of another vocabulary, it proposes "
                                     "the 2 tokens that both have (50% of the smaller one)"});
  EXPECT_THROW(make({"v", "w", "x", "y", "z"}), Error);
}

TEST(DraftSelf, NamesLayers) {
  const auto target = std::make_shared<FakeBackend>(FakeModel{}, LoadOptions{});
  const FakeTokenizer tokenizer({"a"});
  const auto make = [&](const char* draft) {
    const DraftChoice choice = parse_draft(draft, "")[0];
    return choice.kind->make({.tokenizer = tokenizer,
                              .vocabulary = 23,
                              .flags = {},
                              .value = choice.value,
                              .target = target});
  };
  EXPECT_EQ(make("self")->name(), "self");
  EXPECT_EQ(make("self=1")->name(), "self");
  for (const char* wrong : {"self=2", "self=0-1", "self=x", "self="})
    EXPECT_THROW(make(wrong), Error);
}

}  // namespace
}  // namespace outrider
