#include "text/tokenizer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <string>

#include "base/error.h"
#include "base/utf8.h"
#include "formats/gguf.h"
#include "text/normal_form.h"

namespace outrider {
namespace {

using nlohmann::json;

const std::string kGolden = OUTRIDER_GOLDEN_DIR "/tokenizers/";

json read_json(const std::string& name) {
  std::ifstream file(kGolden + name);
  EXPECT_TRUE(file) << name;
  return json::parse(file);
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (std::size_t i = 0; i < hex.size(); i += 2)
    bytes += static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16));
  return bytes;
}

const std::vector<std::string>& golden_strings() {
  static const std::vector<std::string> strings = [] {
    std::vector<std::string> all;
    for (const json& entry : read_json("strings.json"))
      all.push_back(entry.is_string() ? entry.get<std::string>() : from_hex(entry["hex"]));
    return all;
  }();
  return strings;
}

// The metadata of a golden file's small vocabulary.
Metadata metadata_of(const json& values, const std::string& origin) {
  Metadata metadata(origin);
  for (const auto& [name, value] : values.items()) {
    const std::string key = "tokenizer.ggml." + name;
    if (name == "scores") {
      metadata.insert(key, value.get<std::vector<double>>());
    } else if (name == "token_type") {
      metadata.insert(key, value.get<std::vector<std::int64_t>>());
    } else if (value.is_array()) {
      metadata.insert(key, value.get<std::vector<std::string>>());
    } else if (value.is_string()) {
      metadata.insert(key, value.get<std::string>());
    } else {
      metadata.insert(key, value.get<std::int64_t>());
    }
  }
  metadata.insert("tokenizer.ggml.add_space_prefix", false);
  return metadata;
}

std::unique_ptr<Tokenizer> tiny(const std::string& name) {
  return make_tokenizer(metadata_of(read_json("tiny-" + name + ".json")["metadata"], name));
}

// `every` n-th of the golden strings against the tokens of the Python package `tokenizers`.
void expect_golden(const Tokenizer& tokenizer, const json& golden, std::size_t every) {
  const std::vector<std::string>& strings = golden_strings();
  ASSERT_EQ(golden["plain"].size(), (strings.size() + every - 1) / every);
  for (std::size_t i = 0; i < golden["plain"].size(); ++i) {
    const std::string& text = strings[i * every];
    const auto plain = golden["plain"][i].get<std::vector<Token>>();
    EXPECT_EQ(tokenizer.encode(text), plain) << "string " << i << ": " << text;
    const auto special = golden["special"].find(std::to_string(i));
    EXPECT_EQ(tokenizer.encode(text, true),
              special == golden["special"].end() ? plain : special->get<std::vector<Token>>())
        << "string " << i << ", special tokens parsed: " << text;
  }
}

std::string nothing(std::string text) {
  return text;
}

// Where the tokenizer composes characters first.
std::string composed(std::string text) {
  return to_nfc(text).value_or(text);
}

// Decoding gives the text back, except for what `lost` removes from it. `same` maps texts that are
// alike to one: a special token and a mark after it are never composed.
void expect_round_trip(const Tokenizer& tokenizer,
                       const std::function<std::string(std::string)>& lost,
                       const std::function<std::string(std::string)>& same = nothing) {
  for (const std::string& text : golden_strings()) {
    const std::string expected = lost(well_formed(text));
    EXPECT_EQ(same(tokenizer.decode(tokenizer.encode(text))), expected) << text;
    EXPECT_EQ(same(tokenizer.decode(tokenizer.encode(text, true), true)), expected) << text;
  }
}

// U+2581 is how SentencePiece writes a space.
std::string written_spaces(std::string text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    const bool is_space = text.compare(i, 3, "\u2581") == 0;
    out += is_space ? ' ' : text[i];
    i += is_space ? 3 : 1;
  }
  return out;
}

// SmolLM2 has no entries for these bytes.
std::string unknown_to_smollm2(std::string text) {
  std::erase_if(text, [](char c) {
    return std::string_view("\x04\x06\x13\x14\x16\x1D\xF1\xF2").find(c) != std::string_view::npos;
  });
  return text;
}

TEST(Tokenizer, SmallVocabulariesMatchTheReference) {
  for (const std::string name :
       {"smollm", "command-r", "qwen2", "qwen35", "gpt-2", "mpt", "seed-coder", "minicpm5",
        "llama-bpe", "tekken", "gpt-4o", "deepseek-llm", "deepseek-coder", "deepseek-v3",
        "sentencepiece"}) {
    SCOPED_TRACE(name);
    const json golden = read_json("tiny-" + name + ".json");
    expect_golden(*make_tokenizer(metadata_of(golden["metadata"], name)), golden, golden["every"]);
  }
}

TEST(Tokenizer, TextComesBack) {
  expect_round_trip(*tiny("smollm"), nothing);
  expect_round_trip(*tiny("qwen2"), composed, composed);
  expect_round_trip(*tiny("sentencepiece"), written_spaces);
}

// Real vocabularies: from $OUTRIDER_CACHE/models.
class RealVocabulary : public testing::Test {
 protected:
  std::unique_ptr<Tokenizer> open(const std::string& name) {
    const char* cache = std::getenv("OUTRIDER_CACHE");
    const std::filesystem::path path =
        std::filesystem::path(cache ? cache : "") / "models" / (name + ".gguf");
    if (cache == nullptr || !std::filesystem::exists(path)) return nullptr;
    return make_tokenizer(read_gguf(path).metadata);
  }
};

#define OPEN_OR_SKIP(tokenizer, name) \
  const auto tokenizer = open(name);  \
  if (!(tokenizer)) GTEST_SKIP() << "no models/" << (name) << ".gguf in $OUTRIDER_CACHE"

TEST_F(RealVocabulary, SmolLM2MatchesTheReference) {
  OPEN_OR_SKIP(tokenizer, "smollm2-135m");
  expect_golden(*tokenizer, read_json("smollm2.json"), 1);
  expect_round_trip(*tokenizer, unknown_to_smollm2);
  EXPECT_EQ(tokenizer->end_tokens, (std::vector<Token>{0, 2}));
  EXPECT_FALSE(tokenizer->add_bos);
}

TEST_F(RealVocabulary, Qwen2MatchesTheReference) {
  OPEN_OR_SKIP(tokenizer, "qwen2.5-coder-0.5b");
  expect_golden(*tokenizer, read_json("qwen2.5-coder.json"), 1);
  expect_round_trip(*tokenizer, composed, composed);
  EXPECT_EQ(tokenizer->end_tokens, (std::vector<Token>{151643, 151645}));
  EXPECT_FALSE(tokenizer->add_bos);
}

TEST_F(RealVocabulary, TheQwen2PairAgrees) {
  OPEN_OR_SKIP(target, "qwen2.5-coder-1.5b");
  OPEN_OR_SKIP(draft, "qwen2.5-coder-0.5b");
  EXPECT_EQ(vocabulary_difference(*target, *draft), std::nullopt);
}

TEST_F(RealVocabulary, Gemma3MatchesTheReference) {
  OPEN_OR_SKIP(tokenizer, "gemma3-270m");
  expect_golden(*tokenizer, read_json("gemma3.json"), 1);
  expect_round_trip(*tokenizer, written_spaces);
  EXPECT_EQ(tokenizer->end_tokens, (std::vector<Token>{1, 106}));
  EXPECT_TRUE(tokenizer->add_bos);
  EXPECT_EQ(tokenizer->bos, 2);
}

// Merging that is quadratic would need minutes for each of these.
TEST(Tokenizer, LongRunsAreNoTrap) {
  for (const std::string name : {"smollm", "qwen2", "sentencepiece"}) {
    const auto tokenizer = tiny(name);
    for (const std::string unit : {"a", " ", "\n", "<", "é", "0", " \n", "ab "}) {
      std::string text;
      while (text.size() < 300'000) text += unit;
      EXPECT_EQ(tokenizer->decode(tokenizer->encode(text)), text) << name << " " << unit;
    }
  }
}

// Only where the tokenizers that defined the vocabularies do.
TEST(Tokenizer, SomePreTokenizersCompose) {
  for (const std::string name : {"command-r", "mpt", "qwen2", "qwen35"})
    EXPECT_EQ(tiny(name)->encode("e\u0301"), tiny(name)->encode("é")) << name;
  for (const std::string name : {"gpt-2", "llama-bpe", "smollm", "tekken", "deepseek-v3"})
    EXPECT_NE(tiny(name)->encode("e\u0301"), tiny(name)->encode("é")) << name;
}

// --- Special tokens

std::vector<Token> encode(const Tokenizer& tokenizer, const std::vector<TextPiece>& pieces) {
  return tokenizer.encode(pieces);
}

Token id(const Tokenizer& tokenizer, std::string_view text) {
  for (Token token = 0; token < tokenizer.size(); ++token)
    if (tokenizer.text(token) == text) return token;
  ADD_FAILURE() << text;
  return 0;
}

TEST(Tokenizer, ControlTokensComeOnlyFromPiecesThatMayHoldThem) {
  for (const std::string name : {"qwen2", "sentencepiece"}) {
    SCOPED_TRACE(name);
    const auto t = tiny(name);
    const std::string start = name == "qwen2" ? "<|im_start|>" : "<start_of_turn>";
    const Token control = id(*t, start);
    const auto count = [&](const std::vector<TextPiece>& pieces) {
      const auto tokens = t->encode(pieces);
      std::string text;
      for (const TextPiece& piece : pieces) text += piece.text;
      EXPECT_EQ(t->decode(tokens, true), text);
      return std::count(tokens.begin(), tokens.end(), control);
    };
    const std::string head = start.substr(0, 5), tail = start.substr(5);
    EXPECT_EQ(count({{start + "user\n" + start, true}}), 2);
    EXPECT_EQ(count({{start + "user\n" + start, false}}), 0);
    EXPECT_EQ(count({{start, true}, {start, false}, {start, true}}), 2);
    EXPECT_EQ(count({{head, true}, {tail, true}}), 1);  // pieces join
    EXPECT_EQ(count({{head, true}, {"", false}, {tail, true}}), 1);
    EXPECT_EQ(count({{head, true}, {tail, false}}), 0);  // half of it is a user's
    EXPECT_EQ(count({{head, false}, {tail, true}}), 0);
    EXPECT_EQ(count({{head, false}, {tail + start, true}, {"x", false}}), 1);
  }
}

// A mark after a special token is not composed with the token's last character.
TEST(Tokenizer, SpecialTokensAreFoundBeforeTextIsComposed) {
  const auto t = tiny("qwen2");
  const Token start = id(*t, "<|im_start|>"), tool = id(*t, "<tool_call>");
  const auto tokens = t->encode("e\u0301<|im_start|>\u0338<tool_call>\u0338e\u0301", true);
  EXPECT_EQ(t->decode(tokens, true), "é<|im_start|>\u0338<tool_call>\u0338é");
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), start), 1);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end(), tool), 1);
  EXPECT_EQ(encode(*t, {{"e", true}, {"\u0301", false}}), t->encode("é"));  // across pieces
  EXPECT_EQ(t->decode(t->encode("<|im_start|>\u0338")), "<|im_start|≯");    // a user's
}

TEST(Tokenizer, PiecesWithoutASpecialTokenBetweenThemAreOneText) {
  std::mt19937 random(11);
  for (const std::string name : {"smollm", "qwen2", "sentencepiece"}) {
    const auto t = tiny(name);
    for (const std::string& raw : golden_strings()) {
      const std::string text = well_formed(raw);
      std::vector<TextPiece> pieces(1);
      for (std::string_view rest = text; !rest.empty();) {
        const std::size_t n = utf8_step(rest).n_bytes;
        pieces.back().text += rest.substr(0, n);
        rest.remove_prefix(n);
        if (random() % 3 == 0) pieces.emplace_back();
      }
      EXPECT_EQ(encode(*t, pieces), t->encode(text)) << text;
      for (TextPiece& piece : pieces) piece.parse_special = true;
      EXPECT_EQ(encode(*t, pieces), t->encode(text, true)) << text;
    }
  }
}

TEST(Tokenizer, SpecialTokensShowOnlyOnRequest) {
  const auto t = tiny("qwen2");
  const Token start = id(*t, "<|im_start|>"), unused = id(*t, "[PAD151665]"),
              tool = id(*t, "<tool_call>");
  EXPECT_EQ(t->bytes(start), "");
  EXPECT_EQ(t->bytes(start, true), "<|im_start|>");
  EXPECT_EQ(t->bytes(unused), "");
  EXPECT_EQ(t->bytes(tool), "<tool_call>");
  EXPECT_EQ(t->encode("<tool_call>"), std::vector<Token>{tool});
  const auto parsed = t->encode("[PAD151665]", true);
  EXPECT_EQ(std::count(parsed.begin(), parsed.end(), unused), 0);
}

// --- Small vocabularies written out

struct Entry {
  std::string text;
  double score = 0;
  int kind = 1;
};

using Change = std::function<void(std::map<std::string, MetadataValue>&)>;

Metadata built(const std::map<std::string, MetadataValue>& values) {
  Metadata metadata("test.gguf");
  for (const auto& [key, value] : values) metadata.insert("tokenizer.ggml." + key, value);
  return metadata;
}

std::map<std::string, MetadataValue> sentencepiece(const std::vector<Entry>& entries) {
  std::vector<std::string> tokens{"<unk>"};
  std::vector<double> scores{0};
  std::vector<std::int64_t> kinds{2};
  for (const Entry& entry : entries) {
    tokens.push_back(entry.text);
    scores.push_back(entry.score);
    kinds.push_back(entry.kind);
  }
  return {{"model", "llama"},
          {"tokens", tokens},
          {"scores", scores},
          {"token_type", kinds},
          {"add_space_prefix", false}};
}

// A vocabulary that writes the letters a to e, and what the merges make of them.
std::map<std::string, MetadataValue> byte_bpe(const std::vector<std::string>& merges) {
  std::vector<std::string> tokens{"a", "b", "c", "d", "e", "\u0120"};
  for (std::string merge : merges) {
    merge.erase(merge.find(' '), 1);
    if (std::find(tokens.begin(), tokens.end(), merge) == tokens.end()) tokens.push_back(merge);
  }
  return {{"model", "gpt2"}, {"pre", "qwen2"}, {"tokens", tokens}, {"merges", merges}};
}

std::vector<std::string> pieces_of(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::string> pieces;
  for (const Token token : tokenizer.encode(text)) pieces.emplace_back(tokenizer.text(token));
  return pieces;
}

using Pieces = std::vector<std::string>;

TEST(SentencePiece, MergesByScoreThenLengthThenIdThenPlace) {
  {
    const auto t =
        make_tokenizer(built(sentencepiece({{"a"}, {"b"}, {"c"}, {"ab", -2}, {"bc", -1}})));
    EXPECT_EQ(pieces_of(*t, "abc"), (Pieces{"a", "bc"}));
  }
  {  // leftmost
    const auto t = make_tokenizer(built(sentencepiece({{"a"}, {"aa", -1}})));
    EXPECT_EQ(pieces_of(*t, "aaaaa"), (Pieces{"aa", "aa", "a"}));
  }
  {  // a|bb|a, both scores equal: the longer left part, though it is on the right
    const auto t =
        make_tokenizer(built(sentencepiece({{"a"}, {"b"}, {"abb", -1}, {"bba", -1}, {"bb", 0}})));
    EXPECT_EQ(pieces_of(*t, "abba"), (Pieces{"a", "bba"}));
  }
  {  // x|a|bb: the longer right part
    const auto t = make_tokenizer(
        built(sentencepiece({{"x"}, {"a"}, {"b"}, {"xa", -1}, {"abb", -1}, {"bb", 0}})));
    EXPECT_EQ(pieces_of(*t, "xabb"), (Pieces{"x", "abb"}));
  }
  {  // x|a|b: the lower id
    const auto t = make_tokenizer(built(sentencepiece({{"x"}, {"a"}, {"b"}, {"ab"}, {"xa"}})));
    EXPECT_EQ(pieces_of(*t, "xab"), (Pieces{"x", "ab"}));
  }
}

TEST(SentencePiece, CharactersOutsideTheVocabularyBecomeBytesOrUnknown) {
  const auto t = make_tokenizer(built(sentencepiece({{"a"}, {"<0xC3>", 0, 6}, {"<0xa9>", 0, 6}})));
  EXPECT_EQ(pieces_of(*t, "aéa"), (Pieces{"a", "<0xC3>", "<0xa9>", "a"}));
  EXPECT_EQ(pieces_of(*t, "aèèa€"), (Pieces{"a", "<unk>", "a", "<unk>"}));  // neighbours fuse
  EXPECT_EQ(t->decode(t->encode("aé")), "aé");
  EXPECT_EQ(t->bytes(0), "");
}

TEST(SentencePiece, ASpaceIsPutInFrontWhereTheFileAsksForIt) {
  auto values = sentencepiece({{"a"}, {"\u2581"}, {"\u2581a", 1}, {"<s>", 0, 3}});
  values.erase("add_space_prefix");
  const auto t = make_tokenizer(built(values));
  EXPECT_EQ(pieces_of(*t, "a"), (Pieces{"\u2581a"}));
  EXPECT_EQ(pieces_of(*t, " a"), (Pieces{"\u2581", "\u2581a"}));
  EXPECT_EQ(pieces_of(*t, ""), Pieces{});
  EXPECT_EQ(t->encode("<s>a", true), (std::vector<Token>{4, 1}));
}

TEST(SentencePiece, ControlUnusedAndByteEntriesComeFromNoText) {
  const auto t = make_tokenizer(
      built(sentencepiece({{"a"}, {"b"}, {"ab", 0, 3}, {"ba", 0, 5}, {"<0x61>", 0, 6}})));
  EXPECT_EQ(pieces_of(*t, "abba"), (Pieces{"a", "b", "b", "a"}));
}

TEST(ByteBpe, MergesByRank) {
  const auto t = make_tokenizer(built(byte_bpe({"b c", "a b", "ab c", "a bc"})));
  EXPECT_EQ(pieces_of(*t, "abc"), (Pieces{"abc"}));
  EXPECT_EQ(pieces_of(*t, "ab"), (Pieces{"ab"}));
  EXPECT_EQ(pieces_of(*t, "aab"), (Pieces{"a", "ab"}));
  EXPECT_EQ(pieces_of(*t, "ab c"), (Pieces{"ab", "\u0120", "c"}));
}

// As tokenizers of Llama 3 and Mistral ask for; others merge first.
TEST(ByteBpe, WordsThatAreEntriesNeedNoMerge) {
  auto values = byte_bpe({"a b"});
  std::get<std::vector<std::string>>(values["tokens"]).push_back("bab");
  EXPECT_EQ(pieces_of(*make_tokenizer(built(values)), "bab"), (Pieces{"b", "ab"}));
  for (const char* pre : {"llama-bpe", "tekken", "glm4"}) {
    values["pre"] = std::string(pre);
    EXPECT_EQ(pieces_of(*make_tokenizer(built(values)), "bab"), (Pieces{"bab"})) << pre;
    EXPECT_EQ(pieces_of(*make_tokenizer(built(values)), "babb"), (Pieces{"b", "ab", "b"})) << pre;
  }
}

TEST(ByteBpe, SomePreTokenizersAddBosUnlessTheFileSaysOtherwise) {
  auto values = byte_bpe({"a b"});
  values["bos_token_id"] = std::int64_t{0};
  EXPECT_FALSE(make_tokenizer(built(values))->add_bos);
  values["pre"] = std::string("llama-bpe");
  EXPECT_TRUE(make_tokenizer(built(values))->add_bos);
  values["add_bos_token"] = false;
  EXPECT_FALSE(make_tokenizer(built(values))->add_bos);
  values.erase("add_bos_token");
  values.erase("bos_token_id");
  EXPECT_FALSE(make_tokenizer(built(values))->add_bos);
}

TEST(ByteBpe, BytesWithoutAnEntryAreLeftOut) {
  const auto t = make_tokenizer(built(byte_bpe({"a b"})));
  EXPECT_EQ(pieces_of(*t, "axb!a"), (Pieces{"ab", "a"}));
}

TEST(ByteBpe, EntriesThatWriteNoBytesStandForThemselves) {
  auto values = byte_bpe({"a b"});
  std::get<std::vector<std::string>>(values["tokens"]).push_back("日 本");
  const auto t = make_tokenizer(built(values));
  EXPECT_EQ(t->bytes(t->size() - 1), "日 本");
  EXPECT_EQ(t->bytes(5), " ");
}

TEST(Tokenizer, TheLongestSpecialTokenCountsFromTheLeft) {
  const auto t = make_tokenizer(built(sentencepiece(
      {{"x"}, {"y"}, {"xy", 0, 4}, {"xyx", 0, 4}, {"yx", 0, 4}, {"xyxy<", 0, 3}, {"", 0, 4}})));
  EXPECT_EQ(t->encode("xyxyx"), (std::vector<Token>{4, 5}));
  EXPECT_EQ(t->encode("xyxy<", true), (std::vector<Token>{6}));
  EXPECT_EQ(t->encode("yxy"), (std::vector<Token>{5, 2}));
}

TEST(Tokenizer, EndTokensAreTheFilesAndTheWellKnown) {
  auto values = sentencepiece({{"</s>", 0, 3},
                               {"<|im_end|>", 0, 4},
                               {"<end_of_turn>", 0, 3},
                               {"<|endoftext|>", 0, 5},
                               {"x"}});
  values["eos_token_id"] = std::int64_t{1};
  values["eot_token_id"] = std::int64_t{3};
  values["eom_token_id"] = std::int64_t{5};
  const auto t = make_tokenizer(built(values));
  EXPECT_EQ(t->end_tokens, (std::vector<Token>{1, 2, 3, 5}));
  EXPECT_EQ(t->eos, 1);
  EXPECT_EQ(t->kind(2), TokenKind::control);  // whatever the file says
}

// Harmony's messages end with <|end|>, its answers with <|return|> and <|call|>.
TEST(Tokenizer, AMessagesEndIsNotTheEndOfAnAnswer) {
  const auto ends = [](const std::vector<Entry>& entries) {
    auto values = sentencepiece(entries);
    values["eos_token_id"] = std::int64_t{1};
    return make_tokenizer(built(values))->end_tokens;
  };
  const Entry end = {"</s>", 0, 3};
  EXPECT_EQ(ends({end, {"<|end|>", 0, 3}, {"<|return|>", 0, 3}, {"<|call|>", 0, 3}}),
            (std::vector<Token>{1, 3, 4}));
  EXPECT_EQ(ends({end, {"<|end|>", 0, 3}, {"<|return|>", 0, 3}}), (std::vector<Token>{1, 2, 3}));
  EXPECT_EQ(ends({end, {"<|user|>", 0, 3}, {"<|observation|>", 0, 3}}), std::vector<Token>{1});
  EXPECT_EQ(ends({end, {"<|user|>", 0, 3}, {"<|observation|>", 0, 3}, {"[gMASK]", 0, 3}}),
            (std::vector<Token>{1, 2, 3}));
}

TEST(Tokenizer, VocabulariesAgreeIfCommonIdsMeanTheSame) {
  const auto a = make_tokenizer(built(sentencepiece({{"a"}, {"b"}})));
  const auto longer = make_tokenizer(built(sentencepiece({{"a", -3}, {"b"}, {"c"}})));
  const auto text = make_tokenizer(built(sentencepiece({{"a"}, {"c"}})));
  const auto kind = make_tokenizer(built(sentencepiece({{"a"}, {"b", 0, 3}})));
  EXPECT_EQ(vocabulary_difference(*a, *longer), std::nullopt);
  EXPECT_EQ(vocabulary_difference(*longer, *a), std::nullopt);
  EXPECT_EQ(vocabulary_difference(*a, *text),
            "token 2 is \"b\" (normal) in one vocabulary and \"c\" (normal) in the other");
  EXPECT_EQ(vocabulary_difference(*kind, *a),
            "token 2 is \"b\" (control) in one vocabulary and \"b\" (normal) in the other");
}

TEST(Tokenizer, MalformedVocabulariesAreErrors) {
  struct Case {
    const char* name;
    std::map<std::string, MetadataValue> values;
    Change change;
    const char* message;  // part of it
  };
  const auto good = sentencepiece({{"a"}, {"b"}});
  const auto bpe = byte_bpe({"a b"});
  const auto set = [](const char* key, const MetadataValue& value) -> Change {
    return [=](auto& values) { values[key] = value; };
  };
  const auto erase = [](const char* key) -> Change {
    return [=](auto& values) { values.erase(key); };
  };
  using Strings = std::vector<std::string>;
  using Integers = std::vector<std::int64_t>;
  using Numbers = std::vector<double>;
  const Case cases[] = {
      {"no model", good, erase("model"), "tokenizer.ggml.model"},
      {"model of another type", good, set("model", std::int64_t{1}), "tokenizer.ggml.model"},
      {"unknown model", good, set("model", std::string("bert\n")),
       "\"bert\\x0a\", which is not supported in this version; choose a model of one of these: "
       "gpt2, llama"},
      {"SentencePiece of another kind", good, set("model", std::string("t5")),
       "model is \"t5\", which"},
      {"WordPiece", good, set("model", std::string("bert")), "model is \"bert\", which"},
      {"RWKV", good, set("model", std::string("rwkv")), "model is \"rwkv\", which"},
      {"PLaMo", good, set("model", std::string("plamo2")), "model is \"plamo2\", which"},
      {"no vocabulary", good, set("model", std::string("none")), "model is \"none\", which"},
      {"no tokens", good, erase("tokens"), "tokens is missing"},
      {"empty vocabulary", good, set("tokens", Strings{}), "tokens is empty"},
      {"tokens of another type", good, set("tokens", Integers{1}), "tokenizer.ggml.tokens"},
      {"two equal tokens",
       sentencepiece({{"a"}, {"b"}, {"a"}}),
       {},
       "tokens[1] and [3] are both \"a\""},
      {"two equal tokens of two kinds",
       sentencepiece({{"a", 0, 3}, {"a", 0, 1}}),
       {},
       "tokens[1] and [2] are both \"a\""},
      {"token that is no UTF-8",
       sentencepiece({{"a"}, {"b\xC3("}}),
       {},
       "tokens[2] is \"b\\xc3(\", which is no UTF-8"},
      {"token that ends in a character", bpe, set("tokens", Strings{"a", "b", "\xE2\x82"}),
       "tokens[2] is \"\\xe2\\x82\", which is no UTF-8"},
      {"types of another type", good, set("token_type", Strings{"2", "1", "1"}), "token_type"},
      {"many types", good, set("token_type", Integers{2, 1, 1, 1}),
       "token_type has 4 entries for 3 tokens"},
      {"no types", good, set("token_type", Integers{}), "token_type has 0 entries for 3 tokens"},
      {"few types", good, set("token_type", Integers{1, 1}),
       "token_type has 2 entries for 3 tokens"},
      {"unknown type", good, set("token_type", Integers{2, 1, 7}),
       "token_type[2] is 7, expected 1 to 6"},
      {"negative type", good, set("token_type", Integers{2, -1, 1}), "token_type[1] is -1"},
      {"byte out of range",
       sentencepiece({{"<0x-1>", 0, 6}}),
       {},
       "token 1 is a byte and reads \"<0x-1>\""},
      {"byte too long", sentencepiece({{"<0x100>", 0, 6}}), {}, "reads \"<0x100>\""},
      {"byte that is none", sentencepiece({{"", 0, 6}}), {}, "token 1 is a byte"},
      {"no scores", good, erase("scores"), "scores is missing"},
      {"scores of another type", good, set("scores", Strings{"0", "0", "0"}), "scores"},
      {"one score", good, set("scores", 1.0), "scores"},
      {"many scores", good, set("scores", Numbers{0, 0, 0, 0}),
       "scores has 4 entries for 3 tokens"},
      {"few scores", good, set("scores", Numbers{1}), "scores has 1 entries for 3 tokens"},
      {"score that is no number", good,
       set("scores", Numbers{0, 0, std::numeric_limits<double>::quiet_NaN()}),
       "scores[2] is not a number"},
      {"nothing for bytes", good, set("token_type", Integers{1, 1, 1}),
       "neither an unknown token nor the byte token <0x00>"},
      {"no unknown and a byte missing", sentencepiece({{"<0x00>", 0, 6}, {"<0x02>", 0, 6}}),
       set("token_type", Integers{1, 6, 6}), "neither an unknown token nor the byte token <0x01>"},
      {"id beyond what int64 holds", bpe, set("eos_token_id", std::uint64_t{1} << 63),
       "eos_token_id"},
      {"whether BOS, of another type", good, set("add_bos_token", std::string("true")),
       "add_bos_token"},
      {"whether a space, of another type", good, set("add_space_prefix", std::int64_t{1}),
       "add_space_prefix"},
      {"id of another type", good, set("eot_token_id", std::string("x")), "eot_token_id"},
      {"BOS wanted but none", bpe, set("add_bos_token", true), "add_bos_token is true"},
      {"no pre-tokenizer", bpe, erase("pre"), "tokenizer.ggml.pre"},
      {"unknown pre-tokenizer", bpe, set("pre", std::string("gpt-9")),
       "\"gpt-9\" (tokenizer.ggml.pre) is not supported in this version; choose a model of one of "
       "these, or name one: gpt-2, "},
      {"pre-tokenizer of another type", bpe, set("pre", std::int64_t{1}), "tokenizer.ggml.pre"},
      {"nameless pre-tokenizer", bpe, set("pre", std::string()), "the pre-tokenizer \"\" ("},
      {"merges of another type", bpe, set("merges", Integers{1}), "tokenizer.ggml.merges"},
      {"no merges", bpe, erase("merges"), "merges is missing"},
      {"merge of one part", bpe, set("merges", Strings{"a b", "ab"}),
       "merges[1] is \"ab\", expected two parts"},
      {"merge of an empty part", bpe, set("merges", Strings{"a "}),
       "merges[0] is \"a \", expected two parts"},
      {"empty merge", bpe, set("merges", Strings{""}), "merges[0] is \"\", expected two parts"},
      {"merge of a space", bpe, set("merges", Strings{" "}), "merges[0]"},
      // A merge of two parts that are not empty is longer than both, so merges form no cycle.
      {"merge into one of its parts", bpe, set("merges", Strings{"a b", " ab"}),
       "merges[1] is \" ab\", expected two parts"},
      {"merge of three parts", bpe, set("merges", Strings{"a b c"}),
       "merges[0] needs \"b c\", which is not in the vocabulary"},
      {"merge that is no UTF-8", bpe, set("merges", Strings{"a \xFF"}), "needs \"\\xff\","},
      {"left part unknown", bpe, set("merges", Strings{"x b"}),
       "merges[0] needs \"x\", which is not in the vocabulary"},
      {"right part unknown", bpe, set("merges", Strings{"a x"}), "needs \"x\","},
      {"result unknown", bpe, set("merges", Strings{"b a"}), "needs \"ba\","},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.name);
    auto values = c.values;
    if (c.change) c.change(values);
    try {
      make_tokenizer(built(values));
      ADD_FAILURE() << "no error";
    } catch (const Error& error) {
      const std::string line = error.what();
      EXPECT_NE(line.find(c.message), line.npos) << line;
      EXPECT_EQ(line.rfind("test.gguf: ", 0), 0u) << line;
      EXPECT_EQ(line.find('\n'), line.npos) << line;
    }
  }
}

TEST(Tokenizer, MergesOfEntriesThatTextCannotGiveAreLeftOut) {
  auto values = byte_bpe({"a b", "b c"});
  values["token_type"] = std::vector<std::int64_t>{1, 1, 1, 1, 1, 1, 3, 1};
  const auto t = make_tokenizer(built(values));
  EXPECT_EQ(pieces_of(*t, "abc"), (Pieces{"a", "bc"}));
}

// What a tokenizer makes of its file.
std::string behaviour(const Tokenizer& t) {
  std::string text = fmt::format("{} {} {} {}:", t.add_bos, t.bos.value_or(-1), t.eos.value_or(-1),
                                 fmt::join(t.end_tokens, ","));
  for (Token token = 0; token < t.size(); ++token)
    text += fmt::format(" {}={}", token, t.bytes(token, true));
  for (const char* sample : {"abb", "a  b", "12"}) {
    const TextPiece piece{sample, false};
    text += fmt::format("; {}", fmt::join(t.encode_whole(std::span(&piece, 1)), ","));
  }
  return text;
}

constexpr const char* kWordSpace = "\xE2\x96\x81";

// Each key on a list does what the list says of it.
TEST(Tokenizer, EveryKeyDoesWhatItsListSays) {
  using Strings = std::vector<std::string>;
  using Integers = std::vector<std::int64_t>;
  auto of_bytes = byte_bpe({"a b", "1 2"});
  of_bytes["pre"] = std::string("gpt-2");
  of_bytes["tokens"] = Strings{"a", "b", "ab", "1", "2", "12", "<s>"};
  of_bytes["token_type"] = Integers{1, 1, 1, 1, 1, 1, 3};
  of_bytes["bos_token_id"] = std::int64_t{6};
  auto of_scores =
      sentencepiece({{"<s>", 0, 3}, {"</s>", 0, 3}, {"a"}, {"b"}, {"ab"}, {"bb"}, {kWordSpace}});
  of_scores["bos_token_id"] = std::int64_t{1};
  of_scores["eos_token_id"] = std::int64_t{2};
  // Another value of each, refused or not.
  const auto other_of = [&](const std::string& name, const Tokenizer& before) -> MetadataValue {
    const std::map<std::string, MetadataValue> others = {
        {"model", std::string("rwkv")},
        {"tokens", Strings{"a"}},
        {"token_type", Integers(static_cast<std::size_t>(before.size()), 3)},
        {"add_bos_token", !before.add_bos},
        {"pre", std::string("smollm")},
        {"merges", Strings{}},
        {"add_space_prefix", true},
        {"scores", std::vector<double>{0, 0, 0, 0, 0, -2, -1, 0}},
        {"suppress_tokens", Integers{1}},
        {"remove_extra_whitespaces", true},
        {"precompiled_charsmap", Integers{1, 2}}};
    const auto other = others.find(name);
    return other == others.end() ? MetadataValue(std::int64_t{3}) : other->second;
  };
  for (const auto& good : {of_bytes, of_scores}) {
    const Metadata metadata = built(good);
    const auto before = make_tokenizer(metadata);
    EXPECT_TRUE(before->warnings.empty());
    for (const TakenKey& taken : tokenizer_keys(metadata)) {
      SCOPED_TRACE(taken.name);
      const std::string name(taken.row.name);
      auto values = good;
      values.erase(name);
      if (taken.row.use == KeyUse::harmless) {
        values[name + (name.ends_with('.') ? "x" : "")] = std::int64_t{-1};
        const auto tokenizer = make_tokenizer(built(values));
        EXPECT_EQ(behaviour(*tokenizer), behaviour(*before));
        EXPECT_TRUE(tokenizer->warnings.empty());
        continue;
      }
      if (std::holds_alternative<Required>(taken.row.otherwise)) {
        try {
          make_tokenizer(built(values));
          ADD_FAILURE() << "no error";
        } catch (const Error& error) {
          EXPECT_NE(std::string(error.what()).find(taken.name), std::string::npos) << error.what();
        }
      }
      if (const auto* number = std::get_if<double>(&taken.row.otherwise)) {
        const bool is_id = name.ends_with("_id");
        const std::string without = behaviour(*make_tokenizer(built(values)));
        values[name] =
            is_id ? MetadataValue(static_cast<std::int64_t>(*number)) : MetadataValue(*number != 0);
        EXPECT_EQ(behaviour(*make_tokenizer(built(values))), without);
      }
      values[name] = other_of(name, *before);
      try {
        const auto tokenizer = make_tokenizer(built(values));
        EXPECT_NE(behaviour(*tokenizer), behaviour(*before));
        EXPECT_NE(taken.row.use, KeyUse::unsupported);
      } catch (const Error&) {
      }
    }
    auto values = good;
    values["no_such_key"] = std::string("x");
    const auto tokenizer = make_tokenizer(built(values));
    ASSERT_EQ(tokenizer->warnings.size(), 1u);
    EXPECT_NE(tokenizer->warnings[0].find("tokenizer.ggml.no_such_key"), std::string::npos);
  }
}

TEST(Tokenizer, SentencePieceWithoutIdsHasTheUsualOnes) {
  auto values = sentencepiece({{"<s>", 0, 3}, {"</s>", 0, 3}, {"a"}});
  values["add_space_prefix"] = false;
  const auto t = make_tokenizer(built(values));
  EXPECT_EQ(t->bos, 1);
  EXPECT_EQ(t->eos, 2);
  EXPECT_EQ(t->end_tokens, std::vector<Token>{2});
  ASSERT_EQ(t->warnings.size(), 2u);
  EXPECT_EQ(t->warnings[0],
            "test.gguf: tokenizer.ggml.bos_token_id is missing: token 1, \"<s>\", is taken");
  const TextPiece piece{"a", false};
  EXPECT_EQ(t->encode_whole(std::span(&piece, 1)), (std::vector<Token>{1, 3}));
  values["add_bos_token"] = false;
  EXPECT_EQ(make_tokenizer(built(values))->encode_whole(std::span(&piece, 1)),
            std::vector<Token>{3});
  // A vocabulary of two tokens has none with that id.
  EXPECT_EQ(make_tokenizer(built(sentencepiece({{"a"}})))->eos, std::nullopt);
}

// Files write ids for "none", and of tokens that were cut off: the rest can be used.
TEST(Tokenizer, IdsBeyondTheVocabularyAreIgnored) {
  const auto of_bytes = byte_bpe({"a b"});
  auto of_scores = sentencepiece({{"a"}, {"b"}});
  of_scores["bos_token_id"] = std::int64_t{1};
  of_scores["eos_token_id"] = std::int64_t{2};
  for (const auto& good : {of_bytes, of_scores}) {
    for (const char* name : {"bos_token_id", "eos_token_id", "eot_token_id", "eom_token_id",
                             "unknown_token_id", "padding_token_id"}) {
      for (const std::int64_t id : {std::int64_t{-1}, std::int64_t{300000},
                                    std::int64_t{UINT32_MAX}, std::int64_t{1} << 40}) {
        SCOPED_TRACE(fmt::format("{} {}", name, id));
        auto values = good;
        values[name] = id;
        const auto t = make_tokenizer(built(values));
        EXPECT_EQ(behaviour(*t), behaviour(*make_tokenizer(built(good))));
        const bool is_used = std::ranges::any_of(tokenizer_keys(built(values)), [&](const auto& k) {
          return k.row.name == name && k.row.use == KeyUse::computes;
        });
        ASSERT_EQ(t->warnings.size(), is_used ? 1u : 0u);
        if (is_used) {
          EXPECT_NE(t->warnings[0].find(fmt::format("{} is {}", name, id)), std::string::npos)
              << t->warnings[0];
        }
      }
    }
  }
}

TEST(Tokenizer, APreTokenizerCanBeNamed) {
  auto values = byte_bpe({"a b"});
  values.erase("pre");
  try {
    make_tokenizer(built(values));
    ADD_FAILURE() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.remedy(), Remedy::tokenizer_pre);
  }
  EXPECT_EQ(pieces_of(*make_tokenizer(built(values), "gpt-2"), "ab"), Pieces{"ab"});
  EXPECT_THROW(make_tokenizer(built(values), "gpt-9"), Error);
  values["pre"] = std::string("gpt-9");
  EXPECT_EQ(pieces_of(*make_tokenizer(built(values), "gpt-2"), "ab"), Pieces{"ab"});
  values["pre"] = std::string("default");
  const auto t = make_tokenizer(built(values));
  ASSERT_EQ(t->warnings.size(), 1u);
  EXPECT_NE(t->warnings[0].find("its pre-tokenizer is \"default\""), std::string::npos);
}

}  // namespace
}  // namespace outrider
